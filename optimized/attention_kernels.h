// SPDX-License-Identifier: Apache-2.0
// Entry points of the attention kernels, one head at a time. Private to optimized/.
#pragma once

#include "optimized/attention_head.h"
#include "optimized/softmax.h"

namespace attest {

// Fills out, lse and weights of `task` with a whole row of scores at a time.
void MaterialisedHead(const HeadTask& task, SoftmaxAlgorithm softmax);

// The same block of keys by block of keys, for kQueryBlock rows at a time.
void TiledHead(const HeadTask& task);

}  // namespace attest
