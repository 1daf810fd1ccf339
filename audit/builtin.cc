// SPDX-License-Identifier: Apache-2.0
#include "audit/builtin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/build_info.h"
#include "optimized/attention.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"

namespace attest {
namespace {

template <std::size_t Rank>
Input<Rank> InputOf(GuardedTensor& tensor) {
  std::array<Index, Rank> shape{};
  std::copy_n(tensor.shape().begin(), Rank, shape.begin());
  return {tensor.bytes(), tensor.dtype(), shape, ContiguousStrides(shape)};
}

template <std::size_t Rank>
Output<Rank> OutputOf(GuardedTensor& tensor) {
  std::array<Index, Rank> shape{};
  std::copy_n(tensor.shape().begin(), Rank, shape.begin());
  return {tensor.bytes(), tensor.dtype(), shape, ContiguousStrides(shape)};
}

// One call of a kernel: the contract's numbers, and every tensor in its place.
struct Call {
  AttentionArgs args;
  AttentionOutputs outputs;
  AttentionGradients gradients;
  std::vector<float> default_slopes;
  std::vector<double> default_slopes_f64;

  Call(const Contract& contract, std::map<std::string, GuardedTensor>& inputs,
       std::map<std::string, GuardedTensor>& results) {
    SetNumbers(contract);
    const Dimensions& s = contract.shape;
    const std::array<Index, 4> scores{s.batch, s.q_heads, s.q_len, s.kv_len};
    for (auto& [name, tensor] : inputs) BindInput(name, tensor, scores);
    if (contract.alibi == Alibi::kNone) args.alibi_slopes.reset();
    if (contract.alibi == Alibi::kDefault && !args.alibi_slopes) SetDefaultSlopes(contract);
    for (const std::string& name : contract.outputs) BindOutput(name, results.at(name));
  }

  bool forward() const { return outputs.out || outputs.lse || outputs.weights; }
  bool backward = false;

 private:
  void SetNumbers(const Contract& contract) {
    args.score = contract.score;
    if (!contract.scale.rsqrt_dk) args.scale = contract.scale.value;
    args.softcap = contract.softcap;
    args.dropout_rate = contract.dropout_rate;
    args.local = contract.local;
    args.causal = contract.causal;
    args.window = contract.window;
    args.empty_row = contract.empty_row;
  }

  void SetDefaultSlopes(const Contract& contract) {
    const Index heads = contract.shape.q_heads;
    for (Index h = 0; h < heads; ++h) {
      default_slopes_f64.push_back(std::exp2(DefaultAlibiExponent(h, heads)));
      default_slopes.push_back(static_cast<float>(default_slopes_f64.back()));
    }
    if (contract.wide_dtype() == DType::kF64) {
      args.alibi_slopes = Input<1>(default_slopes_f64.data(), DType::kF64, {heads}, {1});
    } else {
      args.alibi_slopes = Input<1>(default_slopes.data(), DType::kF32, {heads}, {1});
    }
  }

  void BindInput(const std::string& name, GuardedTensor& tensor,
                 const std::array<Index, 4>& scores) {
    if (name == "q") args.q = InputOf<4>(tensor);
    if (name == "k") args.k = InputOf<4>(tensor);
    if (name == "v") args.v = InputOf<4>(tensor);
    if (name == "w") args.w = InputOf<2>(tensor);
    if (name == "w_q") args.w_q = InputOf<2>(tensor);
    if (name == "w_k") args.w_k = InputOf<2>(tensor);
    if (name == "b") args.b = InputOf<1>(tensor);
    if (name == "v_a") args.v_a = InputOf<1>(tensor);
    if (name == "mask") args.mask = BroadcastTo(InputOf<4>(tensor), scores);
    if (name == "bias") args.bias = BroadcastTo(InputOf<4>(tensor), scores);
    if (name == "keep") args.keep = BroadcastTo(InputOf<4>(tensor), scores);
    if (name == "alibi_slopes") args.alibi_slopes = InputOf<1>(tensor);
    if (name == "sinks") args.sinks = InputOf<1>(tensor);
    if (name == "kv_lengths") args.kv_lengths = InputOf<1>(tensor);
    if (name == "q_lengths") args.q_lengths = InputOf<1>(tensor);
    if (name == "q_documents") args.q_documents = InputOf<2>(tensor);
    if (name == "kv_documents") args.kv_documents = InputOf<2>(tensor);
    if (name == "local_center") args.local_center = InputOf<3>(tensor);
    if (name == "grad_out") gradients.grad_out = InputOf<4>(tensor);
    if (name == "grad_lse") gradients.grad_lse = InputOf<3>(tensor);
  }

  void BindOutput(const std::string& name, GuardedTensor& tensor) {
    backward = backward || name.starts_with("grad_");
    if (name == "out") outputs.out = OutputOf<4>(tensor);
    if (name == "lse") outputs.lse = OutputOf<3>(tensor);
    if (name == "weights") outputs.weights = OutputOf<4>(tensor);
    if (name == "grad_q") gradients.grad_q = OutputOf<4>(tensor);
    if (name == "grad_k") gradients.grad_k = OutputOf<4>(tensor);
    if (name == "grad_v") gradients.grad_v = OutputOf<4>(tensor);
    if (name == "grad_bias") gradients.grad_bias = OutputOf<4>(tensor);
    if (name == "grad_sinks") gradients.grad_sinks = OutputOf<1>(tensor);
    if (name == "grad_w") gradients.grad_w = OutputOf<2>(tensor);
    if (name == "grad_w_q") gradients.grad_w_q = OutputOf<2>(tensor);
    if (name == "grad_w_k") gradients.grad_w_k = OutputOf<2>(tensor);
    if (name == "grad_b") gradients.grad_b = OutputOf<1>(tensor);
    if (name == "grad_v_a") gradients.grad_v_a = OutputOf<1>(tensor);
  }
};

class BuiltinSubject : public InProcessSubject {
 public:
  BuiltinSubject(const KernelInfo& kernel, SubjectInfo info, std::shared_ptr<Execution> execution)
      : kernel_(kernel), info_(std::move(info)), execution_(std::move(execution)) {}

  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract& contract, Buffers& inputs, Buffers& results) const override {
    const attest::Call call(contract, inputs, results);
    if (call.backward && !kernel_.gradients) {
      return Unsupported("outputs: the kernel has no gradients");
    }
    StatusOr<ScopedTarget> target = ScopedTarget::Force(info_.target);
    if (!target.ok()) return target.status();
    if (call.forward()) {
      if (Status s = AttentionForward(kernel_.mode, kernel_.algorithm, call.args, call.outputs,
                                      *execution_);
          !s.ok()) {
        return s;
      }
    }
    if (!call.backward) return Status();
    return AttentionBackward(kernel_.mode, call.args, call.gradients, *execution_);
  }

 private:
  KernelInfo kernel_;
  SubjectInfo info_;
  std::shared_ptr<Execution> execution_;  // its workspace is reused from case to case
};

}  // namespace

const std::vector<BuiltinKernel>& BuiltinKernels() {
  static const std::vector<BuiltinKernel> kernels = [] {
    std::vector<BuiltinKernel> list;
    for (const KernelInfo& kernel : Kernels()) {
      list.push_back({std::string(kernel.name), std::string(kernel.description), kernel.specimen});
    }
    return list;
  }();
  return kernels;
}

StatusOr<std::unique_ptr<Subject>> MakeBuiltinSubject(const std::string& name,
                                                      std::shared_ptr<Execution> execution) {
  const std::size_t at = name.find('@');
  const std::string kernel_name = name.substr(0, at);
  const std::optional<KernelInfo> kernel = FindKernel(kernel_name);
  if (!kernel) {
    std::vector<std::string_view> names;
    for (const KernelInfo& known : Kernels()) names.push_back(known.name);
    return NotFound(fmt::format("no kernel '{}' (known: {}; each with @TARGET: {})", kernel_name,
                                fmt::join(names, ", "), fmt::join(RunnableTargets(), ", ")));
  }
  SubjectInfo info;
  info.name = name;
  info.version = kAttestVersion;
  info.description = kernel->description;
  info.target = at == std::string::npos ? ChosenTarget() : std::string_view(name).substr(at + 1);
  info.deterministic = info.batch_invariant = true;
  if (StatusOr<ScopedTarget> target = ScopedTarget::Force(info.target); !target.ok()) {
    return target.status();
  }
  if (!execution) execution = std::make_shared<Execution>();
  return std::unique_ptr<Subject>(
      std::make_unique<BuiltinSubject>(*kernel, info, std::move(execution)));
}

}  // namespace attest
