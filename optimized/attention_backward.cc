// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "optimized/attention.h"
#include "optimized/backward_check.h"
#include "optimized/backward_task.h"

namespace attest {
namespace {

// Everything in the accumulation type T.
template <class T>
void Run(Mode mode, const AttentionArgs& args, const AttentionGradients& gradients,
         Execution& execution) {
  BackwardTask<T> task;
  task.mode = mode;
  task.args = args;
  task.gradients = gradients;
  task.n = SizesOf<T>(args, gradients);
  task.threads = execution.pool.threads();
  task.wants_queries =
      gradients.grad_q || gradients.grad_w || gradients.grad_w_q || gradients.grad_b;
  task.wants_keys = gradients.grad_k || gradients.grad_w_k;
  if (gradients.grad_bias) {
    for (std::size_t axis = 0; axis < 4; ++axis) {
      task.bias_shape[axis] = static_cast<std::size_t>(gradients.grad_bias->shape[axis]);
    }
  }
  Carver size;
  CarveTask(size, &task);
  Carver memory(execution.workspace.Reserve(size.used()));
  CarveTask(memory, &task);

  LoadParameters(&task);
  if (task.bias_sums != nullptr) {
    const auto& shape = task.bias_shape;
    std::fill(task.bias_sums, task.bias_sums + shape[0] * shape[1] * shape[2] * shape[3], T{0});
  }
  const auto run = [&](BackwardStep step, std::size_t first, std::size_t count) {
    execution.pool.Run(count, [&](std::size_t index, std::size_t thread) {
      RunBackwardStep(task, step, first + index, thread);
    });
  };
  // A few key/value heads at a time, whose staged tensors stay in the cache from step to step.
  const std::size_t stores = task.n.stores();
  const bool by_store = task.n.chains == stores;
  const std::size_t wave = by_store ? task.threads : stores;
  for (std::size_t store = 0; store < stores; store += wave) {
    const std::size_t count = std::min(wave, stores - store);
    for (const BackwardStep step : {BackwardStep::kKeys, BackwardStep::kRows, BackwardStep::kBlocks,
                                    BackwardStep::kQueries}) {
      const std::size_t all = IndicesOf(task.n, gradients, step);
      run(step, all / stores * store, by_store ? all / stores * count : all);
    }
  }
  for (const BackwardStep step :
       {BackwardStep::kParameters, BackwardStep::kRest, BackwardStep::kBias}) {
    run(step, 0, IndicesOf(task.n, gradients, step));
  }
}

}  // namespace

Status AttentionBackward(Mode mode, const AttentionArgs& args, const AttentionGradients& gradients,
                         Execution& execution) {
  if (Status s = CheckBackward(args, gradients); !s.ok()) return s;
  if (args.q.dtype == DType::kF64 || mode == Mode::kAccurate) {
    Run<double>(mode, args, gradients, execution);
  } else {
    Run<float>(mode, args, gradients, execution);
  }
  return Status();
}

template <class ModePolicy>
Status AttentionBackward(ModePolicy, const AttentionArgs& args, const AttentionGradients& gradients,
                         Execution& execution) {
  return AttentionBackward(kModeOf<ModePolicy>, args, gradients, execution);
}

template Status AttentionBackward(Fast, const AttentionArgs&, const AttentionGradients&,
                                  Execution&);
template Status AttentionBackward(Reproducible, const AttentionArgs&, const AttentionGradients&,
                                  Execution&);
template Status AttentionBackward(Accurate, const AttentionArgs&, const AttentionGradients&,
                                  Execution&);

}  // namespace attest
