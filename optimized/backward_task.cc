// SPDX-License-Identifier: Apache-2.0
#include "optimized/backward_task.h"

#include <algorithm>
#include <cmath>

#include "optimized/attention_check.h"
#include "optimized/rows.h"

namespace attest {
namespace {

// Key/value heads are cut into parts until there are this many indices.
constexpr std::size_t kIndices = 16;

template <class T>
std::size_t Padded(std::size_t elements) {
  constexpr std::size_t kVector = 64 / sizeof(T);
  return (elements + kVector - 1) / kVector * kVector;
}

std::size_t Extent(Index extent) { return static_cast<std::size_t>(extent); }

std::size_t Blocks(std::size_t size, std::size_t block) { return (size + block - 1) / block; }

// The longest row that goes through BackwardScratch::rows.
std::size_t LongestRow(const BackwardSizes& n) {
  return std::max({n.q_step, n.k_step, n.v_step, n.feature_step, kKeyBlock});
}

// Rows of `from`, zeros behind them; all zeros, and false, if an element is not finite.
template <class T>
bool LoadMatrix(const Input<2>& from, std::size_t step, T* to, T* transposed,
                std::size_t transposed_step) {
  const std::size_t rows = Extent(from.shape[0]);
  const std::size_t columns = Extent(from.shape[1]);
  std::fill(to, to + rows * step, T{0});
  std::fill(transposed, transposed + columns * transposed_step, T{0});
  bool finite = true;
  for (std::size_t r = 0; r < rows; ++r) {
    ReadRow(from.dtype, At(from, r), from.strides[1], columns, to + r * step);
    finite = finite && std::all_of(to + r * step, to + r * step + columns,
                                   [](T x) { return std::isfinite(x); });
  }
  if (!finite) std::fill(to, to + rows * step, T{0});
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c)
      transposed[c * transposed_step + r] = to[r * step + c];
  }
  return finite;
}

template <class T>
bool LoadVector(const Input<1>& from, T* to) {
  const std::size_t count = Extent(from.shape[0]);
  ReadRow(from.dtype, from.data, from.strides[0], count, to);
  const bool finite = std::all_of(to, to + count, [](T x) { return std::isfinite(x); });
  if (!finite) std::fill(to, to + count, T{0});
  return finite;
}

}  // namespace

template <class T>
BackwardSizes SizesOf(const AttentionArgs& args, const AttentionGradients& gradients) {
  BackwardSizes n;
  n.batch = Extent(args.q.shape[0]);
  n.q_heads = Extent(args.q.shape[1]);
  n.kv_heads = Extent(args.k.shape[1]);
  n.group = n.kv_heads == 0 ? 0 : n.q_heads / n.kv_heads;
  n.q_len = Extent(args.q.shape[2]);
  n.kv_len = Extent(args.k.shape[2]);
  n.q_dim = Extent(args.q.shape[3]);
  n.k_dim = Extent(args.k.shape[3]);
  n.v_dim = Extent(args.v.shape[3]);
  n.features = args.score == ScoreKind::kAdditive ? Extent(args.w_q->shape[0]) : n.k_dim;
  n.q_step = Padded<T>(n.q_dim);
  n.k_step = Padded<T>(n.k_dim);
  n.v_step = Padded<T>(n.v_dim);
  n.feature_step = Padded<T>(n.features);
  n.query_blocks = Blocks(n.q_len, kQueryBlock);
  n.key_blocks = Blocks(n.kv_len, kKeyBlock);
  n.q_rows = n.query_blocks * kQueryBlock;
  bool shares_keys = false;
  if (gradients.grad_bias) {
    const auto& shape = gradients.grad_bias->shape;
    n.chain_of_batches = shape[0] == 1;
    n.chain_of_heads = shape[1] == 1;
    shares_keys = shape[3] == 1;
  }
  n.chains = (n.chain_of_batches ? std::min<std::size_t>(n.batch, 1) : n.batch) *
             (n.chain_of_heads ? std::min<std::size_t>(n.kv_heads, 1) : n.kv_heads);
  if (!shares_keys && n.chains > 0) {
    n.parts = std::clamp<std::size_t>(Blocks(kIndices, n.chains), 1,
                                      std::max<std::size_t>(n.key_blocks, 1));
  }
  return n;
}

template <class T>
BackwardScratch<T>::BackwardScratch(const BackwardSizes& n, Carver carver) {
  weights = carver.Take<T>(kBlockElements);
  grads = carver.Take<T>(kBlockElements);
  terms = carver.Take<T>(kBlockElements);
  factors = carver.Take<T>(kBlockElements);
  slopes = carver.Take<T>(kBlockElements);
  rows = carver.Take<T>(kQueryBlock * LongestRow(n));
  more_rows = carver.Take<T>(kQueryBlock * LongestRow(n));
  key_sums = carver.Take<T>(kKeyBlock * n.feature_step);
  value_sums = carver.Take<T>(kKeyBlock * n.v_step);
}

template <class T>
std::size_t BackwardScratch<T>::Bytes(const BackwardSizes& n) {
  const std::size_t elements = 5 * kBlockElements + 2 * kQueryBlock * LongestRow(n) +
                               kKeyBlock * (n.feature_step + n.v_step);
  return elements * sizeof(T) + 9 * Carver::kAlignment;
}

template <class T>
void CarveTask(Carver& carver, BackwardTask<T>* task) {
  const BackwardSizes& n = task->n;
  const bool dot = task->args.score == ScoreKind::kDot;
  const bool additive = task->args.score == ScoreKind::kAdditive;
  if (!dot) {
    task->to_features = carver.Take<T>(n.q_dim * n.feature_step);
    task->from_features = carver.Take<T>(n.features * n.q_step);
  }
  if (additive) {
    task->key_to_features = carver.Take<T>(n.k_dim * n.feature_step);
    task->key_from_features = carver.Take<T>(n.features * n.k_step);
    task->b = carver.Take<T>(n.features);
    task->v_a = carver.Take<T>(n.features);
    task->scaled_v_a = carver.Take<T>(n.features);
  }
  const std::size_t keys = n.stores() * n.kv_len;
  task->given_keys = carver.Take<T>(keys * n.k_step);
  task->keys = additive ? carver.Take<T>(keys * n.feature_step) : task->given_keys;
  task->values = carver.Take<T>(keys * n.v_step);
  if (additive) task->key_features = carver.Take<T>(keys * n.feature_step);
  task->bad_keys = carver.Take<std::uint8_t>(keys);
  task->bad_blocks = carver.Take<std::uint8_t>(n.stores() * n.key_blocks);
  const std::size_t rows = n.heads() * n.q_rows;
  task->given_queries = carver.Take<T>(rows * n.q_step);
  task->queries = dot ? task->given_queries : carver.Take<T>(rows * n.feature_step);
  task->query_blocks = carver.Take<T>(rows * n.features);
  task->grads = carver.Take<T>(rows * n.v_step);
  task->grad_blocks = carver.Take<T>(rows * n.v_dim);
  task->shifts = carver.Take<T>(rows);
  task->deltas = carver.Take<T>(rows);
  task->ranges = carver.Take<KeyRange>(rows);
  task->block_ranges = carver.Take<BlockRanges>(n.heads() * n.query_blocks);
  task->sink_shares = carver.Take<T>(n.heads() * n.query_blocks);
  task->query_sums = carver.Take<T>(n.parts * rows * n.feature_step);
  if (task->gradients.grad_bias) {
    const auto& shape = task->bias_shape;
    task->bias_sums = carver.Take<T>(shape[0] * shape[1] * shape[2] * shape[3]);
  }
  if (additive) task->v_a_sums = carver.Take<T>(n.chains * n.parts * n.features * kQueryBlock);
  task->scratch_bytes = (BackwardScratch<T>::Bytes(n) + Carver::kAlignment - 1) /
                        Carver::kAlignment * Carver::kAlignment;
  task->scratch = carver.Take<std::byte>(task->threads * task->scratch_bytes);
}

template <class T>
void LoadParameters(BackwardTask<T>* task) {
  const AttentionArgs& args = task->args;
  const BackwardSizes& n = task->n;
  task->scale = ScaleOf(args);
  task->feature_scale = args.softcap > 0.0 ? task->scale / args.softcap : task->scale * kLog2E;
  task->parameters_finite = true;
  if (args.score == ScoreKind::kGeneral) {
    task->parameters_finite =
        LoadMatrix(*args.w, n.feature_step, task->to_features, task->from_features, n.q_step);
  } else if (args.score == ScoreKind::kAdditive) {
    std::fill(task->b, task->b + n.features, T{0});
    const bool w_q =
        LoadMatrix(*args.w_q, n.q_step, task->from_features, task->to_features, n.feature_step);
    const bool w_k = LoadMatrix(*args.w_k, n.k_step, task->key_from_features, task->key_to_features,
                                n.feature_step);
    const bool v_a = LoadVector(*args.v_a, task->v_a);
    const bool b = !args.b || LoadVector(*args.b, task->b);
    task->parameters_finite = w_q && w_k && v_a && b;
    for (std::size_t u = 0; u < n.features; ++u) {
      task->scaled_v_a[u] = static_cast<T>(static_cast<double>(task->v_a[u]) * task->feature_scale);
    }
  }
}

std::size_t IndicesOf(const BackwardSizes& n, const AttentionGradients& gradients,
                      BackwardStep step) {
  constexpr std::size_t kRows = 6;  // of a parameter, tile-inl.h's kTileRows
  const auto tiles = [](const std::optional<Output<2>>& gradient) {
    return gradient ? Blocks(Extent(gradient->shape[0]), kRows) : 0;
  };
  switch (step) {
    case BackwardStep::kKeys:
      return n.stores() * n.key_blocks;
    case BackwardStep::kRows:
    case BackwardStep::kQueries:
      return n.heads() * n.query_blocks;
    case BackwardStep::kBlocks:
      return n.chains * n.parts;
    case BackwardStep::kParameters:
      return tiles(gradients.grad_w) + tiles(gradients.grad_w_q) + tiles(gradients.grad_w_k);
    case BackwardStep::kRest:
      return 1;
    case BackwardStep::kBias: {
      if (!gradients.grad_bias) return 0;
      const auto& shape = gradients.grad_bias->shape;
      return Extent(shape[0]) * Extent(shape[1]) * Extent(shape[2]);
    }
  }
  return 0;
}

template BackwardSizes SizesOf<float>(const AttentionArgs&, const AttentionGradients&);
template BackwardSizes SizesOf<double>(const AttentionArgs&, const AttentionGradients&);
template struct BackwardScratch<float>;
template struct BackwardScratch<double>;
template void CarveTask(Carver&, BackwardTask<float>*);
template void CarveTask(Carver&, BackwardTask<double>*);
template void LoadParameters(BackwardTask<float>*);
template void LoadParameters(BackwardTask<double>*);

}  // namespace attest
