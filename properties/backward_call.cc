// SPDX-License-Identifier: Apache-2.0
#include "properties/backward_call.h"

#include <array>
#include <limits>
#include <optional>
#include <string>

namespace attest {
namespace {

template <std::size_t Rank>
std::optional<Input<Rank>> InputIn(const Case& problem, const char* name) {
  const Tensor* const tensor = problem.Find(name);
  if (tensor == nullptr) return std::nullopt;
  return InputOf<Rank>(*tensor);
}

template <std::size_t Rank>
void Bind(TensorMap& outputs, const char* name, std::optional<Output<Rank>>* gradient) {
  const auto found = outputs.find(name);
  if (found != outputs.end()) *gradient = OutputOf<Rank>(found->second);
}

}  // namespace

AttentionArgs ArgsOf(const Case& problem) {
  const Contract& contract = problem.contract;
  const Dimensions& s = contract.shape;
  AttentionArgs args;
  args.q = *InputIn<4>(problem, "q");
  args.k = *InputIn<4>(problem, "k");
  args.v = *InputIn<4>(problem, "v");
  args.score = contract.score;
  if (!contract.scale.rsqrt_dk) args.scale = contract.scale.value;
  args.softcap = contract.softcap;
  args.w = InputIn<2>(problem, "w");
  args.w_q = InputIn<2>(problem, "w_q");
  args.w_k = InputIn<2>(problem, "w_k");
  args.b = InputIn<1>(problem, "b");
  args.v_a = InputIn<1>(problem, "v_a");
  args.mask = InputIn<4>(problem, "mask");
  args.bias = InputIn<4>(problem, "bias");
  args.keep = InputIn<4>(problem, "keep");
  for (std::optional<Input<4>>* tensor : {&args.mask, &args.bias, &args.keep}) {
    if (*tensor) *tensor = BroadcastTo(**tensor, {s.batch, s.q_heads, s.q_len, s.kv_len});
  }
  if (contract.alibi != Alibi::kNone) args.alibi_slopes = InputIn<1>(problem, "alibi_slopes");
  args.sinks = InputIn<1>(problem, "sinks");
  args.dropout_rate = contract.dropout_rate;
  args.kv_lengths = InputIn<1>(problem, "kv_lengths");
  args.q_lengths = InputIn<1>(problem, "q_lengths");
  args.q_documents = InputIn<2>(problem, "q_documents");
  args.kv_documents = InputIn<2>(problem, "kv_documents");
  args.local_center = InputIn<3>(problem, "local_center");
  args.local = contract.local;
  args.causal = contract.causal;
  args.window = contract.window;
  args.empty_row = contract.empty_row;
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
  AttentionGradients gradients;
  gradients.grad_out = InputIn<4>(problem, "grad_out");
  gradients.grad_lse = InputIn<3>(problem, "grad_lse");
  if (forward != nullptr) {
    gradients.out = InputOf<4>(forward->out);
    gradients.lse = InputOf<3>(forward->lse);
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
  }
  Bind(outputs, "grad_q", &gradients.grad_q);
  Bind(outputs, "grad_k", &gradients.grad_k);
  Bind(outputs, "grad_v", &gradients.grad_v);
  Bind(outputs, "grad_bias", &gradients.grad_bias);
  Bind(outputs, "grad_sinks", &gradients.grad_sinks);
  Bind(outputs, "grad_w", &gradients.grad_w);
  Bind(outputs, "grad_w_q", &gradients.grad_w_q);
  Bind(outputs, "grad_w_k", &gradients.grad_w_k);
  Bind(outputs, "grad_b", &gradients.grad_b);
  Bind(outputs, "grad_v_a", &gradients.grad_v_a);
  if (Status s = AttentionBackward(mode, ArgsOf(problem), gradients, execution); !s.ok()) return s;
  return outputs;
}

}  // namespace attest
