// SPDX-License-Identifier: Apache-2.0
// The exponential of a softmax: 2^(s - m), and the shift m that makes it safe.
//
// Computes: 2^y for y <= 0, of floats, doubles, or doubles rounded to float.
// Shapes: one vector; lanes do not interact.
// Rounding points: those of Exp2 (optimized/exp2-inl.h) for floats and of Exp2OfAny
// (optimized/exp-inl.h)
//   for doubles. From doubles to float: y - round(y) once, which is exact in double, and the
//   polynomial.
// Bound: 0.83 ULP; from doubles 1.1 ULP, 0.25 of it from the rounded fraction.
// Measured: optimized/exp2-inl.h, optimized/exp-inl.h.

#include <limits>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_WEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_WEIGHT_INL_H_
#undef ATTEST_OPTIMIZED_WEIGHT_INL_H_
#else
#define ATTEST_OPTIMIZED_WEIGHT_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/exp-inl.h"
#include "optimized/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The maximum, or 0 where it is -infinity: what is subtracted, so that no score at all gives
// 2^(-inf - 0) = 0 instead of NaN.
template <class D, class Vec = hn::Vec<D>>
HWY_INLINE Vec ShiftOf(D d, Vec max) {
  const Vec none = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  return hn::IfThenElseZero(hn::Ne(max, none), max);
}

// 2^y for y <= 0; 0 for -infinity, NaN for NaN.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> WeightOf(Policy policy, D d, hn::Vec<D> y) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
    return Exp2(policy, d, y);
  } else {
    return Exp2OfAny(policy, d, y);
  }
}

// The same of two vectors of doubles, rounded to one of floats.
template <class D, class VecD>
HWY_INLINE hn::Vec<D> WeightsOf(D d, VecD low, VecD high) {
  const hn::Half<D> dh;
  const hn::ScalableTag<double> dd;
  const hn::RebindToSigned<D> di;
  const VecD lowest = hn::Set(dd, -200.0);  // 2^-200 is 0 in float
  low = ClampBelow(dd, lowest, low);
  high = ClampBelow(dd, lowest, high);
  const VecD low_n = hn::Round(low);
  const VecD high_n = hn::Round(high);
  // The fractions are exact in double; rounding one to float changes the result by 2^-26 ln 2.
  const hn::Vec<D> f = hn::Combine(d, hn::DemoteTo(dh, hn::Sub(high, high_n)),
                                   hn::DemoteTo(dh, hn::Sub(low, low_n)));
  const auto n =
      hn::ConvertTo(di, hn::Combine(d, hn::DemoteTo(dh, high_n), hn::DemoteTo(dh, low_n)));
  // 2^n may not be a normal float, its two halves are.
  const auto bias = hn::Set(di, 127);
  const auto half = hn::ShiftRight<1>(n);
  const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::Mul(hn::Mul(Exp2Polynomial(Accurate(), d, f), first), second);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
