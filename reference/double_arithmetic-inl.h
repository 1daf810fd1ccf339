// SPDX-License-Identifier: Apache-2.0
// The numbers of rung 0: plain doubles in vectors, and what each operation may lose.
//
// Rounding points: every operation rounds once to double, MulAcc twice where multiply-add is not
//   fused. Constants below are relative to the exact result of the operation on its operands,
//   derived in docs/reference.md ("Rungs 0 and 1") and attacked by
//   properties/rung_arithmetic_test.cc.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_DOUBLE_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_DOUBLE_ARITHMETIC_INL_H_
#undef ATTEST_REFERENCE_DOUBLE_ARITHMETIC_INL_H_
#else
#define ATTEST_REFERENCE_DOUBLE_ARITHMETIC_INL_H_
#endif

#include <hwy/highway.h>

#include "reference/rung_constants.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
struct DoubleArithmetic {
  using V = hn::Vec<D>;
  using N = V;            // one number a lane
  using Accumulator = V;  // of a sum of products
  static constexpr bool kPairs = false;
  using Constants = DoubleConstants;

  static HWY_INLINE N Load(D d, const Plane& plane, std::size_t at) {
    return hn::Load(d, plane.hi + at);
  }
  static HWY_INLINE void Store(D d, N x, const Plane& plane, std::size_t at) {
    hn::Store(x, d, plane.hi + at);
  }
  static HWY_INLINE N Make(V hi, V /*lo*/) { return hi; }
  static HWY_INLINE V Hi(N x) { return x; }
  static HWY_INLINE V Lo(D d, N /*x*/) { return hn::Zero(d); }
  static HWY_INLINE N Zero(D d) { return hn::Zero(d); }
  static HWY_INLINE N Add(N a, N b) { return hn::Add(a, b); }
  static HWY_INLINE N Sub(N a, N b) { return hn::Sub(a, b); }
  static HWY_INLINE N SubDouble(N a, V b) { return hn::Sub(a, b); }
  static HWY_INLINE N Mul(N a, N b) { return hn::Mul(a, b); }
  static HWY_INLINE N Div(N a, N b) { return hn::Div(a, b); }
  static HWY_INLINE N Select(hn::Mask<D> yes, N a, N b) { return hn::IfThenElse(yes, a, b); }

  // acc += x * y.
  static HWY_INLINE Accumulator NewAccumulator(D d) { return hn::Zero(d); }
  template <bool kExactProducts>
  static HWY_INLINE void MulAcc(N x, V y, Accumulator& acc) {
    acc = hn::MulAdd(x, y, acc);
  }
  static HWY_INLINE void AddAcc(N x, Accumulator& acc) { acc = hn::Add(acc, x); }
  static HWY_INLINE N Sum(Accumulator acc) { return acc; }

  // e^x within kExp for -708 <= x <= 1, and 0 below: with n = round(x / ln 2), the Taylor
  // polynomial of degree 13 of r = x - n ln 2, |r| < 0.3466, times 2^n. The first part of
  // ln 2 has 29 bits, so that its product with n, and x minus that, are exact.
  static HWY_INLINE N Exp(D d, N x) {
    const hn::RebindToSigned<D> di;
    const V n = hn::Round(hn::Mul(x, hn::Set(d, 0x1.71547652b82fep+0)));  // log2(e)
    const V t = hn::Sub(x, hn::Mul(n, hn::Set(d, 0x1.62e42ffp-1)));
    const V r = hn::Sub(t, hn::Mul(n, hn::Set(d, -0x1.718432a1b0e26p-35)));
    V p = hn::Set(d, 1.0 / 6227020800.0);
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 479001600.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 39916800.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 3628800.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 362880.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 40320.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 5040.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 720.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 120.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 24.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0 / 6.0));
    p = hn::MulAdd(p, r, hn::Set(d, 0.5));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0));
    const auto scale = hn::ShiftLeft<52>(hn::ConvertTo(di, n));
    const V result = hn::BitCast(d, hn::Add(hn::BitCast(di, p), scale));
    return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, Constants::kExpLowest)), result);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_DOUBLE_ARITHMETIC_INL_H_
