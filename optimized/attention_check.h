// SPDX-License-Identifier: Apache-2.0
// Checks of a call's arguments, once, before any kernel runs. Private to optimized/.
#pragma once

#include "core/contract.h"
#include "core/status.h"
#include "optimized/attention.h"

namespace attest {

// The extents of a call, or which argument is wrong and what was expected.
StatusOr<Dimensions> CheckInputs(const AttentionArgs& args);
Status CheckOutputs(const AttentionArgs& args, const AttentionOutputs& outputs);

// An output that is asked for has this shape, a floating type, and no two elements at one place.
template <std::size_t Rank>
Status CheckOutput(const char* name, const std::optional<Output<Rank>>& output,
                   const std::array<Index, Rank>& expected);

// The scale as a number: 1/sqrt(Dk) by default for dot, 1 for the others.
double ScaleOf(const AttentionArgs& args);

}  // namespace attest
