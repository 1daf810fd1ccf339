// SPDX-License-Identifier: Apache-2.0
// Scores of one row, from q and k to what the softmax takes.
#pragma once

#include <optional>
#include <vector>

#include "properties/faults/plain_args.h"

namespace attest {

// One key of a row while it is computed, in arithmetic T (float, double).
template <class T>
struct PlainKey {
  bool allowed = false;
  // Whether the softmax takes the key: exactly the allowed ones do, but for a fault or a control.
  bool takes_part = false;
  T score = 0;
  T cap_tanh = 0;  // tanh(s / c) of a soft cap
  T weight = 0;    // first exp(s - m), then the normalised p
  T gaussian = 1;
  T keep = 1;  // of dropout: 0 or 1 / (1 - rate)
};

template <class T>
class PlainScore {
 public:
  PlainScore(const PlainCall& call, const RowIndex& row);

  // Fills in score and cap_tanh.
  void Compute(Index j, PlainKey<T>* key);
  // The score with which a key that is not allowed takes part all the same; nothing: it does not.
  std::optional<T> Excluded(Index j, PlainKey<T>* key);

  T scale() const { return scale_; }
  const std::vector<T>& q() const { return q_; }
  // Row j of k; zeros beyond the last key.
  const std::vector<T>& Key(Index j);
  // tanh of the units of an additive score.
  const std::vector<T>& Hidden(Index j);

 private:
  T ScaleOf() const;
  T Raw(Index j);
  T Capped(T score, PlainKey<T>* key) const;
  T Bias(Index j) const;
  T AlibiBias(Index j) const;
  T Slope() const;

  const PlainCall& call_;
  const RowIndex row_;
  const T scale_;
  std::vector<T> q_;
  std::vector<T> k_;
  std::vector<T> hidden_;
};

extern template class PlainScore<float>;
extern template class PlainScore<double>;

}  // namespace attest
