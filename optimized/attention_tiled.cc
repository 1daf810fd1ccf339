// SPDX-License-Identifier: Apache-2.0
// Attention over blocks of keys with an online softmax; no row of scores is ever held.
//
// Computes: with m the maximum of the scores so far, l = sum exp(s_j - m) and
//   o = sum exp(s_j - m) v_j over the allowed keys so far, both multiplied by exp(m_old - m_new)
//   when a block raises m; at the end out = o / l, lse = m + ln l.
// Shapes: one head, HeadTask of optimized/attention_head.h; scratch: kQueryBlock rows of q, of o
//   and of 64 sums, and with weights one maximum per row and block.
// Rounding points: those of ScoreBlock and ValueBlock (optimized/attention-inl.h), s + bias, s - m,
//   exp, each addition of l (tree of optimized/softmax_block-inl.h), exp(m_old - m_new) and its
//   products with l and o, o / l. Weights: exp(s - m of their block) times (exp(that m - last m) /
//   l).
// Bound: docs/bounds.md, profile f32; that of optimized/attention_materialised.cc with
//   H + 2 (R' + 3 B) u in place of H, where H is that of the shifted softmax.
// Measured: Attention.StaysWithinItsBoundForEverySize of properties/optimized_attention_test.cc
//   prints the largest error/bound: out 0.029, lse 0.118, weights 0.164.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "optimized/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention_tiled.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/attention-inl.h"
#include "optimized/softmax_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// One row of queries in flight. The pointers lead into the task's scratch.
struct TiledRow {
  RunningSoftmax softmax;
  std::size_t allowed_keys = 0;
  Index i = 0;
  Index limit = 0;
  const float* q = nullptr;    // scaled
  float* out = nullptr;        // sum of exp(s - m) v
  float* block_max = nullptr;  // m after each block, kept for the weights
};

void StartRow(const HeadTask& task, Index i, std::size_t slot, TiledRow& row) {
  const auto blocks = DivideUp(static_cast<std::size_t>(task.kv_len), kBlock);
  row = TiledRow();
  row.i = i;
  row.limit = KeyLimit(task, i);
  float* q = task.scaled_q + slot * static_cast<std::size_t>(task.qk_dim);
  ScaleQuery(task, i, q);
  row.q = q;
  row.out = task.accumulators + slot * task.value_stride;
  std::memset(row.out, 0, task.value_stride * sizeof(float));
  row.block_max = task.block_max + slot * blocks;
}

// Takes block b of the keys into `row`.
template <class D>
void AddBlock(D d, const HeadTask& task, std::size_t b, TiledRow& row) {
  const auto dim = static_cast<std::size_t>(task.qk_dim);
  const auto first = static_cast<Index>(b * kBlock);
  HWY_ALIGN float scores[kBlock];
  std::uint8_t allowed[kBlock];
  ScoreBlock(d, row.q, task.keys + b * kBlock * dim, dim, task.post_scale, scores);
  row.allowed_keys += MaskBlock(task, row.i, first, scores, allowed);
  const float factor = UpdateRunning(d, scores, scores, row.softmax);
  if (factor != 1.0f) ScaleInPlace(d, factor, task.value_stride, row.out);
  ValueBlock(d, scores, allowed, task.values + b * kBlock * task.value_stride, task.value_stride,
             row.out);
  if (task.weights.data == nullptr) return;
  row.block_max[b] = row.softmax.max;
  const Index end = std::min(first + static_cast<Index>(kBlock), task.kv_len);
  for (Index j = first; j < end; ++j) task.weights(row.i, j) = scores[j - first];
}

// Brings the weights of all blocks to the last maximum and divides by the sum. Keys that are not
// allowed get 0 here, whatever the row's sum is.
template <class D>
void FinishWeights(D d, const HeadTask& task, float sum, const TiledRow& row) {
  const auto block = static_cast<Index>(kBlock);
  for (Index first = 0; first < task.kv_len; first += block) {
    const Index end = std::min(first + block, task.kv_len);
    if (first >= row.limit) {
      for (Index j = first; j < end; ++j) task.weights(row.i, j) = 0.0f;
      continue;
    }
    const float block_max = row.block_max[first / block];
    const float factor = ExpOfScalar(d, block_max - Shift(row.softmax.max)) / sum;
    for (Index j = first; j < end; ++j) {
      float& weight = task.weights(row.i, j);
      weight = KeyAllowed(task, row.i, row.limit, j) ? weight * factor : 0.0f;
    }
  }
}

template <class D>
void FinishRow(D d, const HeadTask& task, TiledRow& row) {
  if (row.allowed_keys == 0) {
    WriteEmptyRow(task, row.i);
    return;
  }
  // Allowed scores that are all -inf leave sum = 0: out = 0/0 and the weights 0 * (0/0) are NaN.
  const float sum = SumOfBlock(row.softmax.sums);
  for (Index c = 0; c < task.v_dim; ++c) task.out(row.i, c) = row.out[c] / sum;
  if (task.lse.data != nullptr) {
    task.lse(row.i) = sum == 0.0f ? std::numeric_limits<float>::quiet_NaN()
                                  : LogSumExp(Shift(row.softmax.max), sum);
  }
  if (task.weights.data != nullptr) FinishWeights(d, task, sum, row);
}

void TiledRows(const HeadTask& task) {
  const hn::CappedTag<float, kMaxLanes> d;
  TiledRow rows[kQueryBlock];
  constexpr auto kRows = static_cast<Index>(kQueryBlock);
  for (Index first = 0; first < task.q_len; first += kRows) {
    const auto count = static_cast<std::size_t>(std::min(kRows, task.q_len - first));
    Index limit = 0;
    for (std::size_t r = 0; r < count; ++r) {
      StartRow(task, first + static_cast<Index>(r), r, rows[r]);
      limit = std::max(limit, rows[r].limit);
    }
    const std::size_t blocks = DivideUp(static_cast<std::size_t>(limit), kBlock);
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t r = 0; r < count; ++r) {
        if (static_cast<Index>(b * kBlock) < rows[r].limit) AddBlock(d, task, b, rows[r]);
      }
    }
    for (std::size_t r = 0; r < count; ++r) FinishRow(d, task, rows[r]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(TiledRows);

void TiledHead(const HeadTask& task) { HWY_DYNAMIC_DISPATCH(TiledRows)(task); }

}  // namespace attest
#endif  // HWY_ONCE
