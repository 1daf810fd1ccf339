// SPDX-License-Identifier: Apache-2.0
// Multiply-add of a policy (optimized/mode.h).
//
// Computes: MulAdd = a b + c, NegMulAdd = c - a b. Fast and Accurate: hn::MulAdd, which is fused
//   where the target has it. Reproducible: always fused, that is rounded once.
// Shapes: one vector of any float or double tag of up to one register; lanes do not interact.
// Rounding points: one; for Fast and Accurate on SSE4, SSSE3, EMU128 and SCALAR two.
//   Reproducible without a fused instruction, float: the product is exact in double (48 bits,
//   exponents -298 to 256); the sum is rounded to odd in double, which has more than 24 + 2 bits,
//   so that its rounding to float is that of the exact value, subnormals included (Boldo and
//   Melquiond 2008, Thm 2). Double, and every type on EMU128 and SCALAR: std::fma, lane by lane.
// Bound: Reproducible 0.5 ULP, equal to std::fma in every bit; a NaN result is some NaN.
// Measured: Arithmetic.ReproducibleMulAddIsStdFma of properties/arithmetic_test.cc compares every
//   target with std::fma.
#include <cmath>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ARITHMETIC_INL_H_
#undef ATTEST_OPTIMIZED_ARITHMETIC_INL_H_
#else
#define ATTEST_OPTIMIZED_ARITHMETIC_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/mode.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_FMA

template <class D, class V>
HWY_INLINE V FusedMulAdd(D /*d*/, V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}

#else  // HWY_NATIVE_FMA

template <class D, class V>
HWY_INLINE V FusedMulAddByLane(D d, V a, V b, V c) {
  HWY_ALIGN hn::TFromD<D> x[hn::MaxLanes(d)];
  HWY_ALIGN hn::TFromD<D> y[hn::MaxLanes(d)];
  HWY_ALIGN hn::TFromD<D> z[hn::MaxLanes(d)];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
}

// a b + c in double for floats a, b, c, rounded to odd: where the rounded sum s is not exact, the
// neighbour of the exact value that has an odd last bit.
template <class DD, class VF>
HWY_INLINE hn::Vec<DD> MulAddToOdd(DD dd, VF a, VF b, VF c) {
  using V = hn::Vec<DD>;
  const hn::RebindToUnsigned<DD> du;
  const V p = hn::Mul(hn::PromoteTo(dd, a), hn::PromoteTo(dd, b));  // exact
  const V z = hn::PromoteTo(dd, c);
  const V s = hn::Add(p, z);
  const V t = hn::Sub(s, p);
  const V error = hn::Add(hn::Sub(p, hn::Sub(s, t)), hn::Sub(z, t));  // TwoSum: s + error = p + z
  // Toward zero, then one into the last bit. Infinities and NaNs have a NaN error and stay.
  const auto opposed = hn::ShiftRight<63>(hn::BitCast(du, hn::Xor(s, error)));
  const auto odd = hn::Or(hn::Sub(hn::BitCast(du, s), opposed), hn::Set(du, 1));
  return hn::IfThenElse(hn::Gt(hn::Abs(error), hn::Zero(dd)), hn::BitCast(dd, odd), s);
}

// Out of line: a polynomial of these, inlined, is a thousand instructions.
template <class D, class V>
HWY_NOINLINE V FusedMulAdd(D d, V a, V b, V c) {
  // The conversion of EMU128 and SCALAR turns a double beyond the floats into the largest float.
  constexpr bool kByLane = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR;
  if constexpr (kByLane || sizeof(hn::TFromD<D>) == sizeof(double)) {
    return FusedMulAddByLane(d, a, b, c);
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  } else if constexpr (hn::MaxLanes(D()) <= 2) {
    const hn::Rebind<double, D> dd;
    return hn::DemoteTo(d, MulAddToOdd(dd, a, b, c));
  } else {
    static_assert(hn::MaxLanes(D()) <= 4, "targets without a fused multiply-add have 128 bits");
    const hn::Half<D> dh;
    const hn::Rebind<double, hn::Half<D> > dd;
    const auto low =
        MulAddToOdd(dd, hn::LowerHalf(dh, a), hn::LowerHalf(dh, b), hn::LowerHalf(dh, c));
    const auto high =
        MulAddToOdd(dd, hn::UpperHalf(dh, a), hn::UpperHalf(dh, b), hn::UpperHalf(dh, c));
    return hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
#endif
  }
}

#endif  // HWY_NATIVE_FMA

// a b + c.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> MulAdd(Policy /*policy*/, D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c) {
  if constexpr (kModeOf<Policy> == Mode::kReproducible) {
    return FusedMulAdd(d, a, b, c);
  } else {
    return hn::MulAdd(a, b, c);
  }
}

// c - a b.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> NegMulAdd(Policy /*policy*/, D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c) {
  if constexpr (kModeOf<Policy> == Mode::kReproducible) {
    return FusedMulAdd(d, hn::Neg(a), b, c);
  } else {
    return hn::NegMulAdd(a, b, c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
