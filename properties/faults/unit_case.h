// SPDX-License-Identifier: Apache-2.0
// Cases of a few keys, written down by hand.
#pragma once

#include <numbers>
#include <string>
#include <vector>

#include "core/case.h"
#include "properties/faults/smallest_inputs.h"

namespace attest {

inline constexpr double kLn2 = std::numbers::ln2;
inline constexpr double kLn3 = 1.0986122886681098;
inline constexpr double kLn9 = 2.1972245773362196;

// One head of `queries` queries q = 1 with scale 1 and head sizes 1, so that the keys are the
// scores. f32 unless another type is asked for; rounding of `scores` and `values` to it is part of
// the case.
Case UnitCase(const std::vector<double>& scores, const std::vector<double>& values,
              Index queries = 1, DType dtype = DType::kF32);

// One head and one query with q = (2, 0, 0, 0) and k = (k_first, 0, 0, 0) for each key: the default
// scale is 1/2, so that the scores are those of `firsts`.
Case FourChannels(const std::vector<double>& firsts, const std::vector<double>& values);

// Gives the case a tensor of its elements in row-major order.
void SetTensor(const std::string& name, DType dtype, const Shape& shape,
               const std::vector<double>& elements, Case* problem);
// A boolean mask [1, 1, Tq, Tk].
void SetMask(const std::vector<double>& allowed, Case* problem);
// grad_out, and `gradient` as the only output.
void SetGradient(const std::vector<double>& grad_out, const std::string& gradient, Case* problem);

// The input of a fault after FinishCase, which must succeed.
SmallestInput Exposing(const std::string& fault, Case problem, const std::vector<double>& right,
                       const std::string& tensor = "out");

}  // namespace attest
