// SPDX-License-Identifier: Apache-2.0
// Models that must equal each other exactly, and attention that must be exactly what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "experiments/seq2seq/model.h"

namespace attest {
namespace {

ModelOptions Small(Architecture architecture) {
  return {.architecture = architecture,
          .source_words = 20,
          .target_words = 23,
          .embedding = 8,
          .encoder = 8,
          .decoder = 16,
          .attention = 12,
          .half_width = 2.0,
          .max_source = 12,
          .feed_forward = 24,
          .seed = 3};
}

// Sentences of these lengths.
std::vector<SentencePair> Pairs(const std::vector<int>& lengths) {
  std::vector<SentencePair> pairs;
  for (const int length : lengths) {
    SentencePair pair;
    for (int j = 0; j < length; ++j) {
      pair.source.push_back(kFirstWord + (7 * j + length) % 16);
      pair.target.push_back(kFirstWord + (5 * j + length) % 19);
    }
    pairs.push_back(pair);
  }
  return pairs;
}

// Copies the values of parameters that both have.
void CopyShared(Model<float>& from, Model<float>* to) {
  for (const ParameterSpec& spec : from.parameters()) {
    const std::span<float> values = to->Values(spec.name);
    if (values.empty()) continue;
    const std::span<float> source = from.Values(spec.name);
    ASSERT_EQ(values.size(), source.size()) << spec.name;
    std::copy(source.begin(), source.end(), values.begin());
  }
}

TEST(Seq2seqModel, ZeroAdditiveVectorGivesUniformWeights) {
  for (const bool kernel_scores : {false, true}) {
    ModelOptions options = Small(Architecture::kBahdanau);
    options.kernel_scores = kernel_scores;
    Model<float> model(options);
    for (float& v : model.Values("attention.v")) v = 0.0F;
    for (const int length : {1, 2, 3, 7, 10}) {
      const SentencePair pair = Pairs({length}).front();
      const StatusOr<std::vector<float>> weights = model.Weights(pair);
      ASSERT_TRUE(weights.ok()) << weights.status().message();
      ASSERT_EQ(weights->size(), static_cast<std::size_t>(length * (length + 1)));
      for (const float weight : *weights) EXPECT_EQ(weight, 1.0F / static_cast<float>(length));
    }
  }
}

// With an encoder that only goes forward, the last annotation is the fixed context.
TEST(Seq2seqModel, AttentionToTheLastStateIsTheFixedContext) {
  ModelOptions options = Small(Architecture::kFixed);
  options.bidirectional = false;
  Model<float> fixed(options);
  options.architecture = Architecture::kLastState;
  Model<float> last(options);
  const std::vector<SentencePair> pairs = Pairs({9, 4, 1, 6});
  const StatusOr<BatchResult> a = fixed.Run(pairs, true);
  const StatusOr<BatchResult> b = last.Run(pairs, true);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->loss, b->loss);
  for (std::size_t i = 0; i < fixed.values().size(); ++i) {
    const double size = std::max(1e-3, std::fabs(static_cast<double>(fixed.gradients()[i])));
    ASSERT_NEAR(fixed.gradients()[i], last.gradients()[i], 1e-4 * size) << i;
  }
}

// One key: whatever the scores, attention returns its value, which for one word is the context.
TEST(Seq2seqModel, OneKeyIsThatKey) {
  Model<float> fixed(Small(Architecture::kFixed));
  const std::vector<SentencePair> pairs = Pairs({1, 1, 1});
  const StatusOr<BatchResult> expected = fixed.Run(pairs, false);
  ASSERT_TRUE(expected.ok());
  for (const bool kernel_scores : {false, true}) {
    ModelOptions options = Small(Architecture::kBahdanau);
    options.kernel_scores = kernel_scores;
    Model<float> model(options);
    CopyShared(fixed, &model);
    const StatusOr<BatchResult> result = model.Run(pairs, false);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->loss, expected->loss);
  }
  for (const Architecture architecture : Architectures()) {
    if (architecture == Architecture::kFixed) continue;
    Model<float> model(Small(architecture));
    const StatusOr<std::vector<float>> weights = model.Weights(pairs[0]);
    ASSERT_TRUE(weights.ok());
    ASSERT_FALSE(weights->empty());
    for (const float weight : *weights) EXPECT_EQ(weight, 1.0F) << NameOf(architecture);
  }
}

// The tape's additive scores and the kernel's own are one function.
TEST(Seq2seqModel, AdditiveScoresOfTheKernelAndOfTheTapeAgree) {
  for (const Architecture architecture : {Architecture::kBahdanau, Architecture::kConcat}) {
    ModelOptions options = Small(architecture);
    Model<double> tape(options);
    options.kernel_scores = true;
    Model<double> kernel(options);
    const std::vector<SentencePair> pairs = Pairs({9, 4, 1, 6});
    const StatusOr<BatchResult> a = tape.Run(pairs, true);
    const StatusOr<BatchResult> b = kernel.Run(pairs, true);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_NEAR(a->loss, b->loss, 1e-13);
    for (std::size_t i = 0; i < tape.values().size(); ++i) {
      ASSERT_NEAR(tape.gradients()[i], kernel.gradients()[i], 1e-13);
    }
  }
}

// A sentence's loss does not depend on the sentences beside it, that is, on padding.
TEST(Seq2seqModel, PaddingChangesNothing) {
  for (const Architecture architecture : Architectures()) {
    Model<double> model(Small(architecture));
    const std::vector<SentencePair> pairs = Pairs({3, 11, 6});
    double sum = 0.0;
    Index words = 0;
    for (const SentencePair& pair : pairs) {
      const StatusOr<BatchResult> alone = model.Run(std::span(&pair, 1), false);
      ASSERT_TRUE(alone.ok()) << alone.status().message();
      sum += alone->loss * static_cast<double>(alone->words);
      words += alone->words;
    }
    const StatusOr<BatchResult> together = model.Run(pairs, false);
    ASSERT_TRUE(together.ok());
    EXPECT_EQ(together->words, words);
    EXPECT_NEAR(together->loss, sum / static_cast<double>(words), 1e-13) << NameOf(architecture);
  }
}

// Greedy words are those that teacher forcing with them finds likeliest; weights are those of the
// source in its own order and sum to 1 (at most 1 with a Gaussian).
TEST(Seq2seqModel, TranslationsAgreeWithTeacherForcing) {
  for (const bool reversed : {false, true}) {
    for (const Architecture architecture : Architectures()) {
      ModelOptions options = Small(architecture);
      options.reverse_source = reversed;
      Model<float> model(options);
      // Neither the end nor a reserved word is ever the likeliest.
      for (int word = 0; word < kFirstWord; ++word) {
        model.Values("output.b")[static_cast<std::size_t>(word)] = -100.0F;
      }
      const std::vector<std::vector<int>> sources{{4, 9, 7}, {5, 6, 12, 19, 4, 8}};
      const StatusOr<std::vector<Translation>> translations = model.Translate(sources, 5);
      ASSERT_TRUE(translations.ok()) << translations.status().message();
      for (std::size_t b = 0; b < sources.size(); ++b) {
        const Translation& translation = (*translations)[b];
        ASSERT_EQ(translation.words.size(), 5U);
        const SentencePair pair{sources[b], translation.words, {}};
        const StatusOr<BatchResult> forced = model.Run(std::span(&pair, 1), false);
        ASSERT_TRUE(forced.ok());
        EXPECT_EQ(forced->correct, 5) << NameOf(architecture);  // all but the end word
        if (architecture == Architecture::kFixed) {
          EXPECT_TRUE(translation.weights.empty());
          continue;
        }
        ASSERT_EQ(translation.weights.size(), 5 * sources[b].size());
        const StatusOr<std::vector<float>> weights = model.Weights(pair);
        ASSERT_TRUE(weights.ok());
        for (std::size_t i = 0; i < translation.weights.size(); ++i) {
          EXPECT_NEAR(translation.weights[i], (*weights)[i], 1e-5F) << NameOf(architecture);
        }
        if (architecture == Architecture::kLocalP) continue;
        float sum = 0.0F;
        for (const float weight : translation.weights) sum += weight;
        EXPECT_NEAR(sum, 5.0F, 1e-5F) << NameOf(architecture);
      }
    }
  }
}

// The norms by position against a change of the embedding itself: a source without repeated words,
// so that a row of the table is one position.
TEST(Seq2seqModel, SourceGradientsAreThoseOfTheEmbeddings) {
  for (const Architecture architecture : Architectures()) {
    Model<double> model(Small(architecture));
    const SentencePair pair{{4, 9, 7, 12}, {6}, {}};
    const StatusOr<std::vector<double>> norms = model.SourceGradients(pair);
    ASSERT_TRUE(norms.ok());
    ASSERT_EQ(norms->size(), 2U * 4U);
    // The sum of both outputs' gradients at a position is that of twice the mean loss.
    ASSERT_TRUE(model.Run(std::span(&pair, 1), true).ok());
    const ParameterSpec& table = model.parameters().front();
    for (std::size_t j = 0; j < 4; ++j) {
      double squares = 0.0;
      for (Index e = 0; e < table.columns; ++e) {
        const auto at = static_cast<std::size_t>(table.offset + pair.source[j] * table.columns + e);
        squares += 4.0 * model.gradients()[at] * model.gradients()[at];
      }
      const double both = std::sqrt(squares);
      EXPECT_LE(both, ((*norms)[j] + (*norms)[4 + j]) * (1 + 1e-12)) << NameOf(architecture);
      EXPECT_GE(both, std::fabs((*norms)[j] - (*norms)[4 + j]) * (1 - 1e-12));
    }
  }
}

TEST(Seq2seqModel, RefusesWordsOutsideTheVocabulary) {
  Model<float> model(Small(Architecture::kDot));
  const std::vector<SentencePair> pairs{{{20}, {4}, {}}};
  EXPECT_EQ(model.Run(pairs, true).status().code(), StatusCode::kInvalidArgument);
  ModelOptions options = Small(Architecture::kDot);
  options.decoder = 15;
  EXPECT_EQ(CheckModelOptions(options).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace attest
