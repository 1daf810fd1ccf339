// SPDX-License-Identifier: Apache-2.0
#include "bench/own_kernels.h"

#include <utility>

#include "optimized/attention.h"
#include "optimized/softmax.h"

namespace attest {
namespace {

// The tensor itself, or its numbers rounded to another type, which *storage then holds.
const Tensor& InType(const Tensor& tensor, DType dtype, Tensor* storage) {
  if (tensor.dtype() == dtype) return tensor;
  *storage = Tensor(dtype, tensor.shape());
  for (Index i = 0; i < tensor.size(); ++i) storage->Set(i, tensor.At(i));
  return *storage;
}

class ForwardCall final : public AttentionCall {
 public:
  ForwardCall(const AttentionProblem& problem, const KernelChoice& choice)
      : mode_(choice.mode), out_(choice.storage, problem.q.shape()), execution_(choice.threads) {
    args_.q = InputOf<4>(InType(problem.q, choice.storage, &q_));
    args_.k = InputOf<4>(InType(problem.k, choice.storage, &k_));
    args_.v = InputOf<4>(InType(problem.v, choice.storage, &v_));
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
    Tensor storage;
    const Tensor& out = InType(out_, DType::kF32, &storage);
    return {out.data<float>(), out.data<float>() + out.size()};
  }

 private:
  Mode mode_;
  AttentionAlgorithm algorithm_ = AttentionAlgorithm::kAutomatic;
  Tensor q_, k_, v_;  // empty for f32: the problem's own are read
  Tensor out_;
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
    return RowSoftmax<Fast, float>(Fast(), SoftmaxAlgorithm::kShifted, input, y->view<float, 2>(),
                                   nullptr);
  });
}

}  // namespace attest
