// SPDX-License-Identifier: Apache-2.0
// Attention that holds a whole row of scores: scores, softmax, times v.
//
// Computes: p = softmax(scale q k^T + bias) over the allowed keys, out = p v, lse.
// Shapes: one head, HeadTask of optimized/attention_head.h; scratch: one row of scores.
// Rounding points: those of ScoreBlock (optimized/attention-inl.h), s + bias, those of the softmax
//   (optimized/softmax_block-inl.h), each weight p to float, those of ValueBlock.
// Bound: docs/bounds.md, profile f32. u = 2^-24, B = ceil(Tk/64), g_n = n u / (1 - n u), R and H of
//   optimized/softmax_block-inl.h (shifted or online), and A the largest error of an allowed score,
//     A_j = g_(Dk+3) (|scale| sum |q_c k_jc| + |bias_j|) + Dk 2^-149 (1 + max |k_jc|), R' = R + 2A:
//     |p_j - exact| <= p_j (e^(2A + H) - 1) + 2^-147,  |lse - exact| <= A + H + u (|exact| + A +
//     H), |out_c - exact| <= (e^(2A + H + (64 + B) u) - 1) sum p_j |v_jc|
//                        + (Tk + 1) 2^-147 (max |v_jc| + 1/4),  H with R' in place of R.
// Measured: Attention.StaysWithinItsBoundForEverySize of properties/optimized_attention_test.cc
//   prints the largest error/bound: out 0.033, lse 0.198, weights 0.164 (shifted), out 0.031,
//   lse 0.122, weights 0.164 (online).
#include <cstdint>
#include <cstring>
#include <limits>

#include "optimized/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention_materialised.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/attention-inl.h"
#include "optimized/softmax_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// Scores, masked, of row i against the first `blocks` blocks of keys. Returns how many are allowed.
template <class D>
std::size_t ScoreRow(D d, const HeadTask& task, Index i, std::size_t blocks) {
  const auto dim = static_cast<std::size_t>(task.qk_dim);
  std::size_t count = 0;
  ScaleQuery(task, i, task.scaled_q);
  for (std::size_t b = 0; b < blocks; ++b) {
    float* scores = task.scores + b * kBlock;
    ScoreBlock(d, task.scaled_q, task.keys + b * kBlock * dim, dim, task.post_scale, scores);
    count += MaskBlock(task, i, static_cast<Index>(b * kBlock), scores, task.allowed + b * kBlock);
  }
  return count;
}

void MaterialisedRows(const HeadTask& task, SoftmaxAlgorithm softmax) {
  const hn::CappedTag<float, kMaxLanes> d;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (Index i = 0; i < task.q_len; ++i) {
    const std::size_t blocks = DivideUp(static_cast<std::size_t>(KeyLimit(task, i)), kBlock);
    if (ScoreRow(d, task, i, blocks) == 0) {
      WriteEmptyRow(task, i);
      continue;
    }

    float* p = task.scores;
    const std::size_t n = blocks * kBlock;
    float lse = softmax == SoftmaxAlgorithm::kOnline ? SoftmaxOnline(d, p, n, p)
                                                     : SoftmaxShifted(d, p, n, p);
    if (lse == -kInfinity) {  // allowed scores, all of them -inf
      lse = kNan;
      for (std::size_t j = 0; j < n; ++j) p[j] = kNan;
    }

    float* out = task.accumulators;
    std::memset(out, 0, task.value_stride * sizeof(float));
    for (std::size_t b = 0; b < blocks; ++b) {
      ValueBlock(d, p + b * kBlock, task.allowed + b * kBlock,
                 task.values + b * kBlock * task.value_stride, task.value_stride, out);
    }
    for (Index c = 0; c < task.v_dim; ++c) task.out(i, c) = out[c];
    if (task.lse.data != nullptr) task.lse(i) = lse;
    if (task.weights.data == nullptr) continue;
    for (Index j = 0; j < task.kv_len; ++j) {
      const bool allowed = j < static_cast<Index>(n) && task.allowed[j] != 0;
      task.weights(i, j) = allowed ? p[j] : 0.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(MaterialisedRows);

void MaterialisedHead(const HeadTask& task, SoftmaxAlgorithm softmax) {
  HWY_DYNAMIC_DISPATCH(MaterialisedRows)(task, softmax);
}

}  // namespace attest
#endif  // HWY_ONCE
