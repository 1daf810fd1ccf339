// SPDX-License-Identifier: Apache-2.0
// The exponential and the power of two of float and double vectors, over all arguments.
//
// Computes: exp(x + x_low) and 2^y. With n = round(x / ln 2) and r = x - n ln 2, |r| < 0.34661:
//     exp(x) = 2^n (1 + r + r^2 (c2 + c3 r + ...)),
//   float up to c6, double up to c12. ln 2 is split in two, the first part of 15 (41) bits, so that
//   its product with n is exact. The coefficients are a minimax fit of the relative error with
//   c0 = c1 = 1, rounded one by one, each followed by a new fit of those that remain; truncation
//   error 0.053 * 2^-24, 2^-63.8. 2^y: n = round(y), r = (y - n) ln 2 to twice the precision.
//   exp(-inf) = 0, exp(+-0) = 1 exactly, overflow gives +inf, a NaN a NaN; integer y gives an exact
//   power of two.
// Shapes: one vector of any float or double tag; lanes do not interact.
// Rounding points: r, what that loses is kept as r_low; each step of the polynomial; t = r_low +
//   r^2 (...); 1 + r, what that loses is added to t exactly; the last sum. Subnormal results are
//   rounded once more: underflow is gradual. Reproducible: the same bits on every target; Fast and
//   Accurate differ in fused (AVX2, AVX3) and unfused MulAdd only.
// Bound: on paper (docs/functions.md) doubles 0.72 ULP, floats 0.78; Fast and Reproducible 0.86 ULP
//   where the result is subnormal. ULP = |got - exact| / ulp(exact), 2^(emin-p+1) for subnormals.
// Measured: properties/functions_test.cc; docs/functions.md has the table. exp of floats, Accurate:
//   0.707066 at 0x1.e00788p+5 (SSE4), 0.685499 at -0x1.79050cp+2 (AVX); otherwise 0.776961 at
//   -0x1.5ebab8p+6 (SSE4), 0.770603 at -0x1.5ed25p+6 (AVX).

#include "optimized/exp2-inl.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_EXP_INL_H_
#undef ATTEST_OPTIMIZED_EXP_INL_H_
#else
#define ATTEST_OPTIMIZED_EXP_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kLowest = -104.5f;  // below exp is 0, above kHighest +inf
  static constexpr float kHighest = 89.5f;
  static constexpr float kLowestPower = -151.0f;
  static constexpr float kHighestPower = 128.5f;
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  static constexpr float kLn2 = 0x1.62e430p-1f;  // rounded, and what is missing
  static constexpr float kLn2Rest = -0x1.05c610p-29f;
  static constexpr float kCoefficients[] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558acp-5f,
                                            0x1.12397ep-7f, 0x1.6a5178p-10f};
};
template <>
struct ExpConstants<double> {
  static constexpr double kLowest = -746.0;
  static constexpr double kHighest = 710.0;
  static constexpr double kLowestPower = -1076.0;
  static constexpr double kHighestPower = 1024.5;
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa4p-1;  // 41 bits
  static constexpr double kLn2Low = -0x1.8432a1b0e2634p-43;
  static constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  static constexpr double kLn2Rest = 0x1.abc9e3b39803fp-56;
  static constexpr double kCoefficients[] = {
      0x1.0000000000000p-1,  0x1.555555555555ap-3,  0x1.5555555555530p-5,  0x1.111111110f167p-7,
      0x1.6c16c16c276f9p-10, 0x1.a01a01b1e38eep-13, 0x1.a01a014f76d86p-16, 0x1.71ddf38c96f2fp-19,
      0x1.27e594a015343p-22, 0x1.af66af1769137p-26, 0x1.1e59e370cc2a6p-29};
};

// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
template <class Policy, class D, std::size_t kCount>
HWY_INLINE hn::Vec<D> Polynomial(Policy policy, D d, hn::Vec<D> x,
                                 const hn::TFromD<D> (&c)[kCount]) {
  hn::Vec<D> p = hn::Set(d, c[kCount - 1]);
  for (std::size_t i = kCount - 1; i-- > 0;) p = MulAdd(policy, d, p, x, hn::Set(d, c[i]));
  return p;
}

// x - n ln 2 = high + low and the sum of n and kShifter, for n = round(x / ln 2).
template <class D>
struct ReducedArgument {
  hn::Vec<D> high;
  hn::Vec<D> low;
  hn::Vec<D> n;
  hn::Vec<D> shifted;
};

// Products and sums by themselves, never fused: both parts are as good, and the same everywhere.
template <class D>
HWY_INLINE ReducedArgument<D> ReduceByLn2(D d, hn::Vec<D> x) {
  using Constants = ExpConstants<hn::TFromD<D>>;
  ReducedArgument<D> reduced;
  const hn::Vec<D> shifter = hn::Set(d, FloatBits<hn::TFromD<D>>::kShifter);
  reduced.shifted = hn::Add(hn::Mul(x, hn::Set(d, Constants::kLog2E)), shifter);
  reduced.n = hn::Sub(reduced.shifted, shifter);
  const auto x1 = hn::Sub(x, hn::Mul(reduced.n, hn::Set(d, Constants::kLn2High)));  // exact
  const auto x2 = hn::Mul(reduced.n, hn::Set(d, Constants::kLn2Low));
  reduced.high = hn::Sub(x1, x2);
  reduced.low = hn::Sub(hn::Sub(x1, reduced.high), x2);
  return reduced;
}

// exp(high + low) - 1 - high for a reduced argument.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> ExpTail(Policy policy, D d, hn::Vec<D> high, hn::Vec<D> low) {
  const auto q = Polynomial(policy, d, high, ExpConstants<hn::TFromD<D>>::kCoefficients);
  return MulAdd(policy, d, q, hn::Mul(high, high), low);
}

// 1 + high + tail, rounded nearly once, times 2^n. Accurate rounds subnormal results nearly once
// too, where the product alone would round what is rounded already.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> ScaledExp(Policy /*policy*/, D d, const ReducedArgument<D>& r,
                                hn::Vec<D> tail) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  using Bits = FloatBits<T>;
  const V one = hn::Set(d, T{1});
  const V y = hn::Add(one, r.high);
  const V low = hn::Add(hn::Sub(r.high, hn::Sub(y, one)), tail);
  V sum = hn::Add(y, low);
  if constexpr (kModeOf<Policy> == Mode::kAccurate) {
    // For n <= emin = 1 - kBias the result is a multiple of 2^(emin - p + 1), that is, y + low one
    // of 2^(k - p + 1) with k = emin - n, the spacing of the numbers in [2^k, 2^(k+1)). A sum with
    // 2^k lies there for k > 0, one with 5/16 for k = 0, since 0.7 < y < 1.42.
    const hn::RebindToSigned<D> di;
    const V emin = hn::Set(d, T{1 - Bits::kBias});
    const auto n = hn::Sub(hn::BitCast(di, r.shifted), hn::BitCast(di, hn::Set(d, Bits::kShifter)));
    const V power = hn::BitCast(d, hn::ShiftLeft<Bits::kMantissa>(hn::Sub(hn::Set(di, 1), n)));
    const V offset = hn::IfThenElse(hn::Eq(r.n, emin), hn::Set(d, T{0.3125}), power);
    const V coarse = hn::Add(y, offset);
    const V rest = hn::Add(hn::Sub(y, hn::Sub(coarse, offset)), low);
    const V rounded = hn::Sub(hn::Add(coarse, rest), offset);
    sum = hn::IfThenElse(hn::Le(r.n, emin), rounded, sum);
  }
#if ATTEST_HAS_SCALE_INSTRUCTIONS
  return Scale(d, sum, r.n);
#else
  return ScaleInHalves(d, sum, r.shifted);
#endif
}

template <class Policy, class D>
HWY_INLINE hn::Vec<D> Exp(Policy policy, D d, hn::Vec<D> x) {
  using Constants = ExpConstants<hn::TFromD<D>>;
  x = ClampBelow(d, hn::Set(d, Constants::kLowest), x);
  x = ClampAbove(d, hn::Set(d, Constants::kHighest), x);
  const ReducedArgument<D> r = ReduceByLn2(d, x);
  return ScaledExp(policy, d, r, ExpTail(policy, d, r.high, r.low));
}

// exp(x + x_low) for |x_low| of an ULP of x at most; x_low must be 0 where x is infinite.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> Exp(Policy policy, D d, hn::Vec<D> x, hn::Vec<D> x_low) {
  using Constants = ExpConstants<hn::TFromD<D>>;
  x = ClampBelow(d, hn::Set(d, Constants::kLowest), x);
  x = ClampAbove(d, hn::Set(d, Constants::kHighest), x);
  const ReducedArgument<D> r = ReduceByLn2(d, x);
  const hn::Vec<D> tail = ExpTail(policy, d, r.high, r.low);
  const hn::Vec<D> v = hn::Add(hn::Add(hn::Set(d, hn::TFromD<D>{1}), r.high), tail);
  return ScaledExp(policy, d, r, MulAdd(policy, d, v, x_low, tail));  // v (1 + x_low)
}

// 2^y for every y. Exp2 of optimized/exp2-inl.h is the faster one for the floats up to 127.5.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> Exp2OfAny(Policy policy, D d, hn::Vec<D> y) {
  using Constants = ExpConstants<hn::TFromD<D>>;
  y = ClampBelow(d, hn::Set(d, Constants::kLowestPower), y);
  y = ClampAbove(d, hn::Set(d, Constants::kHighestPower), y);
  const hn::Vec<D> shifter = hn::Set(d, FloatBits<hn::TFromD<D>>::kShifter);
  ReducedArgument<D> r;
  r.shifted = hn::Add(y, shifter);
  r.n = hn::Sub(r.shifted, shifter);
  const hn::Vec<D> f = hn::Sub(y, r.n);  // exact
  const hn::Vec<D> ln2 = hn::Set(d, Constants::kLn2);
  r.high = hn::Mul(f, ln2);
  const hn::Vec<D> lost = FusedMulAdd(d, f, ln2, hn::Neg(r.high));
  r.low = MulAdd(policy, d, f, hn::Set(d, Constants::kLn2Rest), lost);
  return ScaledExp(policy, d, r, ExpTail(policy, d, r.high, r.low));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
