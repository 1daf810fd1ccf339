// SPDX-License-Identifier: Apache-2.0
// The last steps of the backward kernel: what is summed over blocks, heads and batches is written.
//
// Computes: dQ' = the sum of its parts, dQ = scale dQ' (general: times W^T, additive: times W_q);
//   general: dW = scale Q^T dQ'; additive: dW_q = scale dQ'^T Q, dW_k = scale dK'^T K, db = scale
//   sum dQ', dv_a = scale sum dR h; sinks: the sum over rows of 2^(sink - m) (grad_lse - delta) /
//   l.
// Shapes: as in optimized/backward_task.h.
// Rounding points: parts and blocks in order; products in blocks of 192 rows as in
//   backward_block-inl.h; one product with the scale; one rounding to the output's type.
// Bound: docs/bounds.md, "Gradients".
// Measured: by the kernels that use it.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_SUMS_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_SUMS_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_SUMS_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Index (b, h, query block).
template <class Policy, class T>
void WriteQueries(Policy policy, const BackwardTask<T>& task, std::size_t index,
                  const BackwardScratch<T>& scratch) {
  const BackwardSizes& n = task.n;
  const std::size_t size = kQueryBlock * n.feature_step;
  T* HWY_RESTRICT sums = task.query_sums + index * size;
  for (std::size_t part = 1; part < n.parts; ++part) {
    const T* HWY_RESTRICT more = sums + part * n.heads() * n.q_rows * n.feature_step;
    for (std::size_t at = 0; at < size; ++at) sums[at] = sums[at] + more[at];
  }
  if (!task.gradients.grad_q) return;
  const Output<4>& grad_q = *task.gradients.grad_q;
  const std::size_t head = index / n.query_blocks;
  const auto b = static_cast<Index>(head / n.q_heads);
  const auto h = static_cast<Index>(head % n.q_heads);
  const std::size_t first = index % n.query_blocks * kQueryBlock;
  const std::size_t rows = std::min(kQueryBlock, n.q_len - first);
  const bool projected = task.args.score != ScoreKind::kDot;
  for (std::size_t r = 0; r < rows; ++r) {
    T* row = sums + r * n.feature_step;
    if (projected) {
      std::fill(scratch.rows, scratch.rows + n.q_step, T{0});
      AddProduct(policy, row, n.feature_step, 1, 1, n.features, task.from_features, n.q_step,
                 n.q_dim, scratch.rows, n.q_step);
      row = scratch.rows;
    }
    WriteScaled(row, n.q_dim, task.scale, grad_q.dtype,
                At(grad_q, b, h, static_cast<Index>(first + r)), grad_q.strides[3]);
  }
}

// Rows [first, first + kTileRows) of the gradient a^T b of a parameter, for `count` rows of a and
// b.
template <class Policy, class T>
void WriteParameter(Policy policy, const BackwardTask<T>& task, const Output<2>& gradient,
                    std::size_t first, std::size_t count, const T* a, std::size_t a_step,
                    const T* b, std::size_t b_step, const BackwardScratch<T>& scratch) {
  const auto rows = static_cast<std::size_t>(gradient.shape[0]);
  const auto columns = static_cast<std::size_t>(gradient.shape[1]);
  const std::size_t size = std::min(kTileRows, rows - first);
  std::fill(scratch.rows, scratch.rows + size * b_step, T{0});
  for (std::size_t row = 0; row < count; row += kKeyBlock) {
    AddProduct(policy, a + row * a_step + first, 1, a_step, size, std::min(kKeyBlock, count - row),
               b + row * b_step, b_step, columns, scratch.rows, b_step);
  }
  for (std::size_t r = 0; r < size; ++r) {
    WriteScaled(scratch.rows + r * b_step, columns, task.scale, gradient.dtype,
                At(gradient, static_cast<Index>(first + r)), gradient.strides[1]);
  }
}

// Index: 6 rows of grad_w, or of grad_w_q and then of grad_w_k.
template <class Policy, class T>
void WriteParameters(Policy policy, const BackwardTask<T>& task, std::size_t index,
                     const BackwardScratch<T>& scratch) {
  const BackwardSizes& n = task.n;
  const AttentionGradients& gradients = task.gradients;
  const std::size_t queries = n.heads() * n.q_rows;
  if (gradients.grad_w) {
    return WriteParameter(policy, task, *gradients.grad_w, index * kTileRows, queries,
                          task.given_queries, n.q_step, task.query_sums, n.feature_step, scratch);
  }
  const std::size_t tiles = gradients.grad_w_q ? (n.features + kTileRows - 1) / kTileRows : 0;
  if (index < tiles) {
    return WriteParameter(policy, task, *gradients.grad_w_q, index * kTileRows, queries,
                          task.query_sums, n.feature_step, task.given_queries, n.q_step, scratch);
  }
  WriteParameter(policy, task, *gradients.grad_w_k, (index - tiles) * kTileRows,
                 n.stores() * n.kv_len, task.key_features, n.feature_step, task.given_keys,
                 n.k_step, scratch);
}

// grad_b, grad_v_a and grad_sinks.
template <class T>
void WriteVectors(const BackwardTask<T>& task) {
  const BackwardSizes& n = task.n;
  const AttentionGradients& gradients = task.gradients;
  const auto write = [&](const Output<1>& to, std::size_t at, double scale, T value) {
    WriteScaled(&value, 1, scale, to.dtype, At(to, static_cast<Index>(at)), 1);
  };
  for (std::size_t u = 0; gradients.grad_b && u < n.features; ++u) {
    T sum = 0;
    for (std::size_t block = 0; block < n.heads() * n.query_blocks; ++block) {
      T part = 0;
      for (std::size_t i = 0; i < kQueryBlock; ++i) {
        part = part + task.query_sums[(block * kQueryBlock + i) * n.feature_step + u];
      }
      sum = sum + part;
    }
    write(*gradients.grad_b, u, task.scale, sum);
  }
  for (std::size_t u = 0; gradients.grad_v_a && u < n.features; ++u) {
    T sum = 0;
    for (std::size_t unit = 0; unit < n.chains * n.parts; ++unit) {
      T part = 0;
      for (std::size_t i = 0; i < kQueryBlock; ++i) {
        part = part + task.v_a_sums[(unit * n.features + u) * kQueryBlock + i];
      }
      sum = sum + part;
    }
    write(*gradients.grad_v_a, u, task.scale, sum);
  }
  for (std::size_t h = 0; gradients.grad_sinks && h < n.q_heads; ++h) {
    T sum = 0;
    for (std::size_t b = 0; b < n.batch; ++b) {
      for (std::size_t block = 0; block < n.query_blocks; ++block) {
        sum = sum + task.sink_shares[(b * n.q_heads + h) * n.query_blocks + block];
      }
    }
    write(*gradients.grad_sinks, h, 1.0, sum);
  }
}

// Index: a row of grad_bias.
template <class T>
void WriteBias(const BackwardTask<T>& task, std::size_t index) {
  const Output<4>& gradient = *task.gradients.grad_bias;
  const auto& shape = task.bias_shape;
  const auto i = static_cast<Index>(index % shape[2]);
  const auto h = static_cast<Index>(index / shape[2] % shape[1]);
  const auto b = static_cast<Index>(index / shape[2] / shape[1]);
  WriteScaled(task.bias_sums + index * shape[3], shape[3], 1.0, gradient.dtype,
              At(gradient, b, h, i), gradient.strides[3]);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
