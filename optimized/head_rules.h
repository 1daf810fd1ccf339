// SPDX-License-Identifier: Apache-2.0
// What one (batch, query head) of a call says about its rows and keys, apart from q, k and v: which
// keys take part, what is added to scores, and what weights are multiplied with. Private to
// optimized/.
#pragma once

#include <cstddef>
#include <limits>

#include "optimized/attention.h"

namespace attest {

// Keys begin, begin + 1, ..., end - 1; none where end <= begin.
struct KeyRange {
  Index begin = 0;
  Index end = 0;
};

class HeadRules {
 public:
  HeadRules() = default;
  // `args` must have passed CheckAttention, with masks and biases broadcast to the shape of the
  // scores, and must outlive the rules.
  HeadRules(const AttentionArgs& args, Index batch, Index head);

  // The keys that lengths, causal, window and local attention leave row i.
  KeyRange RangeOf(Index i) const;
  // The union of the ranges of rows [first, last).
  KeyRange RangeOfRows(Index first, Index last) const;
  // A mask, a bias or documents, which leave any set of keys.
  bool selects() const { return mask_.data != nullptr || bias_.data != nullptr || documents_; }
  // A bias or ALiBi.
  bool adds() const { return bias_.data != nullptr || slope_ != 0.0; }
  // Dropout, or the Gaussian of local attention.
  bool scales() const { return drops() || gaussian_; }
  bool drops() const { return keep_.data != nullptr; }
  bool gaussian() const { return gaussian_; }

  bool Allowed(Index i, Index j) const;
  bool AnyAllowed(Index i) const;

  // For keys first, ..., first + count - 1 of row i: terms[.] = unit * (bias - slope * distance),
  // or -infinity for a key that is not allowed. A finite term is never -infinity: it is clamped to
  // the lowest finite number. T is float or double.
  template <class T>
  void FillTerms(Index i, Index first, std::size_t count, double unit, T* terms) const;

  // factors[.] = what the normalised weights of these keys are multiplied with before the product
  // with v: the Gaussian and, `with_dropout`, keep / (1 - rate).
  template <class T>
  void FillFactors(Index i, Index first, std::size_t count, bool with_dropout, T* factors) const;

  // The sink of the head; -infinity without one.
  double sink() const { return sink_; }

 private:
  double Center(Index i) const;

  Index q_len_ = 0;  // Tq and Tk: of the buffers
  Index kv_len_ = 0;
  Index valid_rows_ = 0;  // by the batch's lengths
  Index valid_keys_ = 0;
  Index diagonal_ = 0;  // row i's diagonal key is i + diagonal_
  bool causal_ = false;
  Window window_;
  Input<2> mask_, bias_, keep_;  // of this head, [Tq, Tk]; data is null without one
  bool documents_ = false;
  Input<1> q_documents_, kv_documents_;
  Input<1> local_center_;
  double half_width_ = -1.0;  // negative: no local window
  bool gaussian_ = false;
  double slope_ = 0.0;
  double kept_ = 1.0;  // 1 / (1 - rate)
  double sink_ = -std::numeric_limits<double>::infinity();
};

}  // namespace attest
