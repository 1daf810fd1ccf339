// SPDX-License-Identifier: Apache-2.0
// Accuracies, alignment error rates and confidence bands on small cases with known values.
#include "experiments/seq2seq/measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace attest {
namespace {

TEST(TokenAccuracy, ComparesPositionByPosition) {
  const std::vector<int> target{4, 5, 6, 7};
  EXPECT_EQ(TokenAccuracy(target, target).value(), 1.0);
  EXPECT_EQ(TokenAccuracy(std::vector<int>{4, 9, 6}, target).value(), 0.5);
  EXPECT_EQ(TokenAccuracy(std::vector<int>{9, 4, 5, 6, 7}, target).hits, 0);
  EXPECT_EQ(TokenAccuracy({}, target).trials, 4);
  EXPECT_TRUE(std::isnan(TokenAccuracy(target, {}).value()));
}

// The documentation of NLTK's alignment_error_rate: 0.6666666666666667.
TEST(AlignmentErrorRate, IsWhatNltkDocuments) {
  const Links sure{{0, 0}, {1, 1}, {2, 2}};
  AlignmentCounts counts;
  counts.Add({{0, 0}, {1, 2}, {2, 1}}, sure, {});
  EXPECT_NEAR(counts.ErrorRate(), 2.0 / 3.0, 1e-15);
}

// Och and Ney 2003: a possible link costs nothing when claimed, nor when not; a sure one that is
// missing does.
TEST(AlignmentErrorRate, TellsSureFromPossibleLinks) {
  const Links sure{{0, 0}, {1, 1}};
  const Links possible{{0, 0}, {1, 1}, {2, 1}, {2, 2}};
  const auto rate = [&](const Links& claimed) {
    AlignmentCounts counts;
    counts.Add(claimed, sure, possible);
    return counts.ErrorRate();
  };
  EXPECT_EQ(rate(sure), 0.0);
  EXPECT_EQ(rate(possible), 0.0);
  EXPECT_NEAR(rate({{0, 0}, {2, 2}}), 1.0 - 3.0 / 4.0, 1e-15);
  EXPECT_NEAR(rate({{0, 0}, {1, 1}, {0, 2}}), 1.0 - 4.0 / 5.0, 1e-15);
  EXPECT_EQ(rate({{0, 1}}), 1.0);
  EXPECT_TRUE(std::isnan(AlignmentCounts{}.ErrorRate()));
}

TEST(ArgmaxPositions, TakesTheFirstOfEquals) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Translation translation{{4, 5, 6}, {0.2F, 0.5F, 0.3F, 0.4F, 0.2F, 0.4F, nan, nan, nan}};
  EXPECT_EQ(ArgmaxPositions(translation, 3), (std::vector<int>{1, 0, -1}));
  EXPECT_TRUE(ArgmaxPositions(translation, 2).empty());
  EXPECT_TRUE(ArgmaxPositions({{4, 5}, {}}, 3).empty());
}

TEST(MeasureAttention, CountsWrittenWordsWithAKnownSource) {
  SentencePair pair;
  pair.source = {4, 5, 6};
  pair.target = {7, 8, 9, 10};
  pair.alignment = {0, 2, -1, 1};
  // Largest on 0, 1, 1; the second word is wrong, the third has no known source, the fourth is not
  // written.
  const Translation translation{{7, 11, 9}, {0.8F, 0.1F, 0.1F, 0.1F, 0.6F, 0.3F, 0.2F, 0.5F, 0.3F}};
  const AttentionAccuracy accuracy = MeasureAttention(pair, translation);
  EXPECT_EQ(accuracy.on_word.hits, 1);
  EXPECT_EQ(accuracy.on_word.trials, 2);
  EXPECT_EQ(accuracy.near_word.hits, 2);
  EXPECT_EQ(accuracy.on_word_right.value(), 1.0);
  EXPECT_EQ(accuracy.on_word_wrong.value(), 0.0);
  EXPECT_EQ(accuracy.links.claimed, 2);
  EXPECT_EQ(accuracy.links.sure, 3);
  EXPECT_NEAR(accuracy.links.ErrorRate(), 1.0 - 2.0 / 5.0, 1e-15);
  EXPECT_EQ(MeasureAttention(pair, {{7, 8, 9, 10}, {}}).on_word.trials, 0);
  pair.alignment.clear();
  EXPECT_EQ(MeasureAttention(pair, translation).links.claimed, 0);
}

TEST(BootstrapMean, IsTheSameOnEveryCallAndInsideTheRange) {
  const std::vector<double> values{93.3, 89.6, 96.8, 91.0, 95.5};
  const Band band = BootstrapMean(values);
  EXPECT_NEAR(band.mean, 93.24, 1e-9);
  const Band again = BootstrapMean(values);
  EXPECT_EQ(band.low, again.low);
  EXPECT_EQ(band.high, again.high);
  EXPECT_GT(band.low, 89.6);
  EXPECT_LT(band.low, band.mean);
  EXPECT_GT(band.high, band.mean);
  EXPECT_LT(band.high, 96.8);
  const Band wider = BootstrapMean(values, 0.999);
  EXPECT_LT(wider.low, band.low);
  EXPECT_GT(wider.high, band.high);
}

// Means of two draws from {0, 1} are 0, 1/2 and 1 with probability 1/4, 1/2 and 1/4.
TEST(BootstrapMean, HasTheQuantilesOfTheBinomial) {
  const std::vector<double> values{0.0, 1.0};
  const Band middle = BootstrapMean(values, 0.4);
  EXPECT_EQ(middle.low, 0.5);
  EXPECT_EQ(middle.high, 0.5);
  const Band most = BootstrapMean(values, 0.6);
  EXPECT_EQ(most.low, 0.0);
  EXPECT_EQ(most.high, 1.0);
}

TEST(BootstrapMean, OfOneValueOrNone) {
  const std::vector<double> one{7.0};
  EXPECT_EQ(BootstrapMean(one).low, 7.0);
  EXPECT_EQ(BootstrapMean(one).high, 7.0);
  EXPECT_TRUE(std::isnan(BootstrapMean({}).mean));
}

}  // namespace
}  // namespace attest
