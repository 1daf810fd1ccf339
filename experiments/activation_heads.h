// SPDX-License-Identifier: Apache-2.0
// The shipped activations of real models, one head of one sentence at a time.
#pragma once

#include <vector>

#include "core/case.h"
#include "core/status.h"

namespace attest {

struct ActivationHead {
  int layer = 0;
  Index head = 0;
  Index tokens = 0;
  // q, k, v [1, 1, tokens, d] in f32 and `out` alone. The padding of the sentence is cut off: its
  // bias of -1e9 leaves keys a weight below e^-999999900, and its queries are nobody's.
  Case problem;
  Tensor recorded;  // `out` as TensorFlow.js computed it, padding cut off likewise
};

// Every head of every sentence of cases/use_lite, by layer, tokens and head. An error where the
// files are not there or not as their README says.
StatusOr<std::vector<ActivationHead>> ReadActivationHeads();

}  // namespace attest
