// SPDX-License-Identifier: Apache-2.0
// A-priori forward error bounds of attention, element by element; derivation in docs/bounds.md.
#pragma once

#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"
#include "reference/certify.h"

namespace attest {

// What a profile allows: the numbers that the bound is a function of.
struct ArithmeticModel {
  double unit_roundoff;           // u of scores, exponentials, sums and accumulation
  double smallest_normal;         // of that format
  double smallest_subnormal;      // of that format
  double largest_finite;          // of that format
  double score_roundoff = 0.0;    // unit roundoff of the type scores are stored in; 0: as above
  double score_largest = 0.0;     // largest finite number of that type; 0: as above
  double weight_roundoff = 0.0;   // unit roundoff of the type weights are stored in; 0: as above
  double weight_subnormal = 0.0;  // smallest subnormal of that type
  double exp_ulp = 2.0;
};

ArithmeticModel ModelOf(const Contract& contract);

// A profile's name and what it means, for `attest list profiles`.
struct ProfileInfo {
  std::string name;
  std::string description;
};
const std::vector<ProfileInfo>& Profiles();

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
