// SPDX-License-Identifier: Apache-2.0
// Runs the trainings of a plan, and keeps the results of those that are finished.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "core/build_info.h"
#include "core/digest.h"
#include "core/random.h"
#include "core/run_record.h"
#include "experiments/long_sentences.h"
#include "experiments/seq2seq/synthetic_task.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr int kLongestTraining = 30;  // words of synthetic training sentences, from 3 on

// A task's training data and its tests, shared by all jobs on it.
struct Task {
  TrainingData data;  // `sentences` set for each job's seed
  std::function<StatusOr<std::vector<SentencePair>>(std::uint64_t seed, std::uint64_t first,
                                                    std::uint64_t count)>
      sentences;
  std::vector<TestSet> tests;
  std::function<int(int)> copied;  // the target's number of a source word; kUnknownWord if none
};

// Writes the words of the source; what a model without any training could do.
class CopyingModel : public TrainedModel {
 public:
  explicit CopyingModel(std::function<int(int)> copied) : copied_(std::move(copied)) {}

  StatusOr<std::vector<Translation>> Translate(std::span<const std::vector<int>> sources,
                                               int /*max_words*/) override {
    std::vector<Translation> translations;
    for (const std::vector<int>& source : sources) {
      Translation translation;
      for (const int word : source) translation.words.push_back(copied_(word));
      translations.push_back(std::move(translation));
    }
    return translations;
  }
  StatusOr<Share> PredictWords(std::span<const SentencePair> /*pairs*/) override { return Share(); }
  StatusOr<std::vector<float>> Weights(const SentencePair& /*pair*/) override {
    return std::vector<float>();
  }

 private:
  std::function<int(int)> copied_;
};

StatusOr<Task> MakeSyntheticTask(const ExperimentOptions& options) {
  const auto task = std::make_shared<const SyntheticTask>();
  Task made;
  made.data.source_words = task->source_vocabulary().size();
  made.data.target_words = task->target_vocabulary().size();
  made.sentences = [task](std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
    return task->DrawSet(seed, "train", first, count, SyntheticTask::kShortest, kLongestTraining);
  };
  const std::vector<int> lengths = options.quick
                                       ? std::vector<int>{5, 10, 15, 20, 25, 30, 40}
                                       : std::vector<int>{5, 10, 15, 20, 25, 30, 35, 40, 50, 60};
  const std::uint64_t count = options.quick ? 50 : 100;
  for (const int length : lengths) {
    // The same for every job; no training set has this name.
    StatusOr<std::vector<SentencePair>> pairs =
        task->DrawSet(options.seed, fmt::format("test {}", length), 0, count, length, length);
    if (!pairs.ok()) return pairs.status();
    TestSet set{length, {}};
    for (SentencePair& pair : *pairs) set.sentences.push_back({std::move(pair), {}, {}});
    made.tests.push_back(std::move(set));
  }
  return made;
}

StatusOr<Task> MakeVerseTask(const std::string& name) {
  StatusOr<std::vector<VersePair>> pairs =
      ReadParallelText(name == "kjv-web" ? ParallelText::kKingJamesToWorldEnglish
                                         : ParallelText::kWorldEnglishToReinaValera);
  if (!pairs.ok()) return pairs.status();
  const auto task = std::make_shared<const TextTask>(MakeTextTask(*pairs));
  Task made;
  made.data.source_words = task->source_vocabulary.size();
  made.data.target_words = task->target_vocabulary.size();
  // With replacement, so that any number of sentences can be asked for.
  made.sentences = [task](std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
    const RandomStream order(seed, "seq2seq", "text order");
    std::vector<SentencePair> drawn;
    for (std::uint64_t i = first; i < first + count; ++i) {
      drawn.push_back(task->train[order.Below(i, task->train.size())]);
    }
    return StatusOr<std::vector<SentencePair>>(std::move(drawn));
  };
  made.copied = [task](int word) {
    return task->target_vocabulary.Number(std::string(task->source_vocabulary.Word(word)));
  };
  constexpr std::size_t kMostInASet = 100;
  for (std::size_t longest = 10; longest <= 70; longest += 10) {
    TestSet set{static_cast<int>(longest), {}};
    for (const TestSentence* sentence : OfLengths(*task, longest - 9, longest, kMostInASet)) {
      set.sentences.push_back(*sentence);
    }
    made.tests.push_back(std::move(set));
  }
  return made;
}

// One file a finished training. Its name and its content say what was trained by which build.
class Store {
 public:
  explicit Store(const std::string& directory) : directory_(directory) {}

  static ordered_json IdentityOf(const TrainingJob& job, const ExperimentOptions& options) {
    return {{"git", kGitState},
            {"compiler", kCompiler},
            {"test_seed", options.seed},
            {"quick", options.quick},
            {"job", job.ToJson()}};
  }

  std::optional<JobResult> Load(const TrainingJob& job, const ExperimentOptions& options) const {
    if (directory_.empty()) return std::nullopt;
    std::ifstream file(FileOf(job, options), std::ios::binary);
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    const ordered_json json = ordered_json::parse(text.str(), nullptr, false);
    if (!json.is_object() || !json.contains("identity") || !json.contains("result") ||
        json["identity"] != IdentityOf(job, options)) {
      return std::nullopt;
    }
    StatusOr<JobResult> result = JobResultFromJson(json["result"], job);
    if (!result.ok()) return std::nullopt;
    return *std::move(result);
  }

  Status Save(const JobResult& result, const ExperimentOptions& options) const {
    if (directory_.empty()) return Status();
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error) return Internal(fmt::format("cannot create {}: {}", directory_, error.message()));
    return WriteRecord(FileOf(result.job, options),
                       {{"identity", IdentityOf(result.job, options)}, {"result", ToJson(result)}});
  }

 private:
  std::filesystem::path FileOf(const TrainingJob& job, const ExperimentOptions& options) const {
    const std::string identity = IdentityOf(job, options).dump();
    return std::filesystem::path(directory_) /
           (Sha256(std::as_bytes(std::span(identity))).substr(0, 16) + ".json");
  }

  std::string directory_;
};

StatusOr<JobResult> RunTraining(const TrainingJob& job, const Task& task,
                                const TrainFunction& train, const ExperimentOptions& options) {
  TrainingData data = task.data;
  data.sentences = [&task, seed = job.seed](std::uint64_t first, std::uint64_t count) {
    return task.sentences(seed, first, count);
  };
  const bool copies = job.model == kCopyModel && task.copied;
  StatusOr<Training> training =
      copies ? Training{std::make_unique<CopyingModel>(task.copied), {}} : train(job, data);
  if (!training.ok()) return training.status();
  StatusOr<std::vector<LengthResult>> lengths =
      MeasureModel(training->model.get(), task.tests, options.quick ? 20 : 50);
  if (!lengths.ok()) return lengths.status();
  return JobResult{job, std::move(training->losses), *std::move(lengths)};
}

}  // namespace

StatusOr<std::vector<JobResult>> RunTrainings(const ExperimentOptions& options,
                                              const std::vector<TrainingJob>& jobs,
                                              const TrainFunction& train,
                                              const std::string& directory, std::string* missing) {
  std::map<std::string, Task> tasks;
  std::vector<TrainingJob> possible;
  for (const TrainingJob& job : jobs) {
    if (!tasks.contains(job.task)) {
      StatusOr<Task> task =
          job.task == "synthetic" ? MakeSyntheticTask(options) : MakeVerseTask(job.task);
      if (!task.ok() && task.status().code() == StatusCode::kNotFound) {
        *missing = task.status().message();
        continue;
      }
      if (!task.ok()) return task.status();
      tasks.emplace(job.task, *std::move(task));
    }
    possible.push_back(job);
  }

  const Store store(directory);
  std::vector<StatusOr<JobResult>> results(possible.size(), StatusOr<JobResult>(JobResult{}));
  std::mutex mutex;
  std::size_t done = 0;
  const auto report = [&](const std::string& doing, std::size_t more) {
    const std::lock_guard<std::mutex> lock(mutex);
    done += more;
    if (options.doing) options.doing(doing);
    if (options.progress) options.progress(done, possible.size());
  };
  ThreadPool pool(options.threads);
  pool.Run(possible.size(), [&](std::size_t i, std::size_t /*thread*/) {
    const TrainingJob& job = possible[i];
    if (std::optional<JobResult> kept = store.Load(job, options)) {
      results[i] = *std::move(kept);
    } else {
      report(job.Title(), 0);
      results[i] = RunTraining(job, tasks.at(job.task), train, options);
      if (results[i].ok()) {
        if (Status s = store.Save(*results[i], options); !s.ok()) results[i] = s;
      }
    }
    report(job.Title(), 1);
  });
  std::vector<JobResult> all;
  for (StatusOr<JobResult>& result : results) {
    if (!result.ok()) return result.status();
    all.push_back(*std::move(result));
  }
  return all;
}

StatusOr<ordered_json> RunLongSentencesBy(const ExperimentOptions& options,
                                          std::span<const std::string> models,
                                          const TrainFunction& train,
                                          const std::string& directory) {
  std::string missing;
  const StatusOr<std::vector<JobResult>> results =
      RunTrainings(options, PlanTrainings(options, models), train, directory, &missing);
  if (!results.ok()) return results.status();
  return LongSentencesRecord(options, *results, missing);
}

}  // namespace attest
