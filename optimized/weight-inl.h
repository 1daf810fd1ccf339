// SPDX-License-Identifier: Apache-2.0
// The exponential of a softmax: 2^(s - m), and the shift m that makes it safe.
//
// Computes: 2^y for y <= 0, of floats, doubles, or doubles rounded to float.
// Shapes: one vector; lanes do not interact.
// Rounding points: those of Exp2 (optimized/exp2-inl.h) for floats and of Exp2OfAny
//   (optimized/exp-inl.h) for doubles. From doubles to float: y once, and those of Exp2.
// Bound: that of Exp2; from doubles |y| ln 2 u more, relative.
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
  return hn::IfThenZeroElse(hn::Eq(max, none), max);
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

#if HWY_TARGET != HWY_SCALAR  // which has vectors of one lane only

// The same of two vectors of doubles, in float. What the rounding of y to float costs is |y| ln 2 u
// of the weight, which for large |y| is next to nothing beside the row's largest weight.
template <class D, class VecD>
HWY_INLINE hn::Vec<D> WeightsOf(D d, VecD low, VecD high) {
  const hn::Half<D> dh;
  const auto y = hn::Combine(d, hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
  return Exp2(Fast(), d, y);
}

#endif  // HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
