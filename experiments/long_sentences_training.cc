// SPDX-License-Identifier: Apache-2.0
// The experiment long-sentences with the encoder-decoders of experiments/seq2seq.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/long_sentences.h"
#include "experiments/seq2seq/model.h"
#include "experiments/seq2seq/train.h"

namespace attest {
namespace {

// Where a full run keeps the results of finished trainings.
constexpr const char* kDirectory = "out/long-sentences/trainings";

class EncoderDecoder : public TrainedModel {
 public:
  explicit EncoderDecoder(const ModelOptions& options) : model_(options) {}

  Model<float>& model() { return model_; }

  StatusOr<std::vector<Translation>> Translate(std::span<const std::vector<int>> sources,
                                               int max_words) override {
    return model_.Translate(sources, max_words);
  }
  StatusOr<Share> PredictWords(std::span<const SentencePair> pairs) override {
    const StatusOr<BatchResult> result = model_.Run(pairs, /*gradients=*/false);
    if (!result.ok()) return result.status();
    return Share{result->correct, result->words};
  }
  StatusOr<std::vector<float>> Weights(const SentencePair& pair) override {
    return model_.Weights(pair);
  }

 private:
  Model<float> model_;
};

StatusOr<ModelOptions> ModelOptionsOf(const TrainingJob& job, const TrainingData& data) {
  ModelOptions options;
  const std::span<const Architecture> all = Architectures();
  const auto architecture = std::find_if(
      all.begin(), all.end(), [&](Architecture each) { return NameOf(each) == job.model; });
  if (architecture == all.end()) return NotFound(fmt::format("no model '{}'", job.model));
  options.architecture = *architecture;
  options.source_words = data.source_words;
  options.target_words = data.target_words;
  options.embedding = job.embedding;
  options.encoder = job.encoder;
  options.decoder = job.decoder;
  options.attention = job.attention;
  options.scaled = job.scaled;
  options.seed = job.seed;
  if (Status s = CheckModelOptions(options); !s.ok()) return s;
  return options;
}

StatusOr<Training> Train(const TrainingJob& job, const TrainingData& data) {
  const StatusOr<ModelOptions> options = ModelOptionsOf(job, data);
  if (!options.ok()) return options.status();
  auto model = std::make_unique<EncoderDecoder>(*options);
  Status drawn;
  const auto draw = [&](std::int64_t first, std::int64_t count) {
    StatusOr<std::vector<SentencePair>> pairs =
        data.sentences(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(count));
    if (pairs.ok()) return *std::move(pairs);
    drawn = pairs.status();
    return std::vector<SentencePair>();
  };
  Trainer trainer(&model->model(),
                  {.steps = job.steps,
                   .warm_up = job.warm_up,
                   .learning_rate = job.learning_rate,
                   .batch = job.batch,
                   .seed = job.seed},
                  draw);
  Training training;
  double sum = 0.0;
  std::int64_t steps = 0;
  const Status status = trainer.Run(job.steps, [&](const TrainProgress& progress) {
    sum += progress.batch.loss;
    ++steps;
    if (progress.step * 10 / job.steps == (progress.step - 1) * 10 / job.steps) return;
    training.losses.push_back(sum / static_cast<double>(steps));
    sum = 0.0;
    steps = 0;
  });
  if (!drawn.ok()) return drawn;
  if (!status.ok()) return status;
  training.model = std::move(model);
  return training;
}

}  // namespace

StatusOr<nlohmann::ordered_json> RunLongSentences(const ExperimentOptions& options) {
  std::vector<std::string> models;
  for (const Architecture architecture : Architectures()) models.emplace_back(NameOf(architecture));
  return RunLongSentencesBy(options, models, Train, options.quick ? "" : kDirectory);
}

}  // namespace attest
