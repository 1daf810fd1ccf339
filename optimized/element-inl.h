// SPDX-License-Identifier: Apache-2.0
// Vectors of float or double from and to arrays of a storage type.
//
// Computes: LoadElements widens exactly; StoreElements rounds to nearest, ties to even: the same
//   type, float to bfloat16 and binary16, double to float.
// Shapes: one vector of a tag of up to one register, at any address.
// Rounding points: StoreElements, once. Overflow gives an infinity, underflow is gradual, a NaN a
//   quiet NaN.
// Bound: 0.5 ULP of the storage type; equal to RoundToBFloat16 and RoundToFloat16 of core/dtype.h
//   for every float.
// Measured: Elements.RoundAsCoreDoes of properties/softmax_test.cc compares them on every target.
//
// Highway 1.0.3 does not serve: its bfloat16 conversion truncates, and its binary16 ones are right
// on AVX2 and AVX3 only.
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ELEMENT_INL_H_
#undef ATTEST_OPTIMIZED_ELEMENT_INL_H_
#else
#define ATTEST_OPTIMIZED_ELEMENT_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bits of a binary16 number, in the low half of each lane, to its value.
template <class D, class VU>
HWY_INLINE hn::Vec<D> ValueOfFloat16(D d, VU bits) {
  const hn::RebindToUnsigned<D> du;
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
  // The exponent's bias differs by 112; the product makes subnormal numbers normal.
  const auto value = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  const auto special = hn::IfThenElseZero(hn::Ge(value, hn::Set(d, 65536.0f)),
                                          hn::BitCast(d, hn::Set(du, 0x7f800000)));
  const auto sign = hn::BitCast(d, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000))));
  return hn::Or(hn::Or(value, special), sign);
}

template <class D, class VU>
HWY_INLINE VU BitsOfFloat16(D d, VU bits) {
  const hn::RebindToUnsigned<D> du;
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000));
  const auto magnitude = hn::Xor(bits, sign);
  // Normal results: add half of the last place, less one bit where the last bit is 0.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const auto normal =
      hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(du, 0xfffu - (112u << 23))), odd));
  // Subnormal ones: the addition of 1/2 rounds at 2^-24.
  const auto half = hn::Set(d, 0.5f);
  const auto tiny =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(du, half));
  const auto value = hn::BitCast(d, magnitude);
  auto rounded = hn::IfThenElse(hn::Lt(value, hn::Set(d, 0x1p-14f)), hn::BitCast(d, tiny),
                                hn::BitCast(d, normal));
  rounded = hn::IfThenElse(hn::Ge(value, hn::Set(d, 65536.0f)), hn::BitCast(d, hn::Set(du, 0x7c00)),
                           rounded);
  rounded = hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, hn::Set(du, 0x7e00)), rounded);
  return hn::Or(hn::BitCast(du, rounded), hn::ShiftRight<16>(sign));
}

template <class D, class VU>
HWY_INLINE VU BitsOfBFloat16(D d, VU bits) {
  const hn::RebindToUnsigned<D> du;
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000));
  return hn::ShiftRight<16>(
      hn::BitCast(du, hn::IfThenElse(hn::IsNaN(hn::BitCast(d, bits)), hn::BitCast(d, quiet),
                                     hn::BitCast(d, rounded))));
}

template <class D, class Element>
HWY_INLINE hn::Vec<D> LoadElements(D d, const Element* from) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, Element>) {
    return hn::LoadU(d, from);
  } else if constexpr (std::is_same_v<Element, float>) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
  } else {
    static_assert(std::is_same_v<T, float> && sizeof(Element) == 2);
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bits =
        hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from)));
    if constexpr (std::is_same_v<Element, BFloat16>) {
      return hn::BitCast(d, hn::ShiftLeft<16>(bits));
    } else {
      return ValueOfFloat16(d, bits);
    }
  }
}

template <class D, class Element>
HWY_INLINE void StoreElements(D d, hn::Vec<D> v, Element* to) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, Element>) {
    hn::StoreU(v, d, to);
  } else if constexpr (std::is_same_v<Element, float>) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
    // Their DemoteTo turns infinities into the largest float.
    HWY_ALIGN T lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<float>(lanes[i]);
#else
    const hn::Rebind<float, D> df;
    hn::StoreU(hn::DemoteTo(df, v), df, to);
#endif
  } else {
    static_assert(std::is_same_v<T, float> && sizeof(Element) == 2);
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    auto bits = hn::BitCast(du, v);
    if constexpr (std::is_same_v<Element, BFloat16>) {
      bits = BitsOfBFloat16(d, bits);
    } else {
      bits = BitsOfFloat16(d, bits);
    }
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16, reinterpret_cast<std::uint16_t*>(to));
  }
}

// -infinity of a storage type.
template <class Element>
constexpr Element MinusInfinity() {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return BFloat16{0xff80};
  } else if constexpr (std::is_same_v<Element, Float16>) {
    return Float16{0xfc00};
  } else {
    return -std::numeric_limits<Element>::infinity();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
