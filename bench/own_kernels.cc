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

// Gradients of q, k and v from the out and lse of a forward pass, which is not timed.
class BackwardCall final : public AttentionCall {
 public:
  BackwardCall(const AttentionProblem& problem, const KernelChoice& choice)
      : mode_(choice.mode),
        grad_out_(DrawGradient(problem)),
        out_(DType::kF32, problem.q.shape()),
        lse_(DType::kF32, {1, problem.shape.heads, problem.shape.queries}),
        grad_q_(DType::kF32, problem.q.shape()),
        grad_k_(DType::kF32, problem.k.shape()),
        grad_v_(DType::kF32, problem.v.shape()),
        execution_(choice.threads) {
    args_.q = InputOf<4>(problem.q);
    args_.k = InputOf<4>(problem.k);
    args_.v = InputOf<4>(problem.v);
    args_.causal = problem.shape.causal ? Causal::kBottomRight : Causal::kNone;
    gradients_.grad_out = InputOf<4>(grad_out_);
    gradients_.out = InputOf<4>(out_);
    gradients_.lse = InputOf<3>(lse_);
    gradients_.grad_q = OutputOf<4>(grad_q_);
    gradients_.grad_k = OutputOf<4>(grad_k_);
    gradients_.grad_v = OutputOf<4>(grad_v_);
  }

  Status Forward() {
    AttentionOutputs outputs;
    outputs.out = OutputOf<4>(out_);
    outputs.lse = OutputOf<3>(lse_);
    return AttentionForward(mode_, AttentionAlgorithm::kTiled, args_, outputs, execution_);
  }

  Status Run() override { return AttentionBackward(mode_, args_, gradients_, execution_); }

  std::vector<float> Output() const override {
    return {grad_q_.data<float>(), grad_q_.data<float>() + grad_q_.size()};
  }

 private:
  Mode mode_;
  Tensor grad_out_, out_, lse_, grad_q_, grad_k_, grad_v_;
  AttentionArgs args_;
  AttentionGradients gradients_;
  Execution execution_;
};

}  // namespace

StatusOr<std::unique_ptr<AttentionCall>> PrepareOwnKernel(const AttentionProblem& problem,
                                                          const KernelChoice& choice) {
  if (choice.backward) {
    if (choice.storage != DType::kF32) return Unsupported("gradients are timed in f32 only");
    auto call = std::make_unique<BackwardCall>(problem, choice);
    if (Status s = call->Forward(); !s.ok()) return s;
    return std::unique_ptr<AttentionCall>(std::move(call));
  }
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
