// SPDX-License-Identifier: Apache-2.0
// The attention kernels that go row by row over the keys. Private to optimized/: the arguments must
// have passed CheckAttention, with masks and biases broadcast to the shape of the scores.
//
// ForwardDecode: few queries against many keys. The keys are cut into `parts` parts for the
// threads;
//   0 chooses. Reproducible: the bits of a row depend neither on that number nor on the threads.
// ForwardMaterialised: whole rows of scores, the softmax of the algorithm, then times v.
// Both write every element of the outputs; Unsupported where the algorithm is another one.
#pragma once

#include "core/status.h"
#include "optimized/attention.h"
#include "optimized/execution.h"
#include "optimized/mode.h"

namespace attest {

template <class Policy>
Status ForwardDecode(Policy policy, const AttentionArgs& args, const AttentionOutputs& outputs,
                     Execution& execution, Index parts = 0);

template <class Policy>
Status ForwardMaterialised(Policy policy, AttentionAlgorithm algorithm, const AttentionArgs& args,
                           const AttentionOutputs& outputs, Execution& execution);

}  // namespace attest
