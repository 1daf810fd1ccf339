// SPDX-License-Identifier: Apache-2.0
// The parts of the experiment long-sentences: what is trained, how it is measured, what is kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "experiments/experiment.h"
#include "experiments/seq2seq/bleu.h"
#include "experiments/seq2seq/measures.h"
#include "experiments/seq2seq/sentences.h"
#include "experiments/seq2seq/text_task.h"

namespace attest {

// In place of a model's name: the source's words as they are, without any training.
inline constexpr const char* kCopyModel = "copy";

// One training, completely.
struct TrainingJob {
  std::string part;    // of the experiment: "curves", "width", "scaling" or "text"
  std::string task;    // "synthetic", "kjv-web" or "web-rv"
  std::string model;   // an architecture's name
  bool scaled = true;  // scores times 1/sqrt(D_k), where the architecture has the choice
  int embedding = 32;
  int encoder = 48;  // states of each direction
  int decoder = 96;
  int attention = 64;  // hidden units of additive scores; D_k of qkv
  int batch = 64;
  int steps = 1200;
  int warm_up = 200;
  double learning_rate = 4e-3;
  std::uint64_t seed = 0;  // of initial values and training data

  // "fixed, width 96, seed 1".
  std::string Title() const;
  nlohmann::ordered_json ToJson() const;
};

// Training sentences by number: a pure function, so that every training can be repeated.
struct TrainingData {
  int source_words = 0;  // sizes of the vocabularies, reserved words included
  int target_words = 0;
  std::function<StatusOr<std::vector<SentencePair>>(std::uint64_t first, std::uint64_t count)>
      sentences;
};

// A model that has been trained.
class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  // Greedy, up to the end word or max_words words.
  virtual StatusOr<std::vector<Translation>> Translate(std::span<const std::vector<int>> sources,
                                                       int max_words) = 0;
  // Target words, end words included, that are the likeliest ones after the right words before.
  virtual StatusOr<Share> PredictWords(std::span<const SentencePair> pairs) = 0;
  // Attention weights given the target's words, row-major [target words or more, source words];
  // empty without attention.
  virtual StatusOr<std::vector<float>> Weights(const SentencePair& pair) = 0;
};

struct Training {
  std::unique_ptr<TrainedModel> model;
  std::vector<double> losses;  // mean loss over each tenth of the steps
};

// Called by several threads at a time, for one job each.
using TrainFunction =
    std::function<StatusOr<Training>(const TrainingJob& job, const TrainingData& data)>;

// Test sentences of like length.
struct TestSet {
  int length = 0;  // of all sources, or the most words that one has
  std::vector<TestSentence> sentences;
};

struct LengthResult {
  int length = 0;
  BleuCounts bleu;
  BleuCounts wrong_source;   // the same model on the source of the next sentence of the set
  Share words;               // predicted after the right words before
  Share sentences;           // translated without any error
  AttentionAccuracy forced;  // while it reads the right words
  AttentionAccuracy greedy;  // while it reads its own
};

struct JobResult {
  TrainingJob job;
  std::vector<double> losses;
  std::vector<LengthResult> lengths;

  const LengthResult* Find(int length) const;
};

nlohmann::ordered_json ToJson(const JobResult& result);
// InvalidArgument for what ToJson does not write. The job is not read: the caller has it.
StatusOr<JobResult> JobResultFromJson(const nlohmann::ordered_json& json, const TrainingJob& job);

// Weights are measured on the first `aligned` sentences of each set.
StatusOr<std::vector<LengthResult>> MeasureModel(TrainedModel* model, std::span<const TestSet> sets,
                                                 std::size_t aligned);

// The trainings of a run. Quick: fixed and bahdanau, one seed. Full: every model of `models` with
// five seeds; the fixed one in three widths and qkv over D_k with and without the factor, three
// seeds each; fixed and bahdanau on two parallel texts, three seeds.
std::vector<TrainingJob> PlanTrainings(const ExperimentOptions& options,
                                       std::span<const std::string> models);

// Trains and measures on options.threads threads. Results of finished trainings are files of
// `directory` (none: ""), and a job whose file is there, of this build, is not trained again. Jobs
// on texts that are not installed are left out; `missing` says why.
StatusOr<std::vector<JobResult>> RunTrainings(const ExperimentOptions& options,
                                              const std::vector<TrainingJob>& jobs,
                                              const TrainFunction& train,
                                              const std::string& directory, std::string* missing);

// Results of the trainings that differ in nothing but the seed.
struct ResultGroup {
  TrainingJob job;  // of the first seed
  std::vector<const JobResult*> results;

  // The mean over seeds and its band; NaN for a length that was not measured.
  Band Mean(int length, const std::function<double(const LengthResult&)>& value) const;
  Band Bleu(int length) const;
  std::vector<int> Lengths() const;
};
// Those of a part, in the order of the results.
std::vector<ResultGroup> GroupsOf(std::span<const JobResult> results, const std::string& part);

// The rule, evaluated on the groups of the part "curves".
struct LengthVerdict {
  double fixed_lost = 0.0;     // share of its BLEU that the fixed model loses from length 5 to 30
  double bahdanau_kept = 0.0;  // least share of BLEU at 5 that it has at any length to 30
  std::string least_model;     // of all with attention
  double least_kept = 0.0;
  std::string verdict;
};
LengthVerdict JudgeLengths(std::span<const ResultGroup> groups);

// Adds tables and plots.
void AddLengthTables(std::span<const JobResult> results, nlohmann::ordered_json* record);

// The record of the results, in which the rule decides the verdict.
nlohmann::ordered_json LongSentencesRecord(const ExperimentOptions& options,
                                           const std::vector<JobResult>& results,
                                           const std::string& missing);

// Everything, by any way to train.
StatusOr<nlohmann::ordered_json> RunLongSentencesBy(const ExperimentOptions& options,
                                                    std::span<const std::string> models,
                                                    const TrainFunction& train,
                                                    const std::string& directory);

}  // namespace attest
