// SPDX-License-Identifier: Apache-2.0
// One draw of q, k and v, and what softmax makes of it: exactly, and as a kernel computes it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "audit/subject.h"
#include "core/case.h"
#include "core/status.h"
#include "experiments/row_theorems.h"

namespace attest {

// Quantities of one query's weights over n keys, and of the gradients of L = its only output.
enum class Saturation {
  kLargest,        // max p
  kConcentration,  // sum p^2; 1 - sum p^2 is the trace of the softmax Jacobian J = diag(p) - p p^T
  kEntropy,        // nats
  kJacobianNorm,   // largest row sum of |J|, 2 max p (1 - p), at most 1/2
  kGradQ,          // Euclidean norm
  kGradK,
  kZeroWeights,    // share that is 0 (exact ones: that rounds to 0 in f32)
  kZeroGradients,  // the same of the elements of grad_k
};
inline constexpr std::size_t kSaturations = 8;
using SaturationValues = std::array<double, kSaturations>;

// q, k, v ~ N(0, 1) in f32, one query, n keys, v of size 1, grad_out = 1.
Case DrawSaturation(Index dim, Index keys, std::uint64_t seed, int draw);

// The same in another type, its tensors rounded to it, with or without the factor 1/sqrt(D_k).
Case Variant(const Case& drawn, DType dtype, bool scaled);

// Of certified values; what theorems say of the row too, where there is a place for it.
StatusOr<SaturationValues> ExactSaturation(const Case& problem, RowTheorems* theorems = nullptr);
// Weights by one subject, gradients by another.
StatusOr<SaturationValues> ComputedSaturation(const Case& problem, const Subject& forward,
                                              const Subject& backward);

}  // namespace attest
