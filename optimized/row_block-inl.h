// SPDX-License-Identifier: Apache-2.0
// A tile of queries against one block of keys: final scores, their exponentials, the product with
// v.
//
// Computes: s = score + unit * (bias - slope * distance), -inf for keys that are not allowed;
//   m = max s, p = 2^(s - m), l = sum p; then sum of p v, with p times the dropout and local
//   factors.
// Shapes: QueryTile of optimized/row_tile.h, blocks of kKeyBlock keys from key 0; row r of the
// scores
//   at scores + r * score_step.
// Rounding points: those of optimized/row_scores-inl.h, the term's, s - m, the exponential
//   (optimized/weight-inl.h), each addition of l in ascending order of the keys from 0, the factor,
//   those of optimized/row_values-inl.h.
// Bound: docs/bounds.md.
// Measured: RowKernels.* of properties/row_kernels_test.cc.

#include <algorithm>
#include <cstddef>
#include <limits>

#include "optimized/row_task.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ROW_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ROW_BLOCK_INL_H_
#undef ATTEST_OPTIMIZED_ROW_BLOCK_INL_H_
#else
#define ATTEST_OPTIMIZED_ROW_BLOCK_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/row_scores-inl.h"
#include "optimized/row_source-inl.h"
#include "optimized/row_values-inl.h"
#include "optimized/weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whole groups of one block that hold every key which some row may look at; offsets from its start.
struct BlockSpan {
  Index start = 0;        // the block's first key
  std::size_t begin = 0;  // offsets, multiples of kKeyGroup
  std::size_t end = 0;
  bool empty() const { return begin == end; }
};

template <class T>
BlockSpan SpanOf(const RowTask<T>& task, const QueryTile& tile, std::size_t block) {
  BlockSpan span;
  span.start = static_cast<Index>(block * kKeyBlock);
  const Index last = std::min(span.start + static_cast<Index>(kKeyBlock), task.keys);
  const KeyRange range = tile.RangeWithin(span.start, last);
  if (range.begin >= range.end) return span;
  span.begin = static_cast<std::size_t>(range.begin - span.start) / kKeyGroup * kKeyGroup;
  span.end = CeilDivide(static_cast<std::size_t>(range.end - span.start), kKeyGroup) * kKeyGroup;
  return span;
}

// The keys of a row within [first, first + size), as offsets from `first`.
HWY_INLINE AllowedKeys RangeAt(const KeyRange& range, Index first, std::size_t size) {
  const Index last = first + static_cast<Index>(size);
  const Index begin = std::clamp(range.begin, first, last);
  const Index end = std::clamp(range.end, begin, last);
  return {static_cast<std::size_t>(begin - first), static_cast<std::size_t>(end - first), nullptr};
}

// The keys of a group that exist.
template <class T>
std::size_t SizeAt(const RowTask<T>& task, Index first, std::size_t most) {
  return static_cast<std::size_t>(std::min(static_cast<Index>(most), task.keys - first));
}

template <class Policy, class D, class T = hn::TFromD<D>>
void PrepareQueries(Policy policy, D d, const RowTask<T>& task, const QueryTile& tile,
                    const RowScratch<T>& scratch) {
  const Input<4>& q = task.args->q;
  for (std::size_t r = 0; r < tile.count; ++r) {
    const QueryRow& row = tile.rows[r];
    ReadRow(q.dtype, At(q, tile.batch, row.head, row.i), q.strides[3], task.score.q_dim,
            scratch.raw);
    PrepareQuery(policy, d, task.score, scratch.raw, scratch.scaled,
                 scratch.queries + r * Padded<T>(task.score.width));
  }
}

// Soft cap, terms and exclusion for one row of a block.
template <class Policy, class D, class T = hn::TFromD<D>>
void FinishScores(Policy policy, D d, const RowTask<T>& task, const QueryRow& row,
                  const BlockSpan& span, T* terms, T* HWY_RESTRICT scores, std::uint8_t* allowed) {
  constexpr T kExcluded = -std::numeric_limits<T>::infinity();
  if (task.score.cap != T{0}) {
    const hn::Vec<D> cap = hn::Set(d, task.score.cap);
    for (std::size_t j = span.begin; j < span.end; j += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(cap, Tanh(policy, d, hn::LoadU(d, scores + j))), d, scores + j);
    }
  }
  const Index first = span.start + static_cast<Index>(span.begin);
  const std::size_t size = SizeAt(task, first, span.end - span.begin);
  if (row.rules->adds() || row.rules->selects()) {
    row.rules->FillTerms(row.i, first, size, task.score.unit, terms);
    std::uint8_t* const marks = allowed + span.begin;
    T* HWY_RESTRICT s = scores + span.begin;
    for (std::size_t j = 0; j < size; ++j) {
      s[j] = terms[j] == kExcluded ? kExcluded : s[j] + terms[j];
      marks[j] = terms[j] == kExcluded ? 0 : 1;
    }
  }
  const AllowedKeys keys = RangeAt(row.range, first, size);
  std::fill(scores + span.begin, scores + span.begin + keys.begin, kExcluded);
  std::fill(scores + span.begin + keys.end, scores + span.end, kExcluded);
}

// The final scores of all rows of a tile; `scores` and `allowed` are those of the block's first
// key. `next` is what is read afterwards.
template <class Policy, class D, class T = hn::TFromD<D>>
void ScoreBlock(Policy policy, D d, const RowTask<T>& task, const QueryTile& tile,
                const RowSource<T>& keys, const BlockSpan& span, const NextRows<T>& next,
                const RowScratch<T>& scratch, T* scores, std::uint8_t* allowed) {
  for (std::size_t at = span.begin; at < span.end; at += kKeyGroup) {
    const Index first = span.start + static_cast<Index>(at);
    const NextRows<T> then = at + kKeyGroup < span.end
                                 ? NextRows<T>{&keys, first + static_cast<Index>(kKeyGroup)}
                                 : next;
    const RowGroup<T> group =
        RowsOf(d, keys, first, SizeAt(task, first, kKeyGroup), /*whole=*/true, then, scratch.keys);
    ScoreGroup(policy, d, task.score, scratch.queries, tile.count, group.rows, group.step,
               then.source->Next(then.first), scratch.hidden, scores + at, scratch.score_step);
  }
  for (std::size_t r = 0; r < tile.count; ++r) {
    FinishScores(policy, d, task, tile.rows[r], span, scratch.terms,
                 scores + r * scratch.score_step, allowed + r * scratch.score_step);
  }
}

// What is subtracted from scores: their maximum, or 0 where that is -inf.
template <class T>
HWY_INLINE T ShiftOf(T max) {
  return max == -std::numeric_limits<T>::infinity() ? T{0} : max;
}

// scores = 2^(scores - shift) of one row of a block.
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void ExponentiateRow(Policy policy, D d, const BlockSpan& span, T shift,
                                  T* HWY_RESTRICT scores) {
  const hn::Vec<D> s = hn::Set(d, shift);
  for (std::size_t j = span.begin; j < span.end; j += hn::Lanes(d)) {
    hn::StoreU(WeightOf(policy, d, hn::Sub(hn::LoadU(d, scores + j), s)), d, scores + j);
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE T MaxOfRow(D d, const BlockSpan& span, const T* HWY_RESTRICT scores) {
  hn::Vec<D> max = hn::LoadU(d, scores + span.begin);
  for (std::size_t j = span.begin + hn::Lanes(d); j < span.end; j += hn::Lanes(d)) {
    max = hn::Max(max, hn::LoadU(d, scores + j));
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// sums[r] = sum of the weights of row r, one after the other. Several rows at a time hide the time
// of an addition. Keys that are not allowed have weight 0, which changes no sum.
template <class T>
HWY_NOINLINE void SumRows(std::size_t rows, const BlockSpan& span, const T* HWY_RESTRICT weights,
                          std::size_t step, T* HWY_RESTRICT sums) {
  std::size_t r = 0;
  const auto rest = [&](auto number) HWY_ATTR {
    constexpr std::size_t kRows = decltype(number)::value;
    for (; r + kRows <= rows; r += kRows) {
      T sum[kRows] = {};
      for (std::size_t j = span.begin; j < span.end; ++j) {
        ATTEST_UNROLL
        for (std::size_t i = 0; i < kRows; ++i) sum[i] += weights[(r + i) * step + j];
      }
      std::copy(sum, sum + kRows, sums + r);
    }
  };
  rest(std::integral_constant<std::size_t, 8>());
  rest(std::integral_constant<std::size_t, 4>());
  rest(std::integral_constant<std::size_t, 1>());
}

// weights times the factors of the rules, for one row of a block.
template <class T>
void ScaleRow(const RowTask<T>& task, const QueryRow& row, const BlockSpan& span, bool with_dropout,
              T* factors, T* weights) {
  const Index first = span.start + static_cast<Index>(span.begin);
  const std::size_t size = SizeAt(task, first, span.end - span.begin);
  row.rules->FillFactors(row.i, first, size, with_dropout, factors);
  for (std::size_t j = 0; j < size; ++j) weights[span.begin + j] *= factors[j];
}

// max, sum: of every row of a tile; its scores become weights, times the factors of the rules.
template <class Policy, class D, class T = hn::TFromD<D>>
void SoftmaxBlock(Policy policy, D d, const RowTask<T>& task, const QueryTile& tile,
                  const BlockSpan& span, const RowScratch<T>& scratch, T* scores,
                  T (&max)[kQueryRows], T (&sum)[kQueryRows]) {
  for (std::size_t r = 0; r < tile.count; ++r) {
    T* const row = scores + r * scratch.score_step;
    max[r] = MaxOfRow(d, span, row);
    ExponentiateRow(policy, d, span, ShiftOf(max[r]), row);
  }
  SumRows(tile.count, span, scores, scratch.score_step, sum);
  for (std::size_t r = 0; r < tile.count; ++r) {
    if (!tile.rows[r].rules->scales()) continue;
    ScaleRow(task, tile.rows[r], span, /*with_dropout=*/true, scratch.terms,
             scores + r * scratch.score_step);
  }
}

// Writes the weights of one row in the block that begins with key `start`: exactly 0 where a key is
// not allowed, in NaN rows too.
template <class T>
void WriteWeights(const RowTask<T>& task, Index batch, const QueryRow& row, Index start,
                  const std::uint8_t* allowed, T* HWY_RESTRICT values) {
  const std::size_t size = SizeAt(task, start, kKeyBlock);
  const AllowedKeys keys = RangeAt(row.range, start, size);
  const bool selects = row.rules->selects();
  for (std::size_t j = 0; j < size; ++j) {
    const bool takes_part = j >= keys.begin && j < keys.end && (!selects || allowed[j] != 0);
    if (!takes_part) values[j] = 0;
  }
  const Output<4>& weights = *task.outputs->weights;
  WriteRow(values, size, weights.dtype, At(weights, batch, row.head, row.i, start),
           weights.strides[3]);
}

// out[r] += sum of weights times values over the block, for every row of a tile.
template <class Policy, class D, class T = hn::TFromD<D>>
void ValueBlock(Policy policy, D d, const RowTask<T>& task, const QueryTile& tile,
                const RowSource<T>& values, const BlockSpan& span, const NextRows<T>& next,
                const RowScratch<T>& scratch, const T* weights, const std::uint8_t* allowed,
                T* out) {
  for (std::size_t at = span.begin; at < span.end; at += kKeyGroup) {
    const Index first = span.start + static_cast<Index>(at);
    const std::size_t size = SizeAt(task, first, kKeyGroup);
    AllowedKeys keys[kQueryRows];
    for (std::size_t r = 0; r < tile.count; ++r) {
      keys[r] = RangeAt(tile.rows[r].range, first, size);
      if (tile.rows[r].rules->selects()) keys[r].allowed = allowed + r * scratch.score_step + at;
    }
    const NextRows<T> then = at + kKeyGroup < span.end
                                 ? NextRows<T>{&values, first + static_cast<Index>(kKeyGroup)}
                                 : next;
    const RowGroup<T> group = RowsOf(d, values, first, size, /*whole=*/false, then, scratch.values);
    ValueGroup(policy, d, keys, tile.count, size, weights + at, scratch.score_step, group.rows,
               group.step, task.v_step, then.source->Next(then.first), out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
