// SPDX-License-Identifier: Apache-2.0
#include "audit/builtin.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "audit/kernel_call.h"
#include "core/build_info.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"

namespace attest {
namespace {

class BuiltinSubject : public InProcessSubject {
 public:
  BuiltinSubject(const KernelInfo& kernel, SubjectInfo info, std::shared_ptr<Execution> execution)
      : kernel_(kernel), info_(std::move(info)), execution_(std::move(execution)) {}

  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract& contract, Buffers& inputs, Buffers& results,
              int threads) const override {
    KernelCall call(contract);
    for (auto& [name, tensor] : inputs) {
      call.BindInput(name, tensor.bytes(), tensor.dtype(), tensor.shape(), tensor.strides());
    }
    for (const std::string& name : contract.outputs) {
      GuardedTensor& tensor = results.at(name);
      call.BindOutput(name, tensor.bytes(), tensor.dtype(), tensor.shape(), tensor.strides());
    }
    if (call.backward() && !kernel_.gradients) {
      return Unsupported("outputs: the kernel has no gradients");
    }
    StatusOr<ScopedTarget> target = ScopedTarget::Force(info_.target);
    if (!target.ok()) return target.status();
    return call.Run(kernel_.mode, kernel_.algorithm, ExecutionOf(threads));
  }

 private:
  // A given execution is used whatever the number of threads.
  Execution& ExecutionOf(int threads) const {
    if (execution_) return *execution_;
    std::unique_ptr<Execution>& own = own_[threads];
    if (!own) own = std::make_unique<Execution>(threads);
    return *own;
  }

  KernelInfo kernel_;
  SubjectInfo info_;
  std::shared_ptr<Execution> execution_;
  // By number of threads; their workspaces are reused from case to case.
  mutable std::map<int, std::unique_ptr<Execution>> own_;
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
  info.deterministic = info.batch_invariant = info.strided = true;
  if (StatusOr<ScopedTarget> target = ScopedTarget::Force(info.target); !target.ok()) {
    return target.status();
  }
  info.threaded = execution == nullptr;
  return std::unique_ptr<Subject>(
      std::make_unique<BuiltinSubject>(*kernel, info, std::move(execution)));
}

}  // namespace attest
