// SPDX-License-Identifier: Apache-2.0
// Our kernels as the benchmark calls them: the only place that knows their interfaces.
#pragma once

#include <functional>
#include <memory>

#include "bench/attention_problem.h"
#include "core/dtype.h"
#include "core/status.h"
#include "optimized/mode.h"

namespace attest {

struct KernelChoice {
  Mode mode = Mode::kFast;
  DType storage = DType::kF32;  // of q, k, v and out
  bool backward = false;        // gradients of q, k and v from what the forward pass left
  int threads = 1;
};

// Runs on the SIMD target that dispatch chooses at each run. Unsupported: there is no such kernel;
// the benchmark then has no row for it.
StatusOr<std::unique_ptr<AttentionCall>> PrepareOwnKernel(const AttentionProblem& problem,
                                                          const KernelChoice& choice);

// Softmax of the rows of x [m, n], into a buffer of its own. x must outlive the function.
StatusOr<std::function<Status()>> PrepareOwnSoftmax(const Tensor& x);

}  // namespace attest
