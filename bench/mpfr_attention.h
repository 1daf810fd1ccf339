// SPDX-License-Identifier: Apache-2.0
// Attention in plain MPFR of 50 decimal digits: what a certified element is compared with.
#pragma once

#include <vector>

#include "core/case.h"

namespace attest {

// Some rows of a case, and the processor time of each (reading the inputs is not counted).
struct MpfrRows {
  std::vector<double> seconds;
  std::vector<double> hi, lo;  // [rows, D]: hi + lo is the result, to about twice 53 bits
};

// False in a build without MPFR; then the functions below must not be called.
extern const bool kMpfrAttention;

// Both take cases of one batch and one head, score dot, and nothing else (no mask, bias or sink).
// `out` of the given rows: three loops, sums accumulated in place.
MpfrRows MpfrForward(const Case& problem, const std::vector<Index>& rows);

// `grad_q` of the given rows. The time includes their share of grad_k and grad_v, which are
// accumulated as every query's turn comes.
MpfrRows MpfrBackward(const Case& problem, const std::vector<Index>& rows);

}  // namespace attest
