// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/seq2seq/products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef ATTEST_EXPERIMENTS_SEQ2SEQ_PRODUCTS_CC_
#define ATTEST_EXPERIMENTS_SEQ2SEQ_PRODUCTS_CC_
namespace attest {

template <class T>
struct ProductCall {
  Index m, n, k;
  Factor<T> a;
  const T* b;
  Index b_row;
  T* c;
  Index c_row;
};

}  // namespace attest
#endif

#define ATTEST_UNROLL _Pragma("GCC unroll 32")

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile of c in registers: with 32 of them 8 x 3 vectors, else 4 x 2.
#if HWY_TARGET == HWY_AVX3
constexpr std::size_t kRows = 8;
constexpr std::size_t kVectors = 3;
#else
constexpr std::size_t kRows = 4;
constexpr std::size_t kVectors = 2;
#endif

// Rows from i, vectors from column j. kPart: the last vector has fewer than Lanes(d) columns.
template <std::size_t kTileRows, std::size_t kTileVectors, bool kPart, class T>
HWY_INLINE void AddTile(const ProductCall<T>& call, Index i, Index j) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  const auto columns = static_cast<std::size_t>(call.n - j);
  const auto mask = hn::FirstN(d, columns < lanes ? columns : lanes);
  V sums[kTileRows][kTileVectors];
  ATTEST_UNROLL
  for (std::size_t r = 0; r < kTileRows; ++r) {
    ATTEST_UNROLL
    for (std::size_t v = 0; v < kTileVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const T* a = call.a.data + i * call.a.row;
  const T* b = call.b + j;
  for (Index l = 0; l < call.k; ++l) {
    V row[kTileVectors];
    ATTEST_UNROLL
    for (std::size_t v = 0; v < kTileVectors; ++v) {
      row[v] = kPart ? hn::MaskedLoad(mask, d, b + v * lanes) : hn::LoadU(d, b + v * lanes);
    }
    ATTEST_UNROLL
    for (std::size_t r = 0; r < kTileRows; ++r) {
      const V factor = hn::Set(d, a[static_cast<Index>(r) * call.a.row]);
      ATTEST_UNROLL
      for (std::size_t v = 0; v < kTileVectors; ++v) {
        sums[r][v] = hn::MulAdd(factor, row[v], sums[r][v]);
      }
    }
    a += call.a.column;
    b += call.b_row;
  }
  T* c = call.c + i * call.c_row + j;
  ATTEST_UNROLL
  for (std::size_t r = 0; r < kTileRows; ++r) {
    ATTEST_UNROLL
    for (std::size_t v = 0; v < kTileVectors; ++v) {
      T* const at = c + v * lanes;
      if (kPart) {
        hn::BlendedStore(hn::Add(hn::MaskedLoad(mask, d, at), sums[r][v]), mask, d, at);
      } else {
        hn::StoreU(hn::Add(hn::LoadU(d, at), sums[r][v]), d, at);
      }
    }
    c += call.c_row;
  }
}

// All columns of kTileRows rows from i.
template <std::size_t kTileRows, class T>
HWY_NOINLINE void AddRows(const ProductCall<T>& call, Index i) {
  const auto lanes = static_cast<Index>(hn::Lanes(hn::ScalableTag<T>()));
  Index j = 0;
  for (; j + static_cast<Index>(kVectors) * lanes <= call.n;
       j += static_cast<Index>(kVectors) * lanes) {
    AddTile<kTileRows, kVectors, false>(call, i, j);
  }
  for (; j + lanes <= call.n; j += lanes) AddTile<kTileRows, 1, false>(call, i, j);
  if (j < call.n) AddTile<kTileRows, 1, true>(call, i, j);
}

template <class T>
void AddAll(const ProductCall<T>& call) {
  Index i = 0;
  for (; i + static_cast<Index>(kRows) <= call.m; i += static_cast<Index>(kRows)) {
    AddRows<kRows>(call, i);
  }
  for (; i + 2 <= call.m; i += 2) AddRows<2>(call, i);
  if (i < call.m) AddRows<1>(call, i);
}

void AddProductF32(const ProductCall<float>& call) { AddAll(call); }
void AddProductF64(const ProductCall<double>& call) { AddAll(call); }

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(AddProductF32);
HWY_EXPORT(AddProductF64);

void AddProduct(Index m, Index n, Index k, const Factor<float>& a, const float* b, Index b_row,
                float* c, Index c_row) {
  HWY_DYNAMIC_DISPATCH(AddProductF32)({m, n, k, a, b, b_row, c, c_row});
}
void AddProduct(Index m, Index n, Index k, const Factor<double>& a, const double* b, Index b_row,
                double* c, Index c_row) {
  HWY_DYNAMIC_DISPATCH(AddProductF64)({m, n, k, a, b, b_row, c, c_row});
}

}  // namespace attest
#endif  // HWY_ONCE
