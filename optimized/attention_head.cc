// SPDX-License-Identifier: Apache-2.0
// Mask logic and empty rows of one attention head.
#include "optimized/attention_head.h"

#include <cstring>
#include <limits>

namespace attest {

std::size_t MaskBlock(const HeadTask& task, Index i, Index first, float* scores,
                      std::uint8_t* allowed) {
  const Index limit = KeyLimit(task, i);
  const bool plain = task.mask.data == nullptr && task.bias.data == nullptr;
  if (plain && first + static_cast<Index>(kBlock) <= limit) {
    std::memset(allowed, 1, kBlock);
    return kBlock;
  }
  std::size_t count = 0;
  for (std::size_t n = 0; n < kBlock; ++n) {
    const Index j = first + static_cast<Index>(n);
    const bool takes_part = KeyAllowed(task, i, limit, j);
    if (!takes_part) {
      scores[n] = -std::numeric_limits<float>::infinity();
    } else if (task.bias.data != nullptr) {
      scores[n] += task.bias(i, j);
    }
    allowed[n] = takes_part ? 1 : 0;
    count += allowed[n];
  }
  return count;
}

void WriteEmptyRow(const HeadTask& task, Index i) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool nan = task.empty_row == EmptyRow::kNan;
  const bool uniform = task.empty_row == EmptyRow::kUniform && task.kv_len > 0;
  for (Index c = 0; c < task.v_dim; ++c) {
    task.out(i, c) = nan ? kNan : uniform ? task.mean_value[c] : 0.0f;
  }
  if (task.lse.data != nullptr) {
    task.lse(i) = nan ? kNan : -std::numeric_limits<float>::infinity();
  }
  if (task.weights.data == nullptr) return;
  const float weight = nan       ? kNan
                       : uniform ? static_cast<float>(1.0 / static_cast<double>(task.kv_len))
                                 : 0.0f;
  for (Index j = 0; j < task.kv_len; ++j) task.weights(i, j) = weight;
}

void ScaleQuery(const HeadTask& task, Index i, float* scaled) {
  for (Index c = 0; c < task.qk_dim; ++c) scaled[c] = task.pre_scale * task.q(i, c);
}

}  // namespace attest
