// SPDX-License-Identifier: Apache-2.0
#include "properties/backward_call.h"

#include <limits>
#include <string>

#include "audit/kernel_call.h"

namespace attest {
namespace {

KernelCall CallWithInputs(const Case& problem) {
  KernelCall call(problem.contract);
  for (const auto& [name, tensor] : problem.tensors) {
    call.BindInput(name, tensor.bytes(), tensor.dtype(), tensor.shape());
  }
  return call;
}

}  // namespace

AttentionArgs ArgsOf(const Case& problem) {
  AttentionArgs args = CallWithInputs(problem).args();
  if (problem.Find("alibi_slopes") == nullptr) args.alibi_slopes.reset();  // they lay in the call
  return args;
}

StatusOr<ForwardResult> RunForward(Mode mode, const Case& problem, Execution& execution) {
  ForwardResult result{Tensor(OutputDType(problem, "out"), OutputShape(problem, "out")),
                       Tensor(OutputDType(problem, "lse"), OutputShape(problem, "lse"))};
  AttentionOutputs outputs;
  outputs.out = OutputOf<4>(result.out);
  outputs.lse = OutputOf<3>(result.lse);
  if (Status s =
          AttentionForward(mode, AttentionAlgorithm::kTiled, ArgsOf(problem), outputs, execution);
      !s.ok()) {
    return s;
  }
  return result;
}

StatusOr<TensorMap> RunBackward(Mode mode, const Case& problem, Execution& execution,
                                const ForwardResult* forward) {
  KernelCall call = CallWithInputs(problem);
  if (forward != nullptr) {
    call.gradients().out = InputOf<4>(forward->out);
    call.gradients().lse = InputOf<3>(forward->lse);
  }
  TensorMap outputs;
  for (const std::string& name : problem.contract.outputs) {
    if (!name.starts_with("grad_")) continue;
    Tensor& tensor =
        outputs.emplace(name, Tensor(OutputDType(problem, name), OutputShape(problem, name)))
            .first->second;
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.Set(i, std::numeric_limits<double>::quiet_NaN());
    }
    call.BindOutput(name, tensor.bytes(), tensor.dtype(), tensor.shape());
  }
  if (Status s = AttentionBackward(mode, call.args(), call.gradients(), execution); !s.ok())
    return s;
  return outputs;
}

}  // namespace attest
