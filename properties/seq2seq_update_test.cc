// SPDX-License-Identifier: Apache-2.0
// A training step against its definition: order of sentences, clipping, schedule, Adam.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "experiments/seq2seq/train.h"

namespace attest {
namespace {

// Sentences of 1 to 5 words, no two neighbours of one length.
std::vector<SentencePair> Draw(std::int64_t first, std::int64_t count) {
  std::vector<SentencePair> pairs;
  for (std::int64_t i = first; i < first + count; ++i) {
    SentencePair pair;
    for (std::int64_t j = 0; j <= 3 * i % 5; ++j) {
      pair.source.push_back(kFirstWord + static_cast<int>((i + j * j) % 6));
    }
    pair.target = pair.source;
    pairs.push_back(pair);
  }
  return pairs;
}

double RateOf(const TrainOptions& options, std::int64_t step) {
  const double most = options.learning_rate;
  if (step <= options.warm_up) {
    return most * static_cast<double>(step) / static_cast<double>(options.warm_up);
  }
  const double share = static_cast<double>(step - options.warm_up) /
                       static_cast<double>(options.steps - options.warm_up);
  const double low = most * options.last_share;
  return low + (most - low) * std::pow(std::cos(std::numbers::pi * share / 2), 2);
}

TEST(Seq2seqUpdate, IsAdamOfClippedGradients) {
  const ModelOptions model_options{.architecture = Architecture::kBahdanau,
                                   .source_words = 10,
                                   .target_words = 10,
                                   .embedding = 6,
                                   .encoder = 6,
                                   .decoder = 8,
                                   .attention = 5,
                                   .seed = 3};
  const TrainOptions options{
      .steps = 9, .warm_up = 4, .learning_rate = 1e-2, .clip = 0.05, .batch = 4, .pool = 1};
  Model<float> trained(model_options);
  Trainer trainer(&trained, options, Draw);
  Model<float> model(model_options);
  std::vector<double> m(model.values().size(), 0.0);
  std::vector<double> v = m;
  int clipped = 0;
  double moved = 0.0;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    std::vector<SentencePair> batch = Draw((step - 1) * 4, 4);
    std::sort(batch.begin(), batch.end(), [](const SentencePair& a, const SentencePair& b) {
      return a.source.size() < b.source.size();
    });
    const auto result = model.Run(batch, true);
    ASSERT_TRUE(result.ok());
    double norm = 0.0;
    for (const float g : model.gradients()) norm = std::hypot(norm, g);
    const double factor = norm > options.clip ? options.clip / norm : 1.0;
    clipped += norm > options.clip ? 1 : 0;
    const auto t = static_cast<double>(step);
    const double size =
        RateOf(options, step) * std::sqrt(1.0 - std::pow(0.999, t)) / (1.0 - std::pow(0.9, t));
    const auto made = trainer.Step();
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->loss, result->loss);
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double g = factor * model.gradients()[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double change = size * m[i] / (std::sqrt(v[i]) + 1e-8);
      moved = std::max(moved, std::abs(change));
      ASSERT_NEAR(trained.values()[i], model.values()[i] - change, 1e-6) << step << " " << i;
    }
    model.values() = trained.values();
  }
  EXPECT_GT(clipped, 0);
  EXPECT_GT(moved, 5e-3);
  EXPECT_TRUE(trainer.done());
}

}  // namespace
}  // namespace attest
