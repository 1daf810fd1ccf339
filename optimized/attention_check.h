// SPDX-License-Identifier: Apache-2.0
// What AttentionForward refuses. Private to optimized/.
#pragma once

#include "core/contract.h"
#include "core/status.h"
#include "optimized/attention.h"

namespace attest {

// The sizes that the shapes of q, k and v agree on, or InvalidArgument that names the argument
// whose shape, strides, data or values are wrong.
StatusOr<Dimensions> CheckAttention(const AttentionArgs& args, const AttentionOutputs& outputs);

}  // namespace attest
