// SPDX-License-Identifier: Apache-2.0
// How right translations and alignments are, and how sure a mean over seeds is.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "experiments/seq2seq/sentences.h"

namespace attest {

// Hits among trials; shares of nothing are NaN.
struct Share {
  std::int64_t hits = 0;
  std::int64_t trials = 0;

  void Add(bool hit) {
    hits += hit ? 1 : 0;
    ++trials;
  }
  Share& operator+=(const Share& other);
  double value() const;
};

// Of the positions of the target, those where the translation has the same word. One word too many
// or too few early on makes all later ones wrong; words beyond the target's length are not counted.
Share TokenAccuracy(std::span<const int> translation, std::span<const int> target);

// Pairs (position in source, position in target).
using Links = std::set<std::pair<int, int>>;

// Sizes of sets, summed over sentences: of the links A that a system claims, of the sure ones S, of
// A and S, and of A and P, the possible ones, which contain S.
struct AlignmentCounts {
  std::int64_t claimed = 0;
  std::int64_t sure = 0;
  std::int64_t claimed_sure = 0;
  std::int64_t claimed_possible = 0;

  // Sure links are possible even where `possible` lacks them.
  void Add(const Links& links, const Links& sure_links, const Links& possible_links);
  AlignmentCounts& operator+=(const AlignmentCounts& other);

  // 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och and Ney 2003); NaN for empty sets.
  double ErrorRate() const;
};

// The source position with the largest weight for each word of a translation, the first of several;
// -1 for a row of NaN. Empty without weights or where their number does not fit.
std::vector<int> ArgmaxPositions(const Translation& translation, std::size_t source_length);

// How often the largest weight of a written word is on the source word that the target's word at
// that position renders. Only positions that both have and whose source word is known count.
struct AttentionAccuracy {
  Share on_word;          // on the very word
  Share near_word;        // at most one word away
  Share on_word_right;    // on the word, among written words that are right
  Share on_word_wrong;    // on the word, among written words that are wrong
  AlignmentCounts links;  // the largest weights as links; every known one is sure

  AttentionAccuracy& operator+=(const AttentionAccuracy& other);
};
AttentionAccuracy MeasureAttention(const SentencePair& pair, const Translation& translation);

// A mean over seeds and a band of confidence.
struct Band {
  double mean = 0.0;
  double low = 0.0;
  double high = 0.0;
};

// The percentile bootstrap (Efron 1979) of the mean: the middle `level` of the means of `resamples`
// samples with replacement, drawn from a fixed seed. For one value all three are that value; for
// none all are NaN. With few values the band is narrower than its level says: it cannot leave the
// range of what was seen.
Band BootstrapMean(std::span<const double> values, double level = 0.95, int resamples = 10000);

}  // namespace attest
