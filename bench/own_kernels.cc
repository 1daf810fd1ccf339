// SPDX-License-Identifier: Apache-2.0
#include "bench/own_kernels.h"

#include <utility>

#include "optimized/attention.h"
#include "optimized/softmax.h"

namespace attest {
namespace {

// The same numbers, rounded to another type.
Tensor Converted(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor converted(dtype, tensor.shape());
  for (Index i = 0; i < tensor.size(); ++i) converted.Set(i, tensor.At(i));
  return converted;
}

class ForwardCall final : public AttentionCall {
 public:
  ForwardCall(const AttentionProblem& problem, const KernelChoice& choice)
      : mode_(choice.mode),
        q_(Converted(problem.q, choice.storage)),
        k_(Converted(problem.k, choice.storage)),
        v_(Converted(problem.v, choice.storage)),
        out_(choice.storage, problem.q.shape()),
        execution_(choice.threads) {
    args_.q = InputOf<4>(q_);
    args_.k = InputOf<4>(k_);
    args_.v = InputOf<4>(v_);
    args_.causal = problem.shape.causal ? Causal::kBottomRight : Causal::kNone;
    outputs_.out = OutputOf<4>(out_);
  }

  // Unsupported where no kernel takes the problem.
  Status Choose() {
    for (const AttentionAlgorithm algorithm :
         {AttentionAlgorithm::kAutomatic, AttentionAlgorithm::kTiled}) {
      algorithm_ = algorithm;
      const Status status = Run();
      if (status.code() != StatusCode::kUnsupported) return status;
    }
    return Unsupported("no kernel takes this problem");
  }

  Status Run() override { return AttentionForward(mode_, algorithm_, args_, outputs_, execution_); }

  std::vector<float> Output() const override {
    const Tensor out = Converted(out_, DType::kF32);
    return {out.data<float>(), out.data<float>() + out.size()};
  }

 private:
  Mode mode_;
  AttentionAlgorithm algorithm_ = AttentionAlgorithm::kAutomatic;
  Tensor q_, k_, v_, out_;
  AttentionArgs args_;
  AttentionOutputs outputs_;
  Execution execution_;
};

}  // namespace

StatusOr<std::unique_ptr<AttentionCall>> PrepareOwnKernel(const AttentionProblem& problem,
                                                          const KernelChoice& choice) {
  if (choice.backward) return Unsupported("no kernel computes gradients yet");
  auto call = std::make_unique<ForwardCall>(problem, choice);
  if (Status s = call->Choose(); !s.ok()) return s;
  return std::unique_ptr<AttentionCall>(std::move(call));
}

StatusOr<std::function<Status()>> PrepareOwnSoftmax(const Tensor& x) {
  const auto y = std::make_shared<Tensor>(DType::kF32, x.shape());
  return std::function<Status()>([y, input = x.view<float, 2>()] {
    return RowSoftmax(SoftmaxAlgorithm::kShifted, input, y->view<float, 2>(), nullptr);
  });
}

}  // namespace attest
