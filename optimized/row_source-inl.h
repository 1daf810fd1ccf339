// SPDX-License-Identifier: Apache-2.0
// Groups of rows of k and v, in place or widened into scratch.
//
// Computes: the numbers of a RowSource (optimized/row_tile.h) in the accumulation type.
// Shapes: up to kKeyGroup rows of any stride; in scratch Padded<T>(columns) numbers apart.
// Rounding points: none; f64 is never read as float here.
// Bound: exact. Measured: RowKernels.* of properties/row_kernels_test.cc.

#include <cstddef>

#include "optimized/row_tile.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ROW_SOURCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ROW_SOURCE_INL_H_
#undef ATTEST_OPTIMIZED_ROW_SOURCE_INL_H_
#else
#define ATTEST_OPTIMIZED_ROW_SOURCE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As many elements at `from` as d has lanes.
template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const Float16* from) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const float* from) {
  return hn::LoadU(d, from);
}

// to[c] = from[c] for dense rows; the elements that fill no vector by ReadRow.
template <class S, class D, class T = hn::TFromD<D>>
HWY_INLINE void WidenRow(D d, const S* from, std::size_t count, T* HWY_RESTRICT to) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    if constexpr (sizeof(T) == sizeof(double)) {
      const hn::Rebind<float, D> df;
      hn::StoreU(hn::PromoteTo(d, LoadWidened(df, from + c)), d, to + c);
    } else {
      hn::StoreU(LoadWidened(d, from + c), d, to + c);
    }
  }
  if (c < count) ReadRow(DTypeOf<S>::value, from + c, 1, count - c, to + c);
}

// Rows of a group, and their distance.
template <class T>
struct RowGroup {
  const T* rows;
  std::ptrdiff_t step;
};

// Rows first, ..., first + count - 1, in place or in `scratch`, which has room for kKeyGroup rows.
// With `whole` kKeyGroup rows can be read, those beyond `count` of any value. While rows are
// widened, those of `next` that are not read in place are asked for.
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE RowGroup<T> RowsOf(D d, const RowSource<T>& source, Index first, std::size_t count,
                                bool whole, const NextRows<T>& next, T* scratch) {
  if (source.in_place() && (count == kKeyGroup || !whole)) {
    return {static_cast<const T*>(source.Row(first)), source.row_stride()};
  }
  const std::size_t step = Padded<T>(source.columns());
  const bool asks = next.source->column_stride() == 1 && !next.source->in_place();
  const std::size_t bytes = next.source->columns() * SizeOf(next.source->dtype());
  const auto each = [&](const auto& read) HWY_ATTR {
    for (std::size_t r = 0; r < count; ++r) {
      const Index ahead = next.first + static_cast<Index>(r);
      if (asks && next.source->Has(ahead)) {
        const auto* row = static_cast<const std::byte*>(next.source->Row(ahead));
        for (std::size_t byte = 0; byte < bytes; byte += 64) hwy::Prefetch(row + byte);
      }
      read(source.Row(first + static_cast<Index>(r)), scratch + r * step);
    }
  };
  // EMU128 and SCALAR have conversions of their own ideas; SSE4 and SSSE3 none of f16.
  constexpr bool kConverts = HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;
  constexpr bool kConvertsF16 = HWY_TARGET <= HWY_AVX2;
  const bool dense = source.column_stride() == 1;
  const std::size_t columns = source.columns();
  if constexpr (kConverts) {
    if (dense && source.dtype() == DType::kBF16) {
      each([&](const void* from, T* to)
               HWY_ATTR { WidenRow(d, static_cast<const BFloat16*>(from), columns, to); });
      return {scratch, static_cast<std::ptrdiff_t>(step)};
    }
    if (dense && source.dtype() == DType::kF32) {
      each([&](const void* from, T* to)
               HWY_ATTR { WidenRow(d, static_cast<const float*>(from), columns, to); });
      return {scratch, static_cast<std::ptrdiff_t>(step)};
    }
  }
  if constexpr (kConvertsF16) {
    if (dense && source.dtype() == DType::kF16) {
      each([&](const void* from, T* to)
               HWY_ATTR { WidenRow(d, static_cast<const Float16*>(from), columns, to); });
      return {scratch, static_cast<std::ptrdiff_t>(step)};
    }
  }
  each([&](const void* from, T* to)
           HWY_ATTR { ReadRow(source.dtype(), from, source.column_stride(), columns, to); });
  return {scratch, static_cast<std::ptrdiff_t>(step)};
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
