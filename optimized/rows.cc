// SPDX-License-Identifier: Apache-2.0
// Computes: conversions between the storage types and the accumulation types.
// Shapes: rows of any length and stride; vectors where the stride is 1 and the row has a full one.
// Rounding points: bf16 and f16 to float: none. float to bf16: to nearest even, by adding half a
// unit
//   of the last place, and one more for odd, to the bits; float to f16: the target's conversion
//   where it has one (AVX2, AVX3), else core/dtype.h element by element; double to 16 bits:
//   core/dtype.h.
// Bound: 0.5 ULP, exact in the other direction. Measured: Rows.* of properties/rows_test.cc
// compares
//   every 16-bit value, and roundings of every kind, with core/dtype.h on every target.
#include "optimized/rows.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr bool kHasF16Conversion = HWY_TARGET <= HWY_AVX2;

void WidenBFloat16(const BFloat16* from, std::size_t count, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto wide = hn::PromoteTo(du, hn::LoadU(d16, bits + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(wide)), d, to + i);
  }
  for (; i < count; ++i) to[i] = static_cast<float>(ToDouble(from[i]));
}

void WidenFloat16(const Float16* from, std::size_t count, float* to) {
  std::size_t i = 0;
  if constexpr (kHasF16Conversion) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> d16;
    const auto* halves = reinterpret_cast<const hwy::float16_t*>(from);
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, halves + i)), d, to + i);
    }
  }
  for (; i < count; ++i) to[i] = static_cast<float>(ToDouble(from[i]));
}

void NarrowToBFloat16(const float* from, std::size_t count, BFloat16* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  auto* bits = reinterpret_cast<std::uint16_t*>(to);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(d, from + i);
    const auto word = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(word, hn::Set(du, 0x7fff)), odd);
    const auto quiet = hn::Or(word, hn::Set(du, 0x400000));  // a NaN must not round to infinity
    const auto chosen = hn::BitCast(
        du, hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, quiet), hn::BitCast(d, rounded)));
    // The upper halves; below 2^15 after the shift, or a set sign: truncated, not saturated.
    const hn::RebindToSigned<decltype(du)> di;
    const hn::Rebind<std::int16_t, decltype(di)> di16;
    const auto upper = hn::ShiftRight<16>(hn::BitCast(di, chosen));  // sign-extended: fits int16
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(di16, upper)), d16, bits + i);
  }
  for (; i < count; ++i) to[i] = RoundToBFloat16(from[i]);
}

void NarrowToFloat16(const float* from, std::size_t count, Float16* to) {
  std::size_t i = 0;
  if constexpr (kHasF16Conversion) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> d16;
    auto* halves = reinterpret_cast<hwy::float16_t*>(to);
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
      hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, from + i)), d16, halves + i);
    }
  }
  for (; i < count; ++i) to[i] = RoundToFloat16(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(WidenFloat16);
HWY_EXPORT(NarrowToBFloat16);
HWY_EXPORT(NarrowToFloat16);

// A row of S read into T, element by element.
template <class S, class T>
void ReadElements(const void* from, Index stride, std::size_t count, T* to) {
  const auto* source = static_cast<const S*>(from);
  if constexpr (std::is_arithmetic_v<S>) {
    if (stride == 1) {  // a loop that the compiler turns into vectors
      for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<T>(source[i]);
      return;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const S& element = source[static_cast<Index>(i) * stride];
    if constexpr (std::is_arithmetic_v<S>) {
      to[i] = static_cast<T>(element);
    } else {
      to[i] = static_cast<T>(ToDouble(element));
    }
  }
}

template <class T>
void WriteElements(const T* from, std::size_t count, DType dtype, void* to, Index stride) {
  if (stride == 1 && dtype == DType::kF32) {
    auto* const out = static_cast<float*>(to);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(from[i]);
    return;
  }
  if (stride == 1 && dtype == DType::kF64) {
    auto* const out = static_cast<double*>(to);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<double>(from[i]);
    return;
  }
  const auto at = [&](std::size_t i) {
    return static_cast<std::byte*>(to) +
           static_cast<Index>(i) * stride * static_cast<Index>(SizeOf(dtype));
  };
  for (std::size_t i = 0; i < count; ++i) WriteElement(static_cast<double>(from[i]), dtype, at(i));
}

}  // namespace

template <class T>
void ReadRow(DType dtype, const void* from, Index stride, std::size_t count, T* to) {
  const bool dense = stride == 1 && count > 0;
  if constexpr (sizeof(T) == sizeof(float)) {
    if (dense && dtype == DType::kF32) {
      std::memcpy(to, from, count * sizeof(float));
      return;
    }
    if (dense && dtype == DType::kBF16) {
      return HWY_DYNAMIC_DISPATCH(WidenBFloat16)(static_cast<const BFloat16*>(from), count, to);
    }
    if (dense && dtype == DType::kF16) {
      return HWY_DYNAMIC_DISPATCH(WidenFloat16)(static_cast<const Float16*>(from), count, to);
    }
  }
  switch (dtype) {
    case DType::kF64:
      return ReadElements<double>(from, stride, count, to);
    case DType::kF32:
      return ReadElements<float>(from, stride, count, to);
    case DType::kBF16:
      return ReadElements<BFloat16>(from, stride, count, to);
    case DType::kF16:
      return ReadElements<Float16>(from, stride, count, to);
    case DType::kI32:
      return ReadElements<std::int32_t>(from, stride, count, to);
    case DType::kBool:
      return ReadElements<std::uint8_t>(from, stride, count, to);
  }
}

template <class T>
void WriteRow(const T* from, std::size_t count, DType dtype, void* to, Index stride) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (stride == 1 && count > 0 && dtype == DType::kF32) {
      std::memcpy(to, from, count * sizeof(float));
      return;
    }
    if (stride == 1 && dtype == DType::kBF16) {
      return HWY_DYNAMIC_DISPATCH(NarrowToBFloat16)(from, count, static_cast<BFloat16*>(to));
    }
    if (stride == 1 && dtype == DType::kF16) {
      return HWY_DYNAMIC_DISPATCH(NarrowToFloat16)(from, count, static_cast<Float16*>(to));
    }
  }
  WriteElements(from, count, dtype, to, stride);
}

double ReadElement(DType dtype, const void* at) {
  double value = 0.0;
  ReadRow(dtype, at, 1, 1, &value);
  return value;
}

void WriteElement(double value, DType dtype, void* at) {
  switch (dtype) {
    case DType::kF64:
      *static_cast<double*>(at) = value;
      break;
    case DType::kF32:
      *static_cast<float*>(at) = static_cast<float>(value);
      break;
    case DType::kBF16:
      *static_cast<BFloat16*>(at) = RoundToBFloat16(value);
      break;
    case DType::kF16:
      *static_cast<Float16*>(at) = RoundToFloat16(value);
      break;
    case DType::kI32:
    case DType::kBool:
      break;  // no kernel writes them
  }
}

template void ReadRow(DType, const void*, Index, std::size_t, float*);
template void ReadRow(DType, const void*, Index, std::size_t, double*);
template void WriteRow(const float*, std::size_t, DType, void*, Index);
template void WriteRow(const double*, std::size_t, DType, void*, Index);

}  // namespace attest
#endif  // HWY_ONCE
