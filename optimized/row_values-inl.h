// SPDX-License-Identifier: Apache-2.0
// Weights times values for up to 16 rows of queries, with the columns of v in the lanes.
//
// Computes: out[r][c] += sum over keys j of p[r][j] v[j][c], over the keys that row r may look at.
// Shapes: up to kKeyGroup keys; rows of v `step` numbers apart and of p `p_step`; out in rows of
//   `columns` numbers, a multiple of kRowUnit bytes, as many as v has.
// Rounding points: one MulAdd a term, in ascending order of the keys, continuing what out holds. A
// key
//   that is not allowed is left out: 0 * NaN does not arise.
// Bound: g_n sum p |v|, n the number of keys, g_n = n u / (1 - n u) (Higham 2002, section 3.1).
// Measured: RowKernels.* of properties/row_kernels_test.cc.

#include <cstddef>
#include <type_traits>

#include "optimized/row_tile.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ROW_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ROW_VALUES_INL_H_
#undef ATTEST_OPTIMIZED_ROW_VALUES_INL_H_
#else
#define ATTEST_OPTIMIZED_ROW_VALUES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include "optimized/row_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The keys 0, 1, ..., count - 1, or those of a list.
struct EveryKey {
  std::size_t operator[](std::size_t t) const { return t; }
};
using ListedKeys = const std::uint8_t*;

// Vectors that one cache line holds.
template <class D>
inline constexpr std::size_t kVectorsOf = 64 / sizeof(hn::TFromD<D>) / hn::MaxLanes(D());

// R rows and N vectors of columns from column c on. Asks for the same of as many rows `ahead`.
template <std::size_t R, std::size_t N, class Keys, class Policy, class D, class T = hn::TFromD<D>>
HWY_INLINE void ValueTile(Policy policy, D d, const T* HWY_RESTRICT p, std::size_t p_step,
                          Keys keys, std::size_t count, const T* HWY_RESTRICT values,
                          std::ptrdiff_t step, const Ahead<T>& ahead, std::size_t c,
                          T* HWY_RESTRICT out, std::size_t out_step) {
  const std::size_t lanes = hn::Lanes(d);
  const T* next = ahead.rows != nullptr ? ahead.rows + c : nullptr;
  hn::Vec<D> acc[R][N];
  ATTEST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    ATTEST_UNROLL
    for (std::size_t n = 0; n < N; ++n) acc[r][n] = hn::Load(d, out + r * out_step + c + n * lanes);
  }
  for (std::size_t t = 0; t < count; ++t) {
    const std::size_t j = keys[t];
    const T* HWY_RESTRICT row = values + static_cast<std::ptrdiff_t>(j) * step;
    hn::Vec<D> v[N];
    ATTEST_UNROLL
    for (std::size_t n = 0; n < N; ++n) v[n] = hn::LoadU(d, row + c + n * lanes);
    if (next != nullptr) {  // the same columns of a row of the next group
      ATTEST_UNROLL
      for (std::size_t n = 0; n < N; n += kVectorsOf<D>) hwy::Prefetch(next + n * lanes);
      next += ahead.step;
    }
    ATTEST_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const hn::Vec<D> weight = hn::Set(d, p[r * p_step + j]);
      ATTEST_UNROLL
      for (std::size_t n = 0; n < N; ++n) acc[r][n] = MulAdd(policy, d, weight, v[n], acc[r][n]);
    }
  }
  ATTEST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    ATTEST_UNROLL
    for (std::size_t n = 0; n < N; ++n) hn::Store(acc[r][n], d, out + r * out_step + c + n * lanes);
  }
}

// R rows, all columns. A multiple of kRowUnit bytes is 1 (AVX-512), 2, 4 or 8 (16 for SCALAR)
// vectors.
template <std::size_t R, class Keys, class Policy, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void ValueRows(Policy policy, D d, const T* HWY_RESTRICT p, std::size_t p_step,
                            Keys keys, std::size_t count, const T* HWY_RESTRICT values,
                            std::ptrdiff_t step, const Ahead<T>& ahead, std::size_t columns,
                            T* HWY_RESTRICT out) {
  // As many accumulators as fit beside the vectors of v, and no fewer than one.
  constexpr std::size_t kAccumulators = kTileVectors == 4 ? 16 : 8;
  constexpr std::size_t kWide = R >= kAccumulators      ? 1
                                : kAccumulators / R > 8 ? 8
                                                        : kAccumulators / R;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  for (; c + kWide * lanes <= columns; c += kWide * lanes) {
    ValueTile<R, kWide>(policy, d, p, p_step, keys, count, values, step, ahead, c, out, columns);
  }
  for (; c < columns; c += lanes) {
    ValueTile<R, 1>(policy, d, p, p_step, keys, count, values, step, ahead, c, out, columns);
  }
}

// The keys of [0, size) that a row may look at: a range, or of the range those marked in `allowed`.
struct AllowedKeys {
  std::size_t begin = 0;
  std::size_t end = 0;
  const std::uint8_t* allowed = nullptr;
};

// All `rows` rows of a tile against `size` <= kKeyGroup keys. allowed[r] tells what row r may look
// at.
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void ValueGroup(Policy policy, D d, const AllowedKeys* allowed, std::size_t rows,
                             std::size_t size, const T* HWY_RESTRICT p, std::size_t p_step,
                             const T* HWY_RESTRICT values, std::ptrdiff_t step, std::size_t columns,
                             Ahead<T> ahead, T* HWY_RESTRICT out) {
  std::size_t r = 0;
  const auto whole = [&](std::size_t row) HWY_ATTR {
    const AllowedKeys& keys = allowed[row];
    return keys.allowed == nullptr && keys.begin == 0 && keys.end == size;
  };
  const auto rest = [&](auto number) HWY_ATTR {
    constexpr std::size_t kRows = decltype(number)::value;
    for (; r + kRows <= rows; r += kRows) {
      for (std::size_t i = 0; i < kRows; ++i) {
        if (!whole(r + i)) return;
      }
      ValueRows<kRows>(policy, d, p + r * p_step, p_step, EveryKey(), size, values, step, ahead,
                       columns, out + r * columns);
      ahead.rows = nullptr;
    }
  };
  while (r < rows) {
    rest(std::integral_constant<std::size_t, 8>());
    rest(std::integral_constant<std::size_t, 4>());
    rest(std::integral_constant<std::size_t, 2>());
    rest(std::integral_constant<std::size_t, 1>());
    if (r == rows) break;
    std::uint8_t list[kKeyGroup];
    std::size_t count = 0;
    const AllowedKeys& keys = allowed[r];
    for (std::size_t j = keys.begin; j < keys.end; ++j) {
      if (keys.allowed == nullptr || keys.allowed[j] != 0) {
        list[count++] = static_cast<std::uint8_t>(j);
      }
    }
    ValueRows<1>(policy, d, p + r * p_step, p_step, ListedKeys(list), count, values, step, ahead,
                 columns, out + r * columns);
    ahead.rows = nullptr;
    ++r;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
