// SPDX-License-Identifier: Apache-2.0
// Gradients of outputs with respect to inputs by the recurrent steps between them, with and without
// attention, before and after training.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"
#include "core/random.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "experiments/seq2seq/train.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr int kWords = 10;
constexpr int kLength = 32;         // of sentences before training
constexpr int kTrainedLength = 12;  // after it; the longest of training

struct Subject {
  const char* name;
  Architecture architecture;
  bool bidirectional;
  bool attends;
};
constexpr std::array<Subject, 5> kSubjects{
    {{"fixed context", Architecture::kFixed, false, false},
     {"fixed context, both directions", Architecture::kFixed, true, false},
     {"additive attention", Architecture::kBahdanau, false, true},
     {"query-key-value attention", Architecture::kQueryKeyValue, false, true},
     {"Transformer", Architecture::kTransformer, false, true}}};

// Words drawn uniformly; the target is the source.
std::vector<SentencePair> Copies(std::uint64_t seed, const char* use, std::int64_t first,
                                 std::int64_t count, int least, int most) {
  std::vector<SentencePair> pairs;
  for (std::int64_t i = first; i < first + count; ++i) {
    const RandomStream stream(seed, "path-length", fmt::format("{} {}", use, i));
    const int length =
        least + static_cast<int>(stream.Below(0, static_cast<std::uint64_t>(most - least + 1)));
    SentencePair pair;
    for (int j = 1; j <= length; ++j) {
      const std::uint64_t word = stream.Below(static_cast<std::uint64_t>(j), kWords);
      pair.source.push_back(kFirstWord + static_cast<int>(word));
    }
    pair.target = pair.source;
    pairs.push_back(pair);
  }
  return pairs;
}

// Norms of the gradients, [sentence][output t * length + input s], the end word left out.
using Norms = std::vector<std::vector<double>>;

struct Measured {
  Status status;
  Norms before;  // at the initial values
  Norms after;   // training
  double loss = 0.0;
  double accuracy = 0.0;   // of words, given those before
  std::string parameters;  // digests of the values
};

StatusOr<Norms> MeasureNorms(Model<double>* model, std::span<const SentencePair> pairs) {
  Norms norms;
  for (const SentencePair& pair : pairs) {
    StatusOr<std::vector<double>> of_pair = model->SourceGradients(pair);
    if (!of_pair.ok()) return of_pair.status();
    of_pair->resize(pair.source.size() * pair.source.size());
    norms.push_back(*std::move(of_pair));
  }
  return norms;
}

Measured Measure(const Subject& subject, const ExperimentOptions& options) {
  Measured measured;
  const ModelOptions model_options{.architecture = subject.architecture,
                                   .source_words = kFirstWord + kWords,
                                   .target_words = kFirstWord + kWords,
                                   .embedding = 16,
                                   .encoder = 16,
                                   .decoder = 32,
                                   .attention = 16,
                                   .bidirectional = subject.bidirectional,
                                   .feed_forward = 64,
                                   .seed = options.seed};
  const std::int64_t sentences = options.quick ? 8 : 64;
  Model<double> exact(model_options);
  const auto measure = [&](const char* use, int length, Norms* norms) {
    const auto pairs = Copies(options.seed, use, 0, sentences, length, length);
    StatusOr<Norms> result = MeasureNorms(&exact, pairs);
    if (result.ok()) *norms = *std::move(result);
    return result.status();
  };
  if (measured.status = measure("before", kLength, &measured.before); !measured.status.ok()) {
    return measured;
  }

  Model<float> model(model_options);
  const TrainOptions train{.steps = options.quick ? 400 : 2000,
                           .warm_up = 50,
                           .learning_rate = 5e-3,
                           .batch = 32,
                           .seed = options.seed};
  Trainer trainer(&model, train, [&](std::int64_t first, std::int64_t count) {
    return Copies(options.seed, "training", first, count, 2, kTrainedLength);
  });
  if (measured.status = trainer.Run(train.steps); !measured.status.ok()) return measured;
  std::copy(model.values().begin(), model.values().end(), exact.values().begin());
  measured.parameters = Sha256(std::as_bytes(std::span(model.values())));
  const StatusOr<BatchResult> test =
      exact.Run(Copies(options.seed, "test", 0, 200, kTrainedLength, kTrainedLength), false);
  if (!test.ok()) {
    measured.status = test.status();
    return measured;
  }
  measured.loss = test->loss;
  measured.accuracy = static_cast<double>(test->correct) / static_cast<double>(test->words);
  measured.status = measure("after", kTrainedLength, &measured.after);
  return measured;
}

// Geometric mean over all pairs of output t and input s for which of(t, s) holds.
template <class Of>
double GeometricMean(const Norms& norms, int length, const Of& of) {
  double sum = 0.0;
  std::int64_t count = 0;
  for (const std::vector<double>& norm : norms) {
    for (int t = 0; t < length; ++t) {
      for (int s = 0; s < length; ++s) {
        if (!of(t, s)) continue;
        // 0 is only what underflows.
        sum += std::log(std::max(norm[static_cast<std::size_t>(t * length + s)], 1e-300));
        ++count;
      }
    }
  }
  return std::exp(sum / static_cast<double>(count));
}

// Outputs whose own input, the word that they copy, has the largest norm of all.
double ShareAligned(const Norms& norms, int length) {
  std::int64_t aligned = 0;
  for (const std::vector<double>& norm : norms) {
    for (int t = 0; t < length; ++t) {
      const auto row = norm.begin() + t * length;
      aligned += std::max_element(row, row + length) - row == t ? 1 : 0;
    }
  }
  return static_cast<double>(aligned) /
         (static_cast<double>(length) * static_cast<double>(norms.size()));
}

}  // namespace

StatusOr<ordered_json> RunPathLength(const ExperimentOptions& options) {
  std::vector<Measured> measured(kSubjects.size());
  ThreadPool pool(options.threads);
  pool.Run(kSubjects.size(),
           [&](std::size_t i, std::size_t) { measured[i] = Measure(kSubjects[i], options); });

  // Recurrent steps from input s through the last state to output t of an encoder that goes
  // forward.
  const auto steps = [](int t, int s) { return kLength - 1 - s + t; };
  constexpr int kLongest = 2 * (kLength - 1);
  ordered_json summary = ordered_json::array();
  ordered_json before = ordered_json::array();
  ordered_json after = ordered_json::array();
  ordered_json before_series = ordered_json::array();
  ordered_json after_series = ordered_json::array();
  std::string inputs;
  bool decays = true;
  bool stays = true;
  bool aligned = true;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < kSubjects.size(); ++i) {
    const Subject& subject = kSubjects[i];
    const Measured& of = measured[i];
    if (!of.status.ok()) return of.status;
    inputs += of.parameters;
    const double near =
        GeometricMean(of.before, kLength, [&](int t, int s) { return 4 * steps(t, s) < kLongest; });
    const double far = GeometricMean(of.before, kLength,
                                     [&](int t, int s) { return 4 * steps(t, s) > 3 * kLongest; });
    const double ratio = far / near;
    ratios.push_back(ratio);
    const double share = ShareAligned(of.after, kTrainedLength);
    if (subject.attends) {
      stays = stays && ratio >= 0.1 && ratio <= 10.0;
      aligned = aligned && share >= 0.9;
    } else if (!subject.bidirectional) {
      decays = decays && ratio <= 1e-2;
    }
    summary.push_back({subject.name, near, far, ratio, of.loss, of.accuracy, share});
    ordered_json points = ordered_json::array();
    for (int d = 0; d <= kLongest; ++d) {
      const double mean =
          GeometricMean(of.before, kLength, [&](int t, int s) { return steps(t, s) == d; });
      before.push_back({subject.name, d, mean});
      points.push_back({d, mean});
    }
    before_series.push_back({{"name", subject.name}, {"points", points}});
    points = ordered_json::array();
    for (int d = 1 - kTrainedLength; d < kTrainedLength; ++d) {
      const double mean =
          GeometricMean(of.after, kTrainedLength, [&](int t, int s) { return s - t == d; });
      after.push_back({subject.name, d, mean});
      points.push_back({d, mean});
    }
    after_series.push_back({{"name", subject.name}, {"points", points}});
  }

  ordered_json record = NewRecord(
      {.name = "path-length",
       .title = "Gradients along long and short paths",
       .claim =
           "The gradient of an output with respect to an input falls with the number of "
           "recurrent steps between them; attention makes the path short, so that it does not.",
       .source = "Hochreiter 1991 and Bengio, Simard and Frasconi 1994 (the decay); Bahdanau, Cho "
                 "and Bengio 2015 (attention to every annotation); Vaswani et al. 2017, section 4 "
                 "and table 1 (path lengths; an argument, not measured there).",
       .rule =
           "Over pairs of an output and an input with d recurrent steps between them, in models "
           "at their initial values: with a fixed context the geometric mean of the gradient's "
           "norm in the farthest quarter of d is at most 1/100 of the one in the nearest; in "
           "each model with attention the two are within a factor of 10. After training on "
           "copying, in each model with attention the word that an output copies has the "
           "largest gradient of all inputs for at least 90 % of the outputs. Reproduced if all "
           "of it holds, with limits if the first sentence alone does."});
  record["verdict"] = !decays || !stays ? "not reproduced"
                      : aligned         ? "reproduced"
                                        : "reproduced with limits";
  record["summary"] = fmt::format(
      "Far / near before training: {:.1e} with a fixed context ({:.1e} with an encoder of both "
      "directions), {:.2f} with additive, {:.2f} with query-key-value attention, {:.2f} in the "
      "Transformer. After training the copied word has the largest gradient for {:.0f} %, {:.0f} % "
      "and {:.0f} % of the outputs with attention, {:.0f} % with a fixed context.",
      ratios[0], ratios[1], ratios[2], ratios[3], ratios[4], 100.0 * summary[2][6].get<double>(),
      100.0 * summary[3][6].get<double>(), 100.0 * summary[4][6].get<double>(),
      100.0 * summary[0][6].get<double>());
  record["tables"] = {
      {{"title", "Models"},
       {"note",
        fmt::format("Norms of the gradient of log p(output t) with respect to the embedding of "
                    "input s, by backpropagation in double. Near, far: d below a quarter and above "
                    "three quarters of {}, initial values, {} words. Loss and accuracy given the "
                    "words before, sentences of {} words.",
                    kLongest, kLength, kTrainedLength)},
       {"columns",
        {"model", "near", "far", "far / near", "loss after training", "accuracy",
         "outputs with the largest gradient at the copied word"}},
       {"rows", summary}},
      {{"title", "By recurrent steps, before training"},
       {"note", "Geometric means over sentences and pairs with d = (length - 1 - s) + t."},
       {"columns", {"model", "d", "norm"}},
       {"rows", before}},
      {{"title", "By position, after training"},
       {"note", "Geometric means; at 0 is the word that the output copies."},
       {"columns", {"model", "s - t", "norm"}},
       {"rows", after}}};
  record["plots"] = {{{"title", "Gradient by recurrent steps, before training"},
                      {"note", "One recurrent path for all models; attention goes around it."},
                      {"x", {{"label", "d"}, {"scale", "linear"}}},
                      {"y", {{"label", "norm"}, {"scale", "log"}}},
                      {"series", before_series}},
                     {{"title", "Gradient by position, after training"},
                      {"note", "Attention has learned where the word to copy is."},
                      {"x", {{"label", "s - t"}, {"scale", "linear"}}},
                      {"y", {{"label", "norm"}, {"scale", "log"}}},
                      {"series", after_series}}};
  record["notes"] = {
      "The decay depends on the initial values: a GRU whose update gates start near 1 keeps its "
      "state longer. These start from biases of 0.",
      "An encoder of both directions reaches the first words by its backward states, so that d is "
      "not the shortest path there; it is shown, not judged. Encoders of the attention models go "
      "forward only.",
      "A gradient of log p is small where the model is sure: norms after training compare inputs "
      "of "
      "one output, not models."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
