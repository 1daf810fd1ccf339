// SPDX-License-Identifier: Apache-2.0
// The first pass of the backward kernel: finds what is to be known of a row before its gradients,
// the maximum m of its scores, its denominator l and its delta.
//
// Computes: with E = 2^(x - m) over all keys of the row, l = sum E (+ 2^(sink - m)),
//   delta = sum E dP / l, dP = <grad_out, v_j> times dropout and Gaussian. Stored for the second
//   pass: m + log2 l, so that 2^(x - it) is the weight, and delta - grad_lse.
// Shapes: 64 queries, keys in blocks of 192 (optimized/backward_task.h).
// Rounding points: E as in optimized/weight-inl.h; l and the sum of E dP: within a block in the
// order of
//   keys, blocks merged by two products with 2^(m_old - m_new); dP: a MulAdd for each element of v.
// Bound: docs/bounds.md, "Gradients".
// Measured: by the kernels that use it.
//
// Special rows. A row is poisoned when anything that takes part in it is NaN or infinite: m becomes
// NaN, which makes E NaN exactly at its allowed keys, and everything else of it 0.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_ROWS_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
    const bool plain = shape.covered && IsPlain(task, view);
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

// Index (b, h, query block) of the step.
template <class Policy, class T>
void RowsOfBlock(Policy policy, const BackwardTask<T>& task, std::size_t index,
                 const BackwardScratch<T>& scratch) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const BackwardSizes& n = task.n;
  BlockView<T> view = ViewOfQueries(task, index);
  RowInputs inputs[kQueryBlock];
  StageQueries(policy, task, view, scratch, inputs);
  RowSums<T> sums;
  SumRows(policy, task, view, scratch, &sums);

  const HeadSink sink(view.rules);
  HWY_ALIGN T sink_weights[kQueryBlock];
  if (sink.exists) {
    const auto scaled = static_cast<T>(sink.value * kLog2E);
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

  const bool any_bad_key = HasBadKey(task, view);
  const std::size_t row = view.Row(n);
  T* const shifts = task.shifts + row;
  T* const deltas = task.deltas + row;
  T share = 0;  // of grad_sinks
  for (std::size_t r = 0; r < kQueryBlock; ++r) {
    const auto i = static_cast<Index>(view.query + r);
    const bool exists = r < view.Rows(n);
    const bool poisoned = exists && (sink.bad || std::isnan(sums.sum[r]) ||
                                     (!inputs[r].finite && view.rules.AnyAllowed(i)) ||
                                     (any_bad_key && TakesBadKey(task, view, i)));
    const bool nothing = sums.sum[r] == T{0};
    shifts[r] = poisoned ? std::numeric_limits<T>::quiet_NaN() : T{0};
    deltas[r] = 0;
    T sink_weight = 0;
    if (!poisoned && !nothing) {
      // In double: what rounding it to T costs is |lse| u of the weights.
      shifts[r] = static_cast<T>(static_cast<double>(sums.max[r]) +
                                 std::log2(static_cast<double>(sums.sum[r])));
      deltas[r] = sums.delta[r] / sums.sum[r] - static_cast<T>(inputs[r].grad_lse);
      if (sink.exists) sink_weight = sink_weights[r] / sums.sum[r];
    }
    if (exists && sink.exists) share = share - (poisoned ? shifts[r] : sink_weight * deltas[r]);
    if (poisoned && sink.bad) share = shifts[r];
  }
  task.sink_shares[index] = share;
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
