// SPDX-License-Identifier: Apache-2.0
#include "bench/own_kernels.h"

#include "optimized/attention.h"
#include "optimized/softmax.h"

namespace attest {
namespace {

class TiledForward final : public AttentionCall {
 public:
  explicit TiledForward(const AttentionProblem& problem) : out_(DType::kF32, problem.q.shape()) {
    args_.q = problem.q.view<float, 4>();
    args_.k = problem.k.view<float, 4>();
    args_.v = problem.v.view<float, 4>();
    args_.causal = problem.shape.causal ? Causal::kBottomRight : Causal::kNone;
    outputs_.out = out_.view<float, 4>();
  }

  Status Run() override { return AttentionForward(AttentionAlgorithm::kTiled, args_, outputs_); }

  std::vector<float> Output() const override {
    return {out_.data<float>(), out_.data<float>() + out_.size()};
  }

 private:
  Tensor out_;
  AttentionArgs args_;
  AttentionOutputs outputs_;
};

}  // namespace

StatusOr<std::unique_ptr<AttentionCall>> PrepareOwnKernel(const AttentionProblem& problem,
                                                          const KernelChoice& choice) {
  if (choice.mode != Mode::kFast) return Unsupported("no kernel has modes yet");
  if (choice.storage != DType::kF32) return Unsupported("every kernel stores f32");
  if (choice.backward) return Unsupported("no kernel computes gradients yet");
  if (choice.threads != 1) return Unsupported("every kernel runs on one thread");
  return std::unique_ptr<AttentionCall>(std::make_unique<TiledForward>(problem));
}

StatusOr<std::function<Status()>> PrepareOwnSoftmax(const Tensor& x) {
  const auto y = std::make_shared<Tensor>(DType::kF32, x.shape());
  return std::function<Status()>([y, input = x.view<float, 2>()] {
    return RowSoftmax(SoftmaxAlgorithm::kShifted, input, y->view<float, 2>(), nullptr);
  });
}

}  // namespace attest
