// SPDX-License-Identifier: Apache-2.0
// The first pass of the backward kernel: stages keys and queries, and finds what is known of a row
// before its gradients: the maximum m of its scores, its denominator l and its delta.
//
// Computes: with E = 2^(x - m) over all keys of the row, l = sum E (+ 2^(sink - m)),
//   delta = sum E dP / l, dP = <grad_out, v_j> times dropout and Gaussian. Stored for the second
//   pass: m, (delta - grad_lse) / l, and grad_out / l, which makes E the only weight that it needs.
// Shapes: 64 queries, keys in blocks of 192 (optimized/backward_task.h).
// Rounding points: E as in optimized/weight-inl.h; l and the sum of E dP: within a block in the
// order of
//   keys, blocks merged by two products with 2^(m_old - m_new); dP: a MulAdd for each element of v.
// Bound: docs/bounds.md, "Gradients".
// Measured: by the kernels that use it.
//
// Special rows. A row is poisoned when anything that takes part in it is NaN or infinite: m becomes
// NaN, which makes E NaN exactly at its allowed keys, and everything else of it 0. k, v, q and
// grad_out that are not finite are staged as 0: where they take part the row is poisoned anyway.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_
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

// Maxima, denominators and sum E dP of the rows of a block, in units of log2(e).
template <class T>
struct RowSums {
  HWY_ALIGN T max[kQueryBlock];
  HWY_ALIGN T sum[kQueryBlock];    // l
  HWY_ALIGN T delta[kQueryBlock];  // l delta
  HWY_ALIGN T block_max[kQueryBlock];
  HWY_ALIGN T block_sum[kQueryBlock];
  HWY_ALIGN T block_delta[kQueryBlock];
};

// Merges a block of keys whose maxima are in block_max. add_block() is to find block_sum and
// block_delta for the maxima that it finds there then, those of all blocks so far (0 for -inf).
template <class Policy, class T, class AddBlock>
HWY_INLINE void MergeBlock(Policy policy, RowSums<T>* sums, const AddBlock& add_block) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN T rescale[kQueryBlock];
  for (std::size_t q = 0; q < kQueryBlock; q += lanes) {
    const auto old = hn::Load(d, sums->max + q);
    const auto max = hn::Max(old, hn::Load(d, sums->block_max + q));
    const auto shift = ShiftOf(d, max);
    hn::Store(WeightOf(policy, d, hn::Sub(old, shift)), d, rescale + q);
    hn::Store(max, d, sums->max + q);
    hn::Store(shift, d, sums->block_max + q);
    hn::Store(hn::Zero(d), d, sums->block_sum + q);
    hn::Store(hn::Zero(d), d, sums->block_delta + q);
  }
  add_block();
  for (std::size_t q = 0; q < kQueryBlock; q += lanes) {
    const auto factor = hn::Load(d, rescale + q);
    hn::Store(
        MulAdd(policy, d, hn::Load(d, sums->sum + q), factor, hn::Load(d, sums->block_sum + q)), d,
        sums->sum + q);
    hn::Store(
        MulAdd(policy, d, hn::Load(d, sums->delta + q), factor, hn::Load(d, sums->block_delta + q)),
        d, sums->delta + q);
  }
}

template <class Policy, class T>
void SumRows(Policy policy, const BackwardTask<T>& task, BlockView<T>& view,
             const BackwardScratch<T>& scratch, RowSums<T>* sums) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const BackwardSizes& n = task.n;
  const std::size_t row = view.Row(n);
  const BlockRanges& ranges = task.block_ranges[row / kQueryBlock];
  const auto infinity = std::numeric_limits<T>::infinity();
  std::fill(sums->max, sums->max + kQueryBlock, -infinity);
  std::fill(sums->sum, sums->sum + kQueryBlock, T{0});
  std::fill(sums->delta, sums->delta + kQueryBlock, T{0});
  const bool scales = view.rules.scales();
  BlockShape<T> shape;
  for (std::size_t block = 0; block < n.key_blocks; ++block) {
    view.key = block * kKeyBlock;
    const std::size_t size = std::min(kKeyBlock, n.kv_len - view.key);
    if (ranges.all.end <= static_cast<Index>(view.key) ||
        ranges.all.begin >= static_cast<Index>(view.key + size)) {
      continue;
    }
    shape.Describe(task.ranges + row, ranges, static_cast<Index>(view.key), size);
    StageRules(task, view, shape, scratch);
    T* HWY_RESTRICT weights = scratch.weights;
    std::fill(sums->block_max, sums->block_max + kQueryBlock, -infinity);
    const bool plain = IsPlain(task, view, shape);
    if (plain) {
      MultiplyCovered(policy, size, task.keys + view.KeyRow(n) * n.feature_step, n.feature_step,
                      n.features, task.query_blocks + row * n.features,
                      [&](std::size_t key, std::size_t q, auto& acc) ATTEST_INLINE {
                        ATTEST_UNROLL
                        for (std::size_t v = 0; v < kTileVectors; ++v) {
                          auto max = hn::Load(d, sums->block_max + q + v * lanes);
                          ATTEST_UNROLL
                          for (std::size_t i = 0; i < kRowsOf<decltype(acc)>; ++i) {
                            const std::size_t at = (key + i) * kBlockStep + q + v * lanes;
                            hn::Store(acc[i][v], d, weights + at);
                            max = hn::Max(max, acc[i][v]);
                          }
                          hn::Store(max, d, sums->block_max + q + v * lanes);
                        }
                      });
    } else {
      ScoreBlock(policy, task, view, shape, scratch,
                 [&](std::size_t key, std::size_t q, auto x, auto allowed) ATTEST_INLINE {
                   x = hn::IfThenElse(allowed, x, hn::Set(d, -infinity));
                   hn::Store(x, d, weights + key * kBlockStep + q);
                   hn::Store(hn::Max(hn::Load(d, sums->block_max + q), x), d, sums->block_max + q);
                 });
    }
    MergeBlock(policy, sums, [&]() ATTEST_INLINE {
      for (std::size_t s = 0; s < shape.count; ++s) {
        const Segment& segment = shape.segments[s];
        for (std::size_t q = segment.begin / lanes * lanes; q < segment.end; q += lanes) {
          const auto shift = hn::Load(d, sums->block_max + q);
          auto sum = hn::Load(d, sums->block_sum + q);
          for (std::size_t key = segment.first; key < segment.last; ++key) {
            T* HWY_RESTRICT at = weights + key * kBlockStep + q;
            const auto weight = WeightOf(policy, d, hn::Sub(hn::Load(d, at), shift));
            hn::Store(weight, d, at);
            sum = hn::Add(sum, weight);
          }
          hn::Store(sum, d, sums->block_sum + q);
        }
      }
      const T* HWY_RESTRICT values = task.values + view.KeyRow(n) * n.v_step;
      const T* HWY_RESTRICT grads = task.grad_blocks + row * n.v_dim;
      if (plain && !scales) {
        MultiplyCovered(policy, size, values, n.v_step, n.v_dim, grads,
                        [&](std::size_t key, std::size_t q, auto& acc) ATTEST_INLINE {
                          ATTEST_UNROLL
                          for (std::size_t v = 0; v < kTileVectors; ++v) {
                            auto sum = hn::Load(d, sums->block_delta + q + v * lanes);
                            ATTEST_UNROLL
                            for (std::size_t i = 0; i < kRowsOf<decltype(acc)>; ++i) {
                              const std::size_t at = (key + i) * kBlockStep + q + v * lanes;
                              sum = MulAdd(policy, d, hn::Load(d, weights + at), acc[i][v], sum);
                            }
                            hn::Store(sum, d, sums->block_delta + q + v * lanes);
                          }
                        });
        return;
      }
      MultiplyBlock(policy, shape, values, n.v_step, n.v_dim, grads, scratch.grads);
      // A weight of 0 is that of a key that is not allowed, which may hold anything finite, or too
      // small to matter.
      ForEachVector(shape, [&](std::size_t key, std::size_t q) ATTEST_INLINE {
        const std::size_t at = key * kBlockStep + q;
        const auto weight = hn::Load(d, weights + at);
        auto product = hn::Load(d, scratch.grads + at);
        if (scales) product = hn::Mul(product, hn::Load(d, scratch.factors + at));
        product = hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), product);
        hn::Store(MulAdd(policy, d, weight, product, hn::Load(d, sums->block_delta + q)), d,
                  sums->block_delta + q);
      });
    });
  }
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

// Index (b, h, query block) of the step.
template <class Policy, class T>
void RowsOfBlock(Policy policy, const BackwardTask<T>& task, std::size_t index,
                 const BackwardScratch<T>& scratch) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const BackwardSizes& n = task.n;
  BlockView<T> view;
  view.head = index / n.query_blocks;
  view.query = index % n.query_blocks * kQueryBlock;
  const std::size_t b = view.head / n.q_heads;
  const std::size_t h = view.head % n.q_heads;
  view.store = b * n.kv_heads + h / n.group;
  view.rules = HeadRules(task.args, static_cast<Index>(b), static_cast<Index>(h));
  RowInputs inputs[kQueryBlock];
  StageQueries(policy, task, view, scratch, inputs);
  RowSums<T> sums;
  SumRows(policy, task, view, scratch, &sums);

  const double sink = view.rules.sink();
  const bool has_sink = std::isfinite(sink);
  const bool bad_sink = std::isnan(sink) || sink > std::numeric_limits<double>::max();
  HWY_ALIGN T sink_weights[kQueryBlock];
  if (has_sink) {
    const auto scaled = static_cast<T>(sink * kLog2E);
    std::fill(sums.block_max, sums.block_max + kQueryBlock, scaled);
    MergeBlock(policy, &sums, [&]() ATTEST_INLINE {
      for (std::size_t q = 0; q < kQueryBlock; q += lanes) {
        const auto shift = hn::Load(d, sums.block_max + q);
        const auto weight = WeightOf(policy, d, hn::Sub(hn::Set(d, scaled), shift));
        hn::Store(weight, d, sums.block_sum + q);
        hn::Store(weight, d, sink_weights + q);
      }
    });
  }

  const bool any_bad_key = std::any_of(task.bad_blocks + view.store * n.key_blocks,
                                       task.bad_blocks + (view.store + 1) * n.key_blocks,
                                       [](std::uint8_t bad) { return bad != 0; });
  const std::size_t row = view.Row(n);
  T* const shifts = task.shifts + row;
  T* const deltas = task.deltas + row;
  HWY_ALIGN T denominators[kQueryBlock];
  T share = 0;  // of grad_sinks
  for (std::size_t r = 0; r < kQueryBlock; ++r) {
    const auto i = static_cast<Index>(view.query + r);
    const bool exists = r < view.Rows(n);
    const bool poisoned = exists && (bad_sink || std::isnan(sums.sum[r]) ||
                                     (!inputs[r].finite && view.rules.AnyAllowed(i)) ||
                                     (any_bad_key && TakesBadKey(task, view, i)));
    const bool nothing = sums.sum[r] == T{0};
    shifts[r] = poisoned ? std::numeric_limits<T>::quiet_NaN() : nothing ? T{0} : sums.max[r];
    denominators[r] = poisoned || nothing ? T{1} : sums.sum[r];
    deltas[r] = 0;
    if (!poisoned && !nothing) {
      deltas[r] = (sums.delta[r] / sums.sum[r] - static_cast<T>(inputs[r].grad_lse)) / sums.sum[r];
    }
    if (exists && has_sink) share = share - (poisoned ? shifts[r] : sink_weights[r] * deltas[r]);
    if (poisoned && bad_sink) share = shifts[r];
  }
  task.sink_shares[index] = share;
  T* const grads = task.grads + row * n.v_step;
  T* const block = task.grad_blocks + row * n.v_dim;
  for (std::size_t r = 0; r < kQueryBlock; ++r) {
    const auto l = hn::Set(d, denominators[r]);
    for (std::size_t c = 0; c < n.v_step; c += lanes) {
      T* HWY_RESTRICT at = grads + r * n.v_step + c;
      hn::Store(hn::Div(hn::Load(d, at), l), d, at);
    }
  }
  for (std::size_t c = 0; c < n.v_dim; ++c) {
    for (std::size_t q = 0; q < kQueryBlock; q += lanes) {
      T* HWY_RESTRICT at = block + c * kQueryBlock + q;
      hn::Store(hn::Div(hn::Load(d, at), hn::Load(d, denominators + q)), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
