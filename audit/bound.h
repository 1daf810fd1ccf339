// SPDX-License-Identifier: Apache-2.0
// A-priori forward error bounds of attention, element by element; derivation in docs/bounds.md.
#pragma once

#include <cstdint>
#include <vector>

#include "audit/arithmetic_model.h"
#include "core/case.h"
#include "reference/certify.h"

namespace attest {

// Bounds for every element of the outputs, in the layout of the certified tensors. A bound is
// infinite where the profile promises nothing: intermediate results may overflow although the exact
// value is finite, or the scores are so large that their rounding can change the weights
// altogether.
struct ForwardBounds {
  std::vector<double> out;
  std::vector<double> lse;
  std::vector<double> weights;
  std::vector<std::uint8_t> row_in_range;  // by row; 0: nothing in the row is judged
  std::vector<double> magnitude;           // sum_j p_ij |v_jc|, in the layout of `out`
  // Whether an allowed key of such small weight that it may underflow has an infinite value there:
  // infinity and NaN both conform.
  std::vector<std::uint8_t> vanishing_infinity;
};

// `certified` must come from Certify(problem) with conditions.
ForwardBounds EvaluateBounds(const Case& problem, const Certified& certified,
                             const ArithmeticModel& model);

}  // namespace attest
