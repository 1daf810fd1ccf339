// SPDX-License-Identifier: Apache-2.0
// Keys and queries of the backward kernel as its passes read them.
//
// Computes: copies in the accumulation type, rows and transposed blocks; the features of general
//   and additive scores, W^T q, W_q q + b, W_k k; the features of a transposed block times the
//   scale.
// Shapes: 64 queries, keys in blocks of 192 (optimized/backward_task.h).
// Rounding points: a MulAdd for each element of q or k, in order; one product with the scale.
// Bound: docs/bounds.md, "Gradients".
// Measured: by the kernels that use it.
//
// k, v, q and grad_out that are not finite are staged as 0: where they take part the row is
// poisoned (optimized/backward_rows-inl.h) anyway.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_STAGE_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_STAGE_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_STAGE_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stages keys [block * 192, ...) of one (b, g).
template <class Policy, class T>
void StageKeys(Policy policy, const BackwardTask<T>& task, std::size_t store, std::size_t block) {
  const BackwardSizes& n = task.n;
  const auto b = static_cast<Index>(store / n.kv_heads);
  const auto g = static_cast<Index>(store % n.kv_heads);
  const std::size_t first = block * kKeyBlock;
  const std::size_t last = std::min(first + kKeyBlock, n.kv_len);
  const auto& args = task.args;
  bool any_bad = false;
  for (std::size_t j = first; j < last; ++j) {
    const std::size_t row = store * n.kv_len + j;
    bool finite = LoadFinite(args.k.dtype, At(args.k, b, g, j), args.k.strides[3], n.k_dim,
                             n.k_step, task.given_keys + row * n.k_step);
    finite &= LoadFinite(args.v.dtype, At(args.v, b, g, j), args.v.strides[3], n.v_dim, n.v_step,
                         task.values + row * n.v_step);
    task.bad_keys[row] = finite ? 0 : 1;
    any_bad |= !finite;
  }
  task.bad_blocks[store * n.key_blocks + block] = any_bad ? 1 : 0;
  if (args.score == ScoreKind::kAdditive) {
    const std::size_t row = store * n.kv_len + first;
    T* const features = task.keys + row * n.feature_step;
    std::fill(features, features + (last - first) * n.feature_step, T{0});
    AddProduct(policy, task.given_keys + row * n.k_step, n.k_step, 1, last - first, n.k_dim,
               task.key_to_features, n.feature_step, n.features, features, n.feature_step);
  }
}

// What decides about a row apart from its scores.
struct RowInputs {
  bool finite = true;  // q and grad_out, the parameters and grad_lse
  double grad_lse = 0.0;
};

// Stages the queries of a block; grads are not yet divided by l.
template <class Policy, class T>
void StageQueries(Policy policy, const BackwardTask<T>& task, const BlockView<T>& view,
                  const BackwardScratch<T>& scratch, RowInputs* inputs) {
  const BackwardSizes& n = task.n;
  const AttentionArgs& args = task.args;
  const auto b = static_cast<Index>(view.head / n.q_heads);
  const auto h = static_cast<Index>(view.head % n.q_heads);
  const std::size_t row = view.Row(n);
  const std::size_t rows = view.Rows(n);
  T* const given = task.given_queries + row * n.q_step;
  T* const grads = task.grads + row * n.v_step;
  const bool parameters_finite =
      task.parameters_finite &&
      (!args.alibi_slopes ||
       std::isfinite(ReadElement(args.alibi_slopes->dtype, At(*args.alibi_slopes, h))));
  const auto& grad_out = task.gradients.grad_out;
  const auto& grad_lse = task.gradients.grad_lse;
  BlockRanges ranges{{0, std::numeric_limits<Index>::max()},
                     {std::numeric_limits<Index>::max(), 0}};
  for (std::size_t r = 0; r < kQueryBlock; ++r) {
    const auto i = static_cast<Index>(view.query + r);
    KeyRange& range = task.ranges[row + r];
    range = r < rows ? view.rules.RangeOf(i) : KeyRange{};
    const bool any = range.begin < range.end;
    inputs[r] = {};
    ranges.common.begin =
        any ? std::max(ranges.common.begin, range.begin) : std::numeric_limits<Index>::max();
    ranges.common.end = any ? std::min(ranges.common.end, range.end) : 0;
    if (r < rows && grad_lse) {
      inputs[r].grad_lse = ReadElement(grad_lse->dtype, At(*grad_lse, b, h, i));
      inputs[r].finite = std::isfinite(inputs[r].grad_lse);
    }
    if (!any) {  // what q and grad_out hold does not matter
      std::fill(given + r * n.q_step, given + (r + 1) * n.q_step, T{0});
      std::fill(grads + r * n.v_step, grads + (r + 1) * n.v_step, T{0});
      continue;
    }
    ranges.all.begin = std::min(ranges.all.begin, range.begin);
    ranges.all.end = std::max(ranges.all.end, range.end);
    inputs[r].finite &= parameters_finite;
    inputs[r].finite &= LoadFinite(args.q.dtype, At(args.q, b, h, i), args.q.strides[3], n.q_dim,
                                   n.q_step, given + r * n.q_step);
    if (grad_out) {
      inputs[r].finite &= LoadFinite(grad_out->dtype, At(*grad_out, b, h, i), grad_out->strides[3],
                                     n.v_dim, n.v_step, grads + r * n.v_step);
    } else {
      std::fill(grads + r * n.v_step, grads + (r + 1) * n.v_step, T{0});
    }
  }
  task.block_ranges[row / kQueryBlock] = ranges;
  Transpose(grads, n.v_step, kQueryBlock, n.v_dim, task.grad_blocks + row * n.v_dim, kQueryBlock);

  // Features: q, W^T q, or W_q q + b; times the scale in the transposed copy, unless v_a has it.
  T* const features = task.queries + row * n.feature_step;
  if (args.score != ScoreKind::kDot) {
    for (std::size_t r = 0; r < kQueryBlock; ++r) {
      T* const to = features + r * n.feature_step;
      std::fill(to, to + n.feature_step, T{0});
      if (args.score == ScoreKind::kAdditive) std::copy(task.b, task.b + n.features, to);
    }
    AddProduct(policy, given, n.q_step, 1, kQueryBlock, n.q_dim, task.to_features, n.feature_step,
               n.features, features, n.feature_step);
  }
  const double scale = args.score == ScoreKind::kAdditive ? 1.0 : task.feature_scale;
  for (std::size_t r = 0; r < kQueryBlock; ++r) {
    const T* HWY_RESTRICT from = features + r * n.feature_step;
    T* HWY_RESTRICT to = scratch.more_rows + r * n.feature_step;
    for (std::size_t c = 0; c < n.features; ++c) {
      to[c] = static_cast<T>(static_cast<double>(from[c]) * scale);
    }
  }
  Transpose(scratch.more_rows, n.feature_step, kQueryBlock, n.features,
            task.query_blocks + row * n.features, kQueryBlock);
}

// Whether some key with NaN or infinities in k or v is allowed.
template <class T>
bool TakesBadKey(const BackwardTask<T>& task, const BlockView<T>& view, Index i) {
  const BackwardSizes& n = task.n;
  for (std::size_t block = 0; block < n.key_blocks; ++block) {
    if (task.bad_blocks[view.store * n.key_blocks + block] == 0) continue;
    const std::size_t first = block * kKeyBlock;
    for (std::size_t j = first; j < std::min(first + kKeyBlock, n.kv_len); ++j) {
      if (task.bad_keys[view.store * n.kv_len + j] != 0 &&
          view.rules.Allowed(i, static_cast<Index>(j))) {
        return true;
      }
    }
  }
  return false;
}

// The sink of a head.
struct HeadSink {
  double value = 0.0;
  bool exists = false;  // and is finite
  bool bad = false;     // NaN or +infinity

  explicit HeadSink(const HeadRules& rules)
      : value(rules.sink()),
        exists(std::isfinite(value)),
        bad(std::isnan(value) || value > std::numeric_limits<double>::max()) {}
};

// The block of queries of index (b, h, query block).
template <class T>
BlockView<T> ViewOfQueries(const BackwardTask<T>& task, std::size_t index) {
  const BackwardSizes& n = task.n;
  BlockView<T> view;
  view.head = index / n.query_blocks;
  view.query = index % n.query_blocks * kQueryBlock;
  const std::size_t b = view.head / n.q_heads;
  const std::size_t h = view.head % n.q_heads;
  view.store = b * n.kv_heads + h / n.group;
  view.rules = HeadRules(task.args, static_cast<Index>(b), static_cast<Index>(h));
  return view;
}

template <class T>
bool HasBadKey(const BackwardTask<T>& task, const BlockView<T>& view) {
  const std::uint8_t* const blocks = task.bad_blocks + view.store * task.n.key_blocks;
  return std::any_of(blocks, blocks + task.n.key_blocks, [](std::uint8_t bad) { return bad != 0; });
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
