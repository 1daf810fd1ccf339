// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/blocked_attention.h"

#include <algorithm>
#include <utility>

#include "bench/peers/row_exp.h"

namespace attest {
namespace {

constexpr Index kBlock = 128;  // queries
constexpr float kLog2E = 1.44269504f;

class BlockedCall final : public AttentionCall {
 public:
  BlockedCall(const AttentionProblem& problem, MultiplyFunction multiply)
      : problem_(problem),
        multiply_(std::move(multiply)),
        scores_(static_cast<std::size_t>(kBlock * ScoreStride(problem.shape.keys))),
        out_(static_cast<std::size_t>(problem.q.size())) {}

  Status Run() override {
    const AttentionShape& shape = problem_.shape;
    for (Index head = 0; head < shape.heads; ++head) {
      for (Index first = 0; first < shape.queries; first += kBlock) {
        const Index rows = std::min(kBlock, shape.queries - first);
        if (Status s = Block(head, first, rows); !s.ok()) return s;
      }
    }
    return Status();
  }

  std::vector<float> Output() const override { return out_; }

 private:
  // Keys that query i sees.
  Index Seen(Index i) const {
    const AttentionShape& shape = problem_.shape;
    return shape.causal ? shape.keys - shape.queries + i + 1 : shape.keys;
  }

  Status Block(Index head, Index first, Index rows) {
    const AttentionShape& shape = problem_.shape;
    const Index dim = shape.dim;
    const float* q = problem_.q.data<float>() + (head * shape.queries + first) * dim;
    const float* k = problem_.k.data<float>() + head * shape.keys * dim;
    const float* v = problem_.v.data<float>() + head * shape.keys * dim;
    float* out = out_.data() + (head * shape.queries + first) * dim;
    const Index keys = Seen(first + rows - 1);
    const Index stride = ScoreStride(keys);
    if (Status s = multiply_({.transpose_b = true,
                              .m = rows,
                              .n = keys,
                              .k = dim,
                              .alpha = kLog2E * ScaleOf(shape),
                              .a = q,
                              .a_stride = dim,
                              .b = k,
                              .b_stride = dim,
                              .c = scores_.data(),
                              .c_stride = stride});
        !s.ok()) {
      return s;
    }
    float sums[kBlock];
    for (Index i = 0; i < rows; ++i) {
      sums[i] = Exp2OfRow(scores_.data() + i * stride, Seen(first + i), keys);
    }
    if (Status s = multiply_({.transpose_b = false,
                              .m = rows,
                              .n = dim,
                              .k = keys,
                              .alpha = 1.0f,
                              .a = scores_.data(),
                              .a_stride = stride,
                              .b = v,
                              .b_stride = dim,
                              .c = out,
                              .c_stride = dim});
        !s.ok()) {
      return s;
    }
    for (Index i = 0; i < rows; ++i) ScaleRow(out + i * dim, dim, 1.0f / sums[i]);
    return Status();
  }

  const AttentionProblem& problem_;
  MultiplyFunction multiply_;
  std::vector<float> scores_;
  std::vector<float> out_;
};

}  // namespace

Peer BlockedAttention(const std::string& name, MultiplyFunction multiply) {
  return {name,
          [multiply = std::move(multiply)](
              const AttentionProblem& problem) -> StatusOr<std::unique_ptr<AttentionCall>> {
            return std::unique_ptr<AttentionCall>(std::make_unique<BlockedCall>(problem, multiply));
          }};
}

}  // namespace attest
