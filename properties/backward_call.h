// SPDX-License-Identifier: Apache-2.0
// AttentionForward and AttentionBackward on the tensors of a case.
#pragma once

#include "core/case.h"
#include "core/status.h"
#include "core/tensor.h"
#include "optimized/attention.h"

namespace attest {

// Arguments that point into the tensors of `problem`, which must outlive them. Default ALiBi slopes
// are not among them: the case has its own.
AttentionArgs ArgsOf(const Case& problem);

// What the forward pass leaves for the backward pass, in the types that a contract gives it.
struct ForwardResult {
  Tensor out, lse;
};
StatusOr<ForwardResult> RunForward(Mode mode, const Case& problem, Execution& execution);

// The gradients that the contract asks for, in the shapes and types of their tensors. Every element
// is NaN before the call.
StatusOr<TensorMap> RunBackward(Mode mode, const Case& problem, Execution& execution,
                                const ForwardResult* forward = nullptr);

}  // namespace attest
