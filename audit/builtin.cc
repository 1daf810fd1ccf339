// SPDX-License-Identifier: Apache-2.0
#include "audit/builtin.h"

#include <fmt/format.h>

#include <utility>

#include "core/build_info.h"
#include "optimized/attention.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"

namespace attest {
namespace {

// What the contract asks for that the kernels do not offer, or ok.
Status CheckSupported(const Contract& contract) {
  if (contract.dtype != DType::kF32 || contract.out_dtype != DType::kF32) {
    return Unsupported("dtype: the built-in kernels take f32 only");
  }
  if (contract.score != ScoreKind::kDot) return Unsupported("score.kind: only 'dot'");
  if (contract.softcap != 0.0) return Unsupported("score.softcap: not supported");
  if (contract.window.left >= 0 || contract.window.right >= 0) {
    return Unsupported("mask.window: not supported");
  }
  if (contract.alibi == Alibi::kDefault || contract.alibi == Alibi::kTensor) {
    return Unsupported("mask.alibi: not supported");
  }
  if (contract.local) return Unsupported("local: not supported");
  return Status();
}

class BuiltinSubject : public InProcessSubject {
 public:
  BuiltinSubject(AttentionAlgorithm algorithm, SubjectInfo info)
      : algorithm_(algorithm), info_(std::move(info)) {}

  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract& contract, Buffers& inputs, Buffers& outputs) const override {
    if (Status s = CheckSupported(contract); !s.ok()) return s;
    const Dimensions& shape = contract.shape;
    const std::array<Index, 4> scores{shape.batch, shape.q_heads, shape.q_len, shape.kv_len};
    AttentionArgs args;
    args.causal = contract.causal;
    args.empty_row = contract.empty_row;
    if (!contract.scale.rsqrt_dk) args.scale = contract.scale.value;
    for (auto& [name, buffer] : inputs) {
      if (name == "q") {
        args.q = ViewOf<const float, 4>(buffer);
      } else if (name == "k") {
        args.k = ViewOf<const float, 4>(buffer);
      } else if (name == "v") {
        args.v = ViewOf<const float, 4>(buffer);
      } else if (name == "mask") {
        args.mask = BroadcastTo(ViewOf<const std::uint8_t, 4>(buffer), scores);
      } else if (name == "bias") {
        args.bias = BroadcastTo(ViewOf<const float, 4>(buffer), scores);
      } else if (name == "kv_lengths") {
        args.kv_lengths = buffer.data<const std::int32_t>();
      } else if (name == "q_lengths") {
        args.q_lengths = buffer.data<const std::int32_t>();
      } else {
        return Unsupported("tensor '" + name + "': not supported");
      }
    }
    AttentionOutputs results;
    for (auto& [name, buffer] : outputs) {
      if (name == "out") {
        results.out = ViewOf<float, 4>(buffer);
      } else if (name == "lse") {
        results.lse = ViewOf<float, 3>(buffer);
      } else if (name == "weights") {
        results.weights = ViewOf<float, 4>(buffer);
      } else {
        return Unsupported("output '" + name + "': not supported");
      }
    }
    StatusOr<ScopedTarget> target = ScopedTarget::Force(info_.target);
    if (!target.ok()) return target.status();
    return AttentionForward(algorithm_, args, results);
  }

 private:
  AttentionAlgorithm algorithm_;
  SubjectInfo info_;
};

}  // namespace

const std::vector<BuiltinKernel>& BuiltinKernels() {
  static const std::vector<BuiltinKernel> kernels = [] {
    std::vector<BuiltinKernel> list;
    for (const KernelInfo& kernel : Kernels()) {
      list.push_back({std::string(kernel.name), std::string(kernel.description)});
    }
    return list;
  }();
  return kernels;
}

StatusOr<std::unique_ptr<Subject>> MakeBuiltinSubject(const std::string& name) {
  const std::size_t at = name.find('@');
  const std::string kernel_name = name.substr(0, at);
  std::vector<std::string_view> names;
  for (const KernelInfo& kernel : Kernels()) {
    names.push_back(kernel.name);
    if (kernel.name != kernel_name) continue;
    SubjectInfo info;
    info.name = name;
    info.version = kAttestVersion;
    info.description = kernel.description;
    info.target = at == std::string::npos ? ChosenTarget() : std::string_view(name).substr(at + 1);
    info.deterministic = info.batch_invariant = true;
    if (StatusOr<ScopedTarget> target = ScopedTarget::Force(info.target); !target.ok()) {
      return target.status();
    }
    return std::unique_ptr<Subject>(std::make_unique<BuiltinSubject>(kernel.algorithm, info));
  }
  return NotFound(fmt::format("no kernel '{}' (known: {}; each with @TARGET: {})", kernel_name,
                              fmt::join(names, ", "), fmt::join(RunnableTargets(), ", ")));
}

}  // namespace attest
