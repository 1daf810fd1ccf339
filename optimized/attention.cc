// SPDX-License-Identifier: Apache-2.0
// Runs attention head by head: scratch once per call, keys and values packed once per
// key/value head, then the kernel of the chosen algorithm.
#include "optimized/attention.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "optimized/attention_check.h"
#include "optimized/attention_kernels.h"

namespace attest {
namespace {

// Every array that the kernels of one call use; unused ones are small.
struct Workspace {
  hwy::AlignedFreeUniquePtr<float[]> keys, values, mean_value;
  hwy::AlignedFreeUniquePtr<float[]> scaled_q, accumulators, scores, block_max;
  hwy::AlignedFreeUniquePtr<std::uint8_t[]> allowed;

  bool complete() const {
    return keys && values && mean_value && scaled_q && accumulators && scores && block_max &&
           allowed;
  }
};

Workspace MakeWorkspace(const Dimensions& n, bool tiled) {
  const auto dim = static_cast<std::size_t>(n.qk_dim);
  const auto v_dim = static_cast<std::size_t>(n.v_dim);
  const std::size_t value_stride = DivideUp(v_dim, kMaxLanes) * kMaxLanes;
  const std::size_t blocks =
      std::max<std::size_t>(DivideUp(static_cast<std::size_t>(n.kv_len), kBlock), 1);
  const std::size_t rows = tiled ? kQueryBlock : 1;
  const std::size_t row_of_scores = tiled ? 1 : blocks * kBlock;
  Workspace w;
  w.keys = hwy::AllocateAligned<float>(blocks * kBlock * dim);
  w.values = hwy::AllocateAligned<float>(blocks * kBlock * value_stride);
  w.mean_value = hwy::AllocateAligned<float>(v_dim);
  w.scaled_q = hwy::AllocateAligned<float>(rows * dim);
  w.accumulators = hwy::AllocateAligned<float>(rows * value_stride);
  w.scores = hwy::AllocateAligned<float>(row_of_scores);
  w.block_max = hwy::AllocateAligned<float>(rows * blocks);
  w.allowed = hwy::AllocateAligned<std::uint8_t>(row_of_scores);
  return w;
}

// The last two axes of `view` at (b, h); absent stays absent.
template <class T>
View<T, 2> Matrix(const View<T, 4>& view, Index b, Index h) {
  return {view.data + b * view.strides[0] + h * view.strides[1],
          {view.shape[2], view.shape[3]},
          {view.strides[2], view.strides[3]}};
}
template <class T>
View<T, 2> Matrix(const std::optional<View<T, 4>>& view, Index b, Index h) {
  return view ? Matrix(*view, b, h) : View<T, 2>();
}

// Layouts of HeadTask::keys and HeadTask::values. Keys and values beyond `count` are not read.
void PackKeys(const View<const float, 2>& k, Index count, float* packed) {
  const Index dim = k.shape[1];
  const auto block = static_cast<Index>(kBlock);
  for (Index first = 0; first < count; first += block, packed += block * dim) {
    for (Index c = 0; c < dim; ++c) {
      for (Index j = 0; j < block; ++j) {
        packed[c * block + j] = first + j < count ? k(first + j, c) : 0.0f;
      }
    }
  }
}

void PackValues(const View<const float, 2>& v, Index count, std::size_t stride, float* packed) {
  for (Index j = 0; j < count; ++j, packed += stride) {
    for (Index c = 0; c < v.shape[1]; ++c) packed[c] = v(j, c);
    std::fill(packed + v.shape[1], packed + stride, 0.0f);
  }
}

// The mean over all rows of v, summed in double: no overflow where the mean is finite.
void MeanOfRows(const View<const float, 2>& v, float* mean) {
  const auto count = static_cast<double>(v.shape[0]);
  for (Index c = 0; c < v.shape[1]; ++c) {
    double sum = 0.0;
    for (Index j = 0; j < v.shape[0]; ++j) sum += static_cast<double>(v(j, c));
    mean[c] = static_cast<float>(sum / count);
  }
}

// What all heads of batch b have in common.
HeadTask TaskOfBatch(const AttentionArgs& args, const Dimensions& n, Index b, const Workspace& w) {
  HeadTask task;
  task.q_len = n.q_len;
  task.kv_len = n.kv_len;
  task.qk_dim = n.qk_dim;
  task.v_dim = n.v_dim;
  task.valid_rows = args.q_lengths != nullptr ? args.q_lengths[b] : n.q_len;
  task.valid_keys = args.kv_lengths != nullptr ? args.kv_lengths[b] : n.kv_len;
  task.causal = args.causal != Causal::kNone;
  task.causal_offset = args.causal == Causal::kBottomRight ? task.valid_keys - task.valid_rows : 0;
  task.empty_row = args.empty_row;

  const double scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(n.qk_dim)));
  const bool before = std::fabs(scale) <= 1.0;
  task.pre_scale = before ? static_cast<float>(scale) : 1.0f;
  task.post_scale = before ? 1.0f : static_cast<float>(scale);

  task.value_stride = DivideUp(static_cast<std::size_t>(n.v_dim), kMaxLanes) * kMaxLanes;
  task.keys = w.keys.get();
  task.values = w.values.get();
  task.mean_value = w.mean_value.get();
  task.scaled_q = w.scaled_q.get();
  task.accumulators = w.accumulators.get();
  task.scores = w.scores.get();
  task.block_max = w.block_max.get();
  task.allowed = w.allowed.get();
  return task;
}

void RunHead(AttentionAlgorithm algorithm, const HeadTask& task) {
  switch (algorithm) {
    case AttentionAlgorithm::kMaterialised:
      return MaterialisedHead(task, SoftmaxAlgorithm::kShifted);
    case AttentionAlgorithm::kMaterialisedOnline:
      return MaterialisedHead(task, SoftmaxAlgorithm::kOnline);
    case AttentionAlgorithm::kTiled:
      return TiledHead(task);
  }
}

}  // namespace

Status AttentionForward(AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs) {
  const StatusOr<Dimensions> checked = CheckAttention(args, outputs);
  if (!checked.ok()) return checked.status();
  const Dimensions& n = *checked;
  if (n.batch == 0 || n.q_heads == 0 || n.q_len == 0) return Status();
  const Workspace workspace = MakeWorkspace(n, algorithm == AttentionAlgorithm::kTiled);
  if (!workspace.complete()) return Internal("attention: out of memory for the workspace");

  const Index group = n.q_heads / n.kv_heads;
  for (Index b = 0; b < n.batch; ++b) {
    HeadTask task = TaskOfBatch(args, n, b, workspace);
    for (Index g = 0; g < n.kv_heads; ++g) {
      const View<const float, 2> v = Matrix(args.v, b, g);
      PackKeys(Matrix(args.k, b, g), task.valid_keys, workspace.keys.get());
      PackValues(v, task.valid_keys, task.value_stride, workspace.values.get());
      if (args.empty_row == EmptyRow::kUniform) MeanOfRows(v, workspace.mean_value.get());
      for (Index h = g * group; h < (g + 1) * group; ++h) {
        task.q = Matrix(args.q, b, h);
        task.mask = Matrix(args.mask, b, h);
        task.bias = Matrix(args.bias, b, h);
        task.out = Matrix(outputs.out, b, h);
        task.weights = Matrix(outputs.weights, b, h);
        if (outputs.lse) {
          const View<float, 3>& lse = *outputs.lse;
          task.lse = {&lse(b, h, 0), {lse.shape[2]}, {lse.strides[2]}};
        }
        RunHead(algorithm, task);
      }
    }
  }
  return Status();
}

}  // namespace attest
