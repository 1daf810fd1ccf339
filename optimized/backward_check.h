// SPDX-License-Identifier: Apache-2.0
// What AttentionBackward refuses. Private to optimized/.
#pragma once

#include "core/status.h"
#include "optimized/attention.h"

namespace attest {

// InvalidArgument that names the argument whose shape, strides, type, data or value is wrong.
Status CheckBackward(const AttentionArgs& args, const AttentionGradients& gradients);

}  // namespace attest
