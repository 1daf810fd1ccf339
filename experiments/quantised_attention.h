// SPDX-License-Identifier: Apache-2.0
// Attention whose two products multiply 8-bit codes with scales, as SageAttention has it (Zhang et
// al. 2025), on one head whose keys are one tile.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/emulated_attention.h"

namespace attest {

// kE4M3 and kE5M2 are those of the OCP OFP8 specification, saturating at 448 and 57344; kInt8 has
// the integers up to 127.
enum class CodeFormat : std::uint8_t { kF16, kE4M3, kE5M2, kInt8 };
const char* NameOf(CodeFormat format);
double LargestOf(CodeFormat format);  // f16: 1, it has no scale here

// Rounds to nearest, ties to even, and saturates.
double RoundToCode(CodeFormat format, double x);

struct Quantisation {
  CodeFormat qk = CodeFormat::kInt8;  // q and k: a scale for each row
  bool smooth_keys = false;           // k less its mean over the keys, which softmax does not see
  CodeFormat pv = CodeFormat::kF16;   // P = exp(s - m): one scale, 1 becomes the largest code; v: a
                                      // scale for each column
};

// Scales map the largest magnitude onto the largest code. Products of codes are summed in f32
// (exact for integers); scores, exp, the denominator (of P before it is rounded) and scaling are
// f32, outputs f16. Row-major [queries, v_dim].
std::vector<double> QuantisedAttention(const AttentionProblem& problem,
                                       const Quantisation& quantisation);

}  // namespace attest
