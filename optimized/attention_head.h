// SPDX-License-Identifier: Apache-2.0
// One (batch, query head) of attention as the kernels see it: packed keys and values, the mask
// logic, and how a finished row is written. Private to optimized/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/contract.h"
#include "core/tensor.h"
#include "optimized/block.h"

namespace attest {

// Rows of queries that the tiled kernel keeps in flight.
inline constexpr std::size_t kQueryBlock = 16;

// A view whose data is null stands for an absent tensor.
struct HeadTask {
  Index q_len = 0;   // Tq
  Index kv_len = 0;  // Tk
  Index qk_dim = 0;
  Index v_dim = 0;
  Index valid_rows = 0;  // rows beyond it have no allowed key
  Index valid_keys = 0;
  bool causal = false;
  Index causal_offset = 0;  // allowed: j <= i + causal_offset
  EmptyRow empty_row = EmptyRow::kZero;

  View<const float, 2> q;            // [Tq, Dk]
  View<const std::uint8_t, 2> mask;  // [Tq, Tk]
  View<const float, 2> bias;         // [Tq, Tk]
  // score = post_scale * <pre_scale * q, k>. One of them is 1: a factor of at most 1 is applied
  // before the sum, a larger one after it, so that neither causes an overflow by itself.
  float pre_scale = 1.0f;
  float post_scale = 1.0f;

  // Key d of block b, 64 keys side by side: keys[(b * Dk + d) * 64 + j % 64]; 0 beyond valid_keys.
  const float* keys = nullptr;
  // Row j: values[j * value_stride], v_dim floats and zeros up to value_stride, a multiple of
  // kMaxLanes.
  const float* values = nullptr;
  std::size_t value_stride = 0;
  const float* mean_value = nullptr;  // [Dv], for EmptyRow::kUniform

  View<float, 2> out;      // [Tq, Dv]
  View<float, 1> lse;      // [Tq]
  View<float, 2> weights;  // [Tq, Tk]

  // Scratch, aligned for any vector; sizes in attention.cc.
  float* scaled_q = nullptr;        // kQueryBlock rows of Dk
  float* accumulators = nullptr;    // kQueryBlock rows of value_stride
  float* scores = nullptr;          // a row of scores, Tk rounded up to kBlock
  std::uint8_t* allowed = nullptr;  // likewise
  float* block_max = nullptr;       // kQueryBlock rows of ceil(Tk / kBlock)
};

// Keys j >= KeyLimit(task, i) are not allowed in row i.
inline Index KeyLimit(const HeadTask& task, Index i) {
  if (i >= task.valid_rows) return 0;
  if (!task.causal) return task.valid_keys;
  const Index causal_limit = i + task.causal_offset + 1;
  if (causal_limit <= 0) return 0;
  return causal_limit < task.valid_keys ? causal_limit : task.valid_keys;
}

// Whether key j takes part in row i; `limit` is KeyLimit(task, i).
inline bool KeyAllowed(const HeadTask& task, Index i, Index limit, Index j) {
  if (j >= limit) return false;
  if (task.mask.data != nullptr && task.mask(i, j) == 0) return false;
  return task.bias.data == nullptr || task.bias(i, j) != -std::numeric_limits<float>::infinity();
}

// For the 64 keys from `first`: adds the bias to the scores of the allowed ones, sets the others to
// -inf, and says in `allowed` which is which. Returns the number of allowed keys.
std::size_t MaskBlock(const HeadTask& task, Index i, Index first, float* scores,
                      std::uint8_t* allowed);

// Row i by the policy for rows without allowed keys: out, lse and weights.
void WriteEmptyRow(const HeadTask& task, Index i);

// scaled[d] = pre_scale * q[i][d].
void ScaleQuery(const HeadTask& task, Index i, float* scaled);

}  // namespace attest
