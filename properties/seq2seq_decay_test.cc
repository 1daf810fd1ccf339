// SPDX-License-Identifier: Apache-2.0
// Gradients of single outputs with respect to single source words, in models whose gates are
// constant, so that they are known exactly: powers of the gate.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <span>

#include "experiments/seq2seq/model.h"

namespace attest {
namespace {

constexpr std::size_t kLength = 10;
const SentencePair kPair{{4, 6, 5, 7, 8, 4, 4, 5, 6, 7}, {5, 5, 4, 8, 6, 7, 4}, {}};

ModelOptions Small(Architecture architecture) {
  return {.architecture = architecture,
          .source_words = 9,
          .target_words = 9,
          .embedding = 4,
          .encoder = 5,
          .decoder = 5,
          .attention = 3,
          .bidirectional = false,
          .seed = 7};
}

// Encoder states become h + (1 - z)(n - h) with the same z and n for every word.
void MakeConstant(double z, Model<double>* model) {
  const auto states = static_cast<std::size_t>(model->options().encoder);
  const auto embedding = static_cast<std::size_t>(model->options().embedding);
  const std::span<double> w = model->Values("encoder.forward.w");
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i % (3 * states) < 2 * states) w[i] = 0.0;  // of the gates
  }
  for (double& u : model->Values("encoder.forward.u")) u = 0.0;
  for (std::size_t i = 0; i < states; ++i) {
    model->Values("encoder.forward.b")[states + i] = std::log(z / (1.0 - z));
  }
  const std::span<double> words = model->Values("source.embedding");
  for (std::size_t i = embedding; i < words.size(); ++i) words[i] = words[i % embedding];
}

// Every row, one for each output, is `expected` times the norm of the last word.
template <class Expected>
void ExpectRows(Model<double>* model, const Expected& expected) {
  const StatusOr<std::vector<double>> norms = model->SourceGradients(kPair);
  ASSERT_TRUE(norms.ok()) << norms.status().message();
  ASSERT_EQ(norms->size(), (kPair.target.size() + 1) * kLength);
  for (std::size_t t = 0; t <= kPair.target.size(); ++t) {
    const double* const row = norms->data() + t * kLength;
    EXPECT_GT(row[kLength - 1], 0.0);
    for (std::size_t d = 0; d < kLength; ++d) {
      const double ratio = expected(static_cast<double>(d));
      EXPECT_NEAR(row[kLength - 1 - d] / row[kLength - 1], ratio, 1e-12 * ratio) << t << " " << d;
    }
  }
}

TEST(Seq2seqDecay, OfAFixedContextIsThePowersOfTheGate) {
  Model<double> model(Small(Architecture::kFixed));
  for (const double z : {0.25, 0.75}) {
    MakeConstant(z, &model);
    ExpectRows(&model, [z](double d) { return std::pow(z, d); });
  }
}

// Uniform weights see a word in its own annotation and in all later ones: 1 + z + ... + z^d.
TEST(Seq2seqDecay, OfUniformAttentionIsTheirSum) {
  Model<double> model(Small(Architecture::kBahdanau));
  MakeConstant(0.75, &model);
  for (double& v : model.Values("attention.v")) v = 0.0;
  for (double& w : model.Values("start.w")) w = 0.0;  // no other path
  ExpectRows(&model, [](double d) { return (1.0 - std::pow(0.75, d + 1.0)) / 0.25; });
}

}  // namespace
}  // namespace attest
