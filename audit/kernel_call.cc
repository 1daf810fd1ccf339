// SPDX-License-Identifier: Apache-2.0
#include "audit/kernel_call.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attest {
namespace {

template <class Data, std::size_t Rank>
TensorRef<Data, Rank> Strided(Data* data, DType dtype, const Shape& shape,
                              const std::vector<Index>& strides) {
  TensorRef<Data, Rank> ref{data, dtype, {}, {}};
  std::copy_n(shape.begin(), Rank, ref.shape.begin());
  std::copy_n(strides.begin(), Rank, ref.strides.begin());
  return ref;
}

std::vector<Index> DenseStrides(const Shape& shape) {
  std::vector<Index> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * shape[axis];
  }
  return strides;
}

template <std::size_t Rank>
Input<Rank> AsInput(const Output<Rank>& output) {
  return {output.data, output.dtype, output.shape, output.strides};
}

}  // namespace

KernelCall::KernelCall(const Contract& contract)
    : scores_{contract.shape.batch, contract.shape.q_heads, contract.shape.q_len,
              contract.shape.kv_len},
      alibi_(contract.alibi) {
  args_.score = contract.score;
  if (!contract.scale.rsqrt_dk) args_.scale = contract.scale.value;
  args_.softcap = contract.softcap;
  args_.dropout_rate = contract.dropout_rate;
  args_.local = contract.local;
  args_.causal = contract.causal;
  args_.window = contract.window;
  args_.empty_row = contract.empty_row;
  if (alibi_ != Alibi::kDefault) return;
  // Given slopes replace these.
  const Index heads = contract.shape.q_heads;
  for (Index h = 0; h < heads; ++h) {
    default_slopes_.push_back(std::exp2(DefaultAlibiExponent(h, heads)));
    default_slopes_f32_.push_back(static_cast<float>(default_slopes_.back()));
  }
  const bool f64 = contract.wide_dtype() == DType::kF64;
  const void* slopes = f64 ? static_cast<const void*>(default_slopes_.data())
                           : static_cast<const void*>(default_slopes_f32_.data());
  args_.alibi_slopes = Strided<const void, 1>(slopes, contract.wide_dtype(), {heads}, {1});
}

void KernelCall::BindInput(const std::string& name, const void* data, DType dtype,
                           const Shape& shape) {
  BindInput(name, data, dtype, shape, DenseStrides(shape));
}

void KernelCall::BindOutput(const std::string& name, void* data, DType dtype, const Shape& shape) {
  BindOutput(name, data, dtype, shape, DenseStrides(shape));
}

void KernelCall::BindInput(const std::string& name, const void* data, DType dtype,
                           const Shape& shape, const std::vector<Index>& strides) {
  const auto bind = [&]<std::size_t Rank>(const char* wanted, std::optional<Input<Rank>>& slot) {
    if (name == wanted) slot = Strided<const void, Rank>(data, dtype, shape, strides);
  };
  const auto bind_scores = [&](const char* wanted, std::optional<Input<4>>& slot) {
    if (name == wanted)
      slot = BroadcastTo(Strided<const void, 4>(data, dtype, shape, strides), scores_);
  };
  if (name == "q") args_.q = Strided<const void, 4>(data, dtype, shape, strides);
  if (name == "k") args_.k = Strided<const void, 4>(data, dtype, shape, strides);
  if (name == "v") args_.v = Strided<const void, 4>(data, dtype, shape, strides);
  bind("w", args_.w);
  bind("w_q", args_.w_q);
  bind("w_k", args_.w_k);
  bind("b", args_.b);
  bind("v_a", args_.v_a);
  bind_scores("mask", args_.mask);
  bind_scores("bias", args_.bias);
  bind_scores("keep", args_.keep);
  if (alibi_ != Alibi::kNone) bind("alibi_slopes", args_.alibi_slopes);
  bind("sinks", args_.sinks);
  bind("kv_lengths", args_.kv_lengths);
  bind("q_lengths", args_.q_lengths);
  bind("q_documents", args_.q_documents);
  bind("kv_documents", args_.kv_documents);
  bind("local_center", args_.local_center);
  bind("grad_out", gradients_.grad_out);
  bind("grad_lse", gradients_.grad_lse);
}

void KernelCall::BindOutput(const std::string& name, void* data, DType dtype, const Shape& shape,
                            const std::vector<Index>& strides) {
  const auto bind = [&]<std::size_t Rank>(const char* wanted, std::optional<Output<Rank>>& slot) {
    if (name == wanted) slot = Strided<void, Rank>(data, dtype, shape, strides);
  };
  backward_ = backward_ || name.starts_with("grad_");
  bind("out", outputs_.out);
  bind("lse", outputs_.lse);
  bind("weights", outputs_.weights);
  bind("grad_q", gradients_.grad_q);
  bind("grad_k", gradients_.grad_k);
  bind("grad_v", gradients_.grad_v);
  bind("grad_bias", gradients_.grad_bias);
  bind("grad_sinks", gradients_.grad_sinks);
  bind("grad_w", gradients_.grad_w);
  bind("grad_w_q", gradients_.grad_w_q);
  bind("grad_w_k", gradients_.grad_w_k);
  bind("grad_b", gradients_.grad_b);
  bind("grad_v_a", gradients_.grad_v_a);
}

Status KernelCall::Run(Mode mode, AttentionAlgorithm algorithm, Execution& execution) const {
  if (outputs_.out || outputs_.lse || outputs_.weights) {
    if (Status s = AttentionForward(mode, algorithm, args_, outputs_, execution); !s.ok()) return s;
  }
  if (!backward_) return Status();
  AttentionGradients gradients = gradients_;
  if (outputs_.out && outputs_.lse) {
    gradients.out = AsInput(*outputs_.out);
    gradients.lse = AsInput(*outputs_.lse);
  }
  return AttentionBackward(mode, args_, gradients, execution);
}

StatusOr<TensorMap> RunKernel(const Case& problem, Mode mode, AttentionAlgorithm algorithm,
                              Execution& execution) {
  KernelCall call(problem.contract);
  for (const auto& [name, tensor] : problem.tensors) {
    call.BindInput(name, tensor.bytes(), tensor.dtype(), tensor.shape());
  }
  TensorMap results;
  for (const std::string& name : problem.contract.outputs) {
    Tensor& tensor =
        results.emplace(name, Tensor(OutputDType(problem, name), OutputShape(problem, name)))
            .first->second;
    call.BindOutput(name, tensor.bytes(), tensor.dtype(), tensor.shape());
  }
  if (Status s = call.Run(mode, algorithm, execution); !s.ok()) return s;
  return results;
}

}  // namespace attest
