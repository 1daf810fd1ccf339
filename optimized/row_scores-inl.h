// SPDX-License-Identifier: Apache-2.0
// Scores of up to 16 rows of queries against groups of 32 keys, with the keys in the lanes.
//
// Computes: the scores of optimized/row_scores.h, and the prepared queries that they are made from.
//   The keys are transposed in registers: vectors of 16-byte pieces of several keys, whose elements
//   are then interleaved.
// Shapes: prepared queries and scores in rows of `query_step` and `score_step` numbers; 32 keys,
//   `key_step` numbers apart, readable up to Padded<T>(Dk) columns.
// Rounding points: one MulAdd a term, in ascending order of the columns, from 0; no sum crosses
// lanes,
//   so that the order is that of every target and tile. Tanh, and the product with the soft cap's
//   T(c U).
// Bound: docs/bounds.md, "Scores".
// Measured: RowKernels.* of properties/row_kernels_test.cc.

#include <cstddef>
#include <type_traits>

#include "optimized/row_scores.h"
#include "optimized/row_tile.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ROW_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ROW_SCORES_INL_H_
#undef ATTEST_OPTIMIZED_ROW_SCORES_INL_H_
#else
#define ATTEST_OPTIMIZED_ROW_SCORES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include "optimized/arithmetic-inl.h"
#include "optimized/tanh-inl.h"
#include "optimized/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns in 16 bytes, the part of a vector within which elements are interleaved.
template <class T>
inline constexpr std::size_t kPiece = HWY_TARGET == HWY_SCALAR ? 1 : 16 / sizeof(T);

// Columns that are transposed at a time: whole vectors of AVX-512, pieces elsewhere.
template <class T>
inline constexpr std::size_t kStep = HWY_TARGET <= HWY_AVX3 ? hn::MaxLanes(Tag<T>()) : kPiece<T>;

#if HWY_TARGET != HWY_SCALAR
// The 16 bytes at from, from + step, ...
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadPieces(D d, const T* from, std::ptrdiff_t step) {
  if constexpr (hn::MaxLanes(D()) <= kPiece<T>) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    constexpr auto kPieces = static_cast<std::ptrdiff_t>(hn::MaxLanes(half) / kPiece<T>);
    return hn::Combine(d, LoadPieces(half, from + kPieces * step, step),
                       LoadPieces(half, from, step));
  }
}

// In every piece: rows of kPiece<T> elements become columns.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TransposePieces(D d, V* HWY_RESTRICT v) {
  constexpr std::size_t kSize = kPiece<hn::TFromD<D>>;
  if constexpr (kSize == 4) {
    TransposeFour(d, v[0], v[1], v[2], v[3], v);
  } else if constexpr (kSize == 2) {
    const V even = v[0];
    v[0] = hn::InterleaveLower(d, even, v[1]);
    v[1] = hn::InterleaveUpper(d, even, v[1]);
  }
}
#endif  // HWY_TARGET

#if HWY_TARGET <= HWY_AVX3
// out[b] = piece b of v0, v1, v2 and v3.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TransposeFourPieces(D d, V v0, V v1, V v2, V v3, V& out0, V& out1, V& out2,
                                    V& out3) {
  const V low02 = hn::ConcatLowerLower(d, v2, v0);  // pieces 0 and 1 of v0, then of v2
  const V low13 = hn::ConcatLowerLower(d, v3, v1);
  const V high02 = hn::ConcatUpperUpper(d, v2, v0);
  const V high13 = hn::ConcatUpperUpper(d, v3, v1);
  out0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low13), low02);
  out1 = hn::OddEvenBlocks(low13, hn::SwapAdjacentBlocks(low02));
  out2 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high13), high02);
  out3 = hn::OddEvenBlocks(high13, hn::SwapAdjacentBlocks(high02));
}
#endif

// columns[c] = element c, c < kStep, of as many keys as there are lanes, the first one at `keys`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void LoadColumns(D d, const T* keys, std::ptrdiff_t step,
                            hn::Vec<D> (&columns)[kStep<T>]) {
#if HWY_TARGET == HWY_SCALAR
  (void)step;
  columns[0] = hn::LoadU(d, keys);
#elif HWY_TARGET <= HWY_AVX3
  constexpr std::size_t kSize = kPiece<T>;
  hn::Vec<D> rows[4 * kSize];  // then: columns kSize p + c of kSize keys, at the place 4 c ... of p
  ATTEST_UNROLL
  for (std::size_t r = 0; r < 4 * kSize; ++r) {
    rows[r] = hn::LoadU(d, keys + static_cast<std::ptrdiff_t>(r) * step);
  }
  ATTEST_UNROLL
  for (std::size_t g = 0; g < 4; ++g) TransposePieces(d, rows + g * kSize);
  ATTEST_UNROLL
  for (std::size_t c = 0; c < kSize; ++c) {
    TransposeFourPieces(d, rows[c], rows[kSize + c], rows[2 * kSize + c], rows[3 * kSize + c],
                        columns[c], columns[kSize + c], columns[2 * kSize + c],
                        columns[3 * kSize + c]);
  }
#else
  constexpr std::size_t kSize = kPiece<T>;
  ATTEST_UNROLL
  for (std::size_t r = 0; r < kSize; ++r) {
    columns[r] = LoadPieces(d, keys + static_cast<std::ptrdiff_t>(r) * step,
                            static_cast<std::ptrdiff_t>(kSize) * step);
  }
  TransposePieces(d, columns);
#endif
}

// Asks for a part of `rows` rows from `first` on: in calls for c = 0, kStep, 2 kStep, ... all of
// it.
template <class T>
HWY_INLINE void PrefetchPart(const Ahead<T>& ahead, std::size_t first, std::size_t rows,
                             std::size_t c) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  constexpr std::size_t kParts = kLine / kStep<T>;
  const std::size_t part = rows / kParts;
  const T* row = ahead.rows +
                 static_cast<std::ptrdiff_t>(first + c / kStep<T> % kParts * part) * ahead.step +
                 c / kLine * kLine;
  for (std::size_t r = 0; r < part; ++r, row += ahead.step) hwy::Prefetch(row);
}

// scores[r][j] = <queries[r], key j>, for r < R and as many keys j as G vectors have lanes.
template <std::size_t R, std::size_t G, class Policy, class D, class T = hn::TFromD<D>>
HWY_INLINE void DotTile(Policy policy, D d, const T* HWY_RESTRICT queries, std::size_t query_step,
                        std::size_t dim, const T* HWY_RESTRICT keys, std::ptrdiff_t key_step,
                        const Ahead<T>& ahead, std::size_t first, T* HWY_RESTRICT scores,
                        std::size_t score_step) {
  const std::size_t lanes = hn::Lanes(d);
  const auto vector_step = static_cast<std::ptrdiff_t>(lanes) * key_step;
  hn::Vec<D> acc[R][G];
  ATTEST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    ATTEST_UNROLL
    for (std::size_t g = 0; g < G; ++g) acc[r][g] = hn::Zero(d);
  }
  std::size_t c = 0;
  for (; c + kStep<T> <= dim; c += kStep<T>) {
    if (ahead.rows != nullptr) PrefetchPart(ahead, first, G * lanes, c);
    ATTEST_UNROLL
    for (std::size_t g = 0; g < G; ++g) {
      hn::Vec<D> columns[kStep<T>];
      LoadColumns(d, keys + static_cast<std::ptrdiff_t>(g) * vector_step + c, key_step, columns);
      ATTEST_UNROLL
      for (std::size_t t = 0; t < kStep<T>; ++t) {
        ATTEST_UNROLL
        for (std::size_t r = 0; r < R; ++r) {
          const hn::Vec<D> q = hn::Set(d, queries[r * query_step + c + t]);
          acc[r][g] = MulAdd(policy, d, q, columns[t], acc[r][g]);
        }
      }
    }
  }
  for (std::size_t g = 0; c < dim && g < G; ++g) {  // columns that fill no step
    hn::Vec<D> columns[kStep<T>];
    LoadColumns(d, keys + static_cast<std::ptrdiff_t>(g) * vector_step + c, key_step, columns);
    for (std::size_t t = 0; c + t < dim; ++t) {
      for (std::size_t r = 0; r < R; ++r) {
        const hn::Vec<D> q = hn::Set(d, queries[r * query_step + c + t]);
        acc[r][g] = MulAdd(policy, d, q, columns[t], acc[r][g]);
      }
    }
  }
  ATTEST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    ATTEST_UNROLL
    for (std::size_t g = 0; g < G; ++g) {
      hn::StoreU(acc[r][g], d, scores + r * score_step + g * lanes);
    }
  }
}

// scores[r][j] = <queries[r], key j> for r < count and the kKeyGroup keys j; asks for `ahead` once.
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void DotGroup(Policy policy, D d, const T* HWY_RESTRICT queries,
                           std::size_t query_step, std::size_t count, std::size_t dim,
                           const T* HWY_RESTRICT keys, std::ptrdiff_t key_step, Ahead<T> ahead,
                           T* HWY_RESTRICT scores, std::size_t score_step) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t r = 0;
  const auto rest = [&](auto rows, auto number) HWY_ATTR {
    constexpr std::size_t kRows = decltype(rows)::value;
    constexpr std::size_t kVectors = decltype(number)::value;
    for (; r + kRows <= count; r += kRows, ahead.rows = nullptr) {
      for (std::size_t j = 0; j < kKeyGroup; j += kVectors * lanes) {
        DotTile<kRows, kVectors>(policy, d, queries + r * query_step, query_step, dim,
                                 keys + static_cast<std::ptrdiff_t>(j) * key_step, key_step, ahead,
                                 j, scores + r * score_step + j, score_step);
      }
    }
  };
  const std::integral_constant<std::size_t, 1> one;
  const std::integral_constant<std::size_t, HWY_TARGET <= HWY_AVX3 ? 1 : 2> vectors;
  const std::integral_constant<std::size_t, 2> two;
  rest(std::integral_constant<std::size_t, 8>(), one);
  rest(std::integral_constant<std::size_t, 4>(), one);
  rest(two, vectors);
  rest(one, vectors);
}

// scores[j] = sum over a of v_a[a] tanh(query[a] + hidden[a][j]) for the kKeyGroup keys j.
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_INLINE void AdditiveGroup(Policy policy, D d, const T* HWY_RESTRICT query,
                              const T* HWY_RESTRICT v_a, std::size_t width,
                              const T* HWY_RESTRICT hidden, T* HWY_RESTRICT scores) {
  for (std::size_t j = 0; j < kKeyGroup; j += hn::Lanes(d)) {
    hn::Vec<D> sum = hn::Zero(d);
    for (std::size_t a = 0; a < width; ++a) {
      const hn::Vec<D> x = hn::Add(hn::Set(d, query[a]), hn::LoadU(d, hidden + a * kKeyGroup + j));
      sum = MulAdd(policy, d, hn::Set(d, v_a[a]), Tanh(policy, d, x), sum);
    }
    hn::StoreU(sum, d, scores + j);
  }
}

// Scores of `count` prepared queries against kKeyGroup keys, before the soft cap. `hidden` has room
// for width rows of kKeyGroup numbers (additive only).
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_INLINE void ScoreGroup(Policy policy, D d, const ScoreTask<T>& task, const T* queries,
                           std::size_t count, const T* keys, std::ptrdiff_t key_step,
                           const Ahead<T>& ahead, T* hidden, T* scores, std::size_t score_step) {
  const std::size_t query_step = Padded<T>(task.width);
  if (task.kind != ScoreKind::kAdditive) {
    DotGroup(policy, d, queries, query_step, count, task.k_dim, keys, key_step, ahead, scores,
             score_step);
    return;
  }
  DotGroup(policy, d, task.w_k, Padded<T>(task.k_dim), task.width, task.k_dim, keys, key_step,
           ahead, hidden, kKeyGroup);
  for (std::size_t r = 0; r < count; ++r) {
    AdditiveGroup(policy, d, queries + r * query_step, task.v_a, task.width, hidden,
                  scores + r * score_step);
  }
}

// query = the prepared query of `raw`, Dq numbers in double. Lanes are the numbers of the result.
// `scaled` has room for Dq numbers, `query` for Padded<T>(width).
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void PrepareQuery(Policy policy, D d, const ScoreTask<T>& task, const double* raw,
                               T* HWY_RESTRICT scaled, T* HWY_RESTRICT query) {
  const double factor = task.kind == ScoreKind::kAdditive ? 1.0 : task.factor;
  T* const to = task.kind == ScoreKind::kDot ? query : scaled;
  for (std::size_t c = 0; c < task.q_dim; ++c) to[c] = static_cast<T>(raw[c] * factor);
  if (task.kind == ScoreKind::kDot) return;
  const T* const matrix = task.kind == ScoreKind::kGeneral ? task.w : task.w_q;
  const std::size_t step = Padded<T>(task.width);
  for (std::size_t a = 0; a < step; a += hn::Lanes(d)) {
    hn::Vec<D> sum = hn::Zero(d);
    for (std::size_t c = 0; c < task.q_dim; ++c) {
      sum = MulAdd(policy, d, hn::Load(d, matrix + c * step + a), hn::Set(d, scaled[c]), sum);
    }
    if (task.kind == ScoreKind::kAdditive) sum = hn::Add(sum, hn::Load(d, task.b + a));
    hn::Store(sum, d, query + a);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
