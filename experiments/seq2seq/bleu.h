// SPDX-License-Identifier: Apache-2.0
// BLEU-4 of a corpus (Papineni et al. 2002) by the definition of sacreBLEU (Post 2018).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace attest {

// What takes the place of a precision of 0, which makes the score 0.
enum class BleuSmoothing {
  kNone,         // nothing
  kExponential,  // the k-th such precision is 1 / (2^k times the number of n-grams)
};

// All in percent but the penalty.
struct BleuScore {
  double score = 0.0;
  std::array<double, 4> precisions{};  // of n-grams, n = 1 to 4; smoothed where that is asked for
  double brevity_penalty = 0.0;
  std::int64_t hypothesis_length = 0;
  std::int64_t reference_length = 0;  // of the closest reference, the shorter of two
};

// Counts of n-grams, summed over a corpus. Words are compared as they are: tokenisation and case
// are the task's. kUnknownWord matches nothing, not even itself.
struct BleuCounts {
  std::array<std::int64_t, 4> matches{};
  std::array<std::int64_t, 4> totals{};
  std::int64_t hypothesis_length = 0;
  std::int64_t reference_length = 0;

  // One sentence. Without a reference nothing matches and the reference's length is 0.
  void Add(std::span<const int> hypothesis, std::span<const std::vector<int>> references);
  void Add(std::span<const int> hypothesis, std::span<const int> reference);

  BleuCounts& operator+=(const BleuCounts& other);

  // exp(min(0, 1 - reference / hypothesis length)) times the geometric mean of the precisions. 0
  // where no unigram matches or, without smoothing, n-grams of some n <= 4 match nowhere. A corpus
  // without any n-gram of some n has the score 0 as well (no "effective order").
  BleuScore Score(BleuSmoothing smoothing = BleuSmoothing::kNone) const;
};

}  // namespace attest
