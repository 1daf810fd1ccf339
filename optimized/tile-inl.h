// SPDX-License-Identifier: Apache-2.0
// The one matrix product that every attention kernel is made of, and the transpositions around it.
//
// Computes: C[r][l] = sum_k a[r * row + k * step] * b[k * b_step + l], for rows r and lanes l: the
//   elements of `a` are broadcast, those of `b` are whole vectors. With queries in the lanes that
//   is S^T = K Q^T (a = K) and O^T = V^T P^T (a = V); with head dimensions in the lanes it is dV =
//   P^T dO (a = P^T).
// Shapes: tiles of kTileRows rows and up to kTileVectors vectors, which fill the registers: 24 (12)
//   accumulators of 32 (16). b is aligned to a vector and b_step a multiple of one; a has no
//   alignment.
// Rounding points: one MulAdd (optimized/arithmetic-inl.h) for each k, in the order of k, from 0.
// No
//   sum crosses lanes, so that the order is the same for every target, tile and vector length.
// Bound: g_n sum |a b|, g_n = n u / (1 - n u), n the number of products (Higham 2002, section 3.1).
// Measured: by the kernels that use it; share of the peak of multiply-adds: `attest bench
// attention`.

#include <cstddef>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_TILE_INL_H_
#undef ATTEST_OPTIMIZED_TILE_INL_H_
#else
#define ATTEST_OPTIMIZED_TILE_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/arithmetic-inl.h"

// Loops over a tile's registers must be unrolled completely.
#undef ATTEST_UNROLL
#define ATTEST_UNROLL _Pragma("GCC unroll 32")
// After the parameters of a lambda that receives registers: in a call they would go through memory,
// and accumulators that do are stored in every step of the loop before.
#undef ATTEST_INLINE
#define ATTEST_INLINE __attribute__((always_inline)) HWY_ATTR

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kTileRows = 6;
// 32 registers with AVX-512, 16 elsewhere.
inline constexpr std::size_t kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Vectors of a kernel's accumulation type, of the target's full length.
template <class T>
using Tag = hn::ScalableTag<T>;

// acc[r][v] += sum over k < n of a[r * row + k * step] * b[k * b_step + v * lanes], for r < R and
// First <= v < V.
template <std::size_t First, std::size_t R, std::size_t V, class Policy, class D,
          class T = hn::TFromD<D>>
HWY_INLINE void Multiply(Policy policy, D d, const T* HWY_RESTRICT a, std::size_t row,
                         std::size_t step, std::size_t n, const T* HWY_RESTRICT b,
                         std::size_t b_step, hn::Vec<D> (&acc)[R][V]) {
  const std::size_t lanes = hn::Lanes(d);
  const T* HWY_RESTRICT a3 = a + 3 * row;  // two bases: an address has room for a factor of 2
  for (std::size_t k = 0; k < n; ++k) {
    hn::Vec<D> vectors[V];
    ATTEST_UNROLL
    for (std::size_t v = First; v < V; ++v) vectors[v] = hn::Load(d, b + v * lanes);
    ATTEST_UNROLL
    for (std::size_t r = 0; r < R; ++r) {
      const hn::Vec<D> x = hn::Set(d, r < 3 ? a[r * row] : a3[(r - 3) * row]);
      ATTEST_UNROLL
      for (std::size_t v = First; v < V; ++v) {
        acc[r][v] = MulAdd(policy, d, x, vectors[v], acc[r][v]);
      }
    }
    a += step;
    a3 += step;
    b += b_step;
  }
}

// R of a tile's accumulators; for what receives tiles of several sizes.
template <class Vector, std::size_t R, std::size_t V>
constexpr std::size_t RowsOf(const Vector (&)[R][V]) {
  return R;
}

// One tile of R rows and V vectors; finish(acc) receives the sums, Vec acc[R][V].
template <std::size_t R, std::size_t V, class Policy, class D, class T = hn::TFromD<D>,
          class Finish>
HWY_INLINE void MultiplyTile(Policy policy, D d, const T* HWY_RESTRICT a, std::size_t row,
                             std::size_t step, std::size_t n, const T* HWY_RESTRICT b,
                             std::size_t b_step, const Finish& finish) {
  hn::Vec<D> acc[R][V];
  ATTEST_UNROLL
  for (std::size_t r = 0; r < R; ++r) {
    ATTEST_UNROLL
    for (std::size_t v = 0; v < V; ++v) acc[r][v] = hn::Zero(d);
  }
  Multiply<0>(policy, d, a, row, step, n, b, b_step, acc);
  finish(acc);
}

// Rows 0 <= r < m of V vectors, in tiles; finish(r, acc) receives the sums of rows r, r + 1, ... as
// Vec acc[R][V], for several R.
template <std::size_t V, class Policy, class D, class T = hn::TFromD<D>, class Finish>
HWY_INLINE void MultiplyRows(Policy policy, D d, const T* HWY_RESTRICT a, std::size_t row,
                             std::size_t step, std::size_t m, std::size_t n,
                             const T* HWY_RESTRICT b, std::size_t b_step, const Finish& finish) {
  std::size_t r = 0;
  const auto rest = [&](auto size) ATTEST_INLINE {
    constexpr std::size_t kSize = decltype(size)::value;
    for (; r + kSize <= m; r += kSize) {
      MultiplyTile<kSize, V>(policy, d, a + r * row, row, step, n, b, b_step,
                             [&](auto& acc) ATTEST_INLINE { finish(r, acc); });
    }
  };
  rest(std::integral_constant<std::size_t, kTileRows>());
  rest(std::integral_constant<std::size_t, 4>());
  rest(std::integral_constant<std::size_t, 2>());
  rest(std::integral_constant<std::size_t, 1>());
}

// Calls body with the constant `vectors`, 1 <= vectors <= kTileVectors.
template <class Body>
HWY_INLINE void WithVectors(std::size_t vectors, const Body& body) {
  if constexpr (kTileVectors == 4) {
    if (vectors == 4) return body(std::integral_constant<std::size_t, 4>());
    if (vectors == 3) return body(std::integral_constant<std::size_t, 3>());
  }
  if (vectors == 2) return body(std::integral_constant<std::size_t, 2>());
  body(std::integral_constant<std::size_t, 1>());
}

#if HWY_TARGET != HWY_SCALAR  // which has no such operations
// Lanes 4g to 4g + 3 of vector k hold elements 0 to 3 of row 4g + k; afterwards lane r of out[c]
// holds element c of row r.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void TransposeFour(D d, V a0, V a1, V a2, V a3, V* HWY_RESTRICT out) {
  const hn::Repartition<double, D> dd;
  const V low01 = hn::InterleaveLower(d, a0, a1);
  const V high01 = hn::InterleaveUpper(d, a0, a1);
  const V low23 = hn::InterleaveLower(d, a2, a3);
  const V high23 = hn::InterleaveUpper(d, a2, a3);
  const auto pairs = [dd](V x) HWY_ATTR { return hn::BitCast(dd, x); };
  out[0] = hn::BitCast(d, hn::InterleaveLower(dd, pairs(low01), pairs(low23)));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(dd, pairs(low01), pairs(low23)));
  out[2] = hn::BitCast(d, hn::InterleaveLower(dd, pairs(high01), pairs(high23)));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(dd, pairs(high01), pairs(high23)));
}

// Lanes 4g to 4g + 3: the four elements from from[4g * step] on.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> LoadGroups(D d, const T* HWY_RESTRICT from, std::size_t step) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> dh;
    return hn::Combine(d, LoadGroups(dh, from + hn::MaxLanes(D()) / 2 * step, step),
                       LoadGroups(dh, from, step));
  }
}
#endif

// to[c * to_step + r] = from[r * from_step + c], for r < rows and c < columns. With floats, whole
// groups of a vector of rows and four columns go through registers.
template <class T>
HWY_INLINE void Transpose(const T* HWY_RESTRICT from, std::size_t from_step, std::size_t rows,
                          std::size_t columns, T* HWY_RESTRICT to, std::size_t to_step) {
  std::size_t first = 0;  // rows that are done
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == sizeof(float)) {
    const Tag<T> d;
    const std::size_t lanes = hn::Lanes(d);
    for (; first + lanes <= rows; first += lanes) {
      std::size_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        const T* HWY_RESTRICT row = from + first * from_step + c;
        hn::Vec<Tag<T>> out[4];
        // Vector k holds four elements of each row 4g + k.
        TransposeFour(d, LoadGroups(d, row, from_step), LoadGroups(d, row + from_step, from_step),
                      LoadGroups(d, row + 2 * from_step, from_step),
                      LoadGroups(d, row + 3 * from_step, from_step), out);
        for (std::size_t k = 0; k < 4; ++k) hn::StoreU(out[k], d, to + (c + k) * to_step + first);
      }
      for (; c < columns; ++c) {
        for (std::size_t r = first; r < first + lanes; ++r) {
          to[c * to_step + r] = from[r * from_step + c];
        }
      }
    }
  }
#endif
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = first; r < rows; ++r) to[c * to_step + r] = from[r * from_step + c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
