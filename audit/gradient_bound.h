// SPDX-License-Identifier: Apache-2.0
// A-priori forward error bounds of gradients, element by element; derivation in docs/bounds.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "audit/bound.h"

namespace attest {

// Of one gradient, in the layout of its tensor.
struct GradientBound {
  // 0 where no row reaches the element, which is exactly 0 then; infinite where nothing is judged.
  std::vector<double> bound;
  std::vector<double> magnitude;  // sum of the magnitudes of what the element sums up
};
using GradientBounds = std::map<std::string, GradientBound>;  // by output, "grad_q"

// For every gradient among the case's outputs. `certified` must come from Certify(problem) with
// conditions, out and lse, and `forward` from EvaluateBounds with the same arguments.
GradientBounds EvaluateGradientBounds(const Case& problem, const Certified& certified,
                                      const ForwardBounds& forward, const ArithmeticModel& model);

}  // namespace attest
