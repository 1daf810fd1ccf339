// SPDX-License-Identifier: Apache-2.0
// On which side of a midpoint an output lies, where 100 digits of the output do not tell.
//
// Keys that are far below the largest move an output by e^-1000, and scores that differ by 2^-1070
// make weights that differ by as little. An output, weight or LSE equals the number r exactly when
// a sum of exponentials is 0, and lies above it when the sum is positive:
//   out:     sum_j e^(s_j) (keep_j g_j v_j - r (1 - rate)) - r (1 - rate) e^(sink)
//   weight:  e^(s_j) g_j - r sum_l e^(s_l) - r e^(sink)
//   LSE:     sum_j e^(s_j) + e^(sink) - e^r
// (g: the local Gaussian). In such a sum terms of equal exponent are collected first, those that
// cancel are left out, and the rest is taken relative to its largest: then its sign shows.
#pragma once

#include <string>
#include <vector>

#include "core/case.h"
#include "properties/reference_validation/witness_number.h"
#include "reference/textbook-inl.h"

namespace attest {

enum class Side { kBelow, kExactly, kAbove, kUnknown };

struct ExponentialTerm {
  WitnessNumber exponent;
  WitnessNumber coefficient;
};

// The sign of the sum of coefficient * e^exponent over terms by falling exponents. kExactly where
// all terms cancel in groups of equal exponents; kUnknown where they cancel otherwise, to 90
// digits.
Side SignOfExponentialSum(const std::vector<ExponentialTerm>& terms);

// Where element `element` of "out", "weights" or "lse" lies in relation to r; kUnknown for
// gradients and for rows without an allowed key.
class MidpointSide {
 public:
  explicit MidpointSide(const Case& problem) : textbook_(problem) {}

  Side Of(const std::string& output, Index element, const WitnessNumber& r);

 private:
  // The allowed keys of a row by falling score.
  void SelectRow(Index flat_head, Index row);

  const Textbook<WitnessNumber> textbook_;
  Index cached_head_ = -1;  // flat index [b, h]
  TextbookHead<WitnessNumber> head_;
  Index cached_row_ = -1;
  std::vector<Index> order_;
};

}  // namespace attest
