// SPDX-License-Identifier: Apache-2.0
// The natural logarithm of float and double vectors.
//
// Computes: ln x. With x = 2^k m, sqrt(1/2) <= m < sqrt(2), f = m - 1 (exact), s = f / (2 + f) and
//   z = s^2, ln m = 2 atanh(s) = f - f^2/2 + s (f^2/2 + R(z)), where R(z) = 2 (atanh(s) - s) / s is
//   z times a polynomial of degree 3 (float) or 6 (double), a minimax fit as in
//   optimized/exp-inl.h; truncation error 2^-34.2, 2^-58.4 absolute (the form is that of Cody and
//   Waite 1980, ch. 5). ln(+-0) = -inf, ln(+inf) = +inf, ln 1 = +0, negative x and NaN give NaN.
// Shapes: one vector of any float or double tag; lanes do not interact.
// Rounding points: s, z, f^2/2, each step of the polynomial, products with k (k ln2_high is exact),
//   and the sums from the smallest term to the largest. Reproducible: the same bits on every
//   target.
// Bound: 1 ULP on paper (docs/functions.md). ULP = |got - exact| / ulp(exact).
// Measured: properties/functions_test.cc: every float of 2^-3 <= x < 2^4, 0.839897 at 0x1.69cf3ep+0
//   in every mode; doubles 0.824241 at 0x1.68301d015f1bdp+0.

#include "optimized/exp-inl.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_LOG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_LOG_INL_H_
#undef ATTEST_OPTIMIZED_LOG_INL_H_
#else
#define ATTEST_OPTIMIZED_LOG_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct LogConstants;
template <>
struct LogConstants<float> {
  static constexpr std::int32_t kSqrtHalf = 0x3f3504f3;  // bits of the smallest m
  static constexpr float kSmallestNormal = 0x1p-126f;
  static constexpr float kCoefficients[] = {0x1.555554p-1f, 0x1.999c26p-2f, 0x1.23d3d6p-2f,
                                            0x1.f13ecep-3f};
};
template <>
struct LogConstants<double> {
  static constexpr std::int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  static constexpr double kSmallestNormal = 0x1p-1022;
  static constexpr double kCoefficients[] = {
      0x1.5555555555592p-1, 0x1.999999997ff2ep-2, 0x1.24924941e0580p-2, 0x1.c71c5214bd242p-3,
      0x1.74663cece8f1dp-3, 0x1.39a1e6c21c636p-3, 0x1.2f03e1fd3e8f3p-3};
};

template <class Policy, class D>
HWY_INLINE hn::Vec<D> Log(Policy policy, D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  using Bits = FloatBits<T>;
  using Constants = LogConstants<T>;
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;

  // Subnormal numbers are brought into the normal range first.
  const auto small = hn::Lt(x, hn::Set(d, Constants::kSmallestNormal));
  constexpr T kUp = static_cast<T>(std::int64_t{1} << (Bits::kMantissa + 1));
  const V scaled = hn::IfThenElse(small, hn::Mul(x, hn::Set(d, kUp)), x);
  const V offset = hn::IfThenElseZero(small, hn::Set(d, T{Bits::kMantissa + 1}));

  // The exponent counts from sqrt(1/2): k + kBias in front, the mantissa's bits over those of
  // sqrt(1/2) behind.
  using Integer = hn::TFromD<decltype(di)>;
  constexpr Integer kOne = Integer{Bits::kBias} << Bits::kMantissa;
  constexpr Integer kFraction = (Integer{1} << Bits::kMantissa) - 1;
  const auto moved = hn::Add(hn::BitCast(di, scaled), hn::Set(di, kOne - Constants::kSqrtHalf));
  const auto biased = hn::BitCast(di, hn::ShiftRight<Bits::kMantissa>(hn::BitCast(du, moved)));
  const V shifter = hn::Set(d, Bits::kShifter);
  const V k = hn::Sub(hn::Sub(hn::BitCast(d, hn::Add(biased, hn::BitCast(di, shifter))), shifter),
                      hn::Add(offset, hn::Set(d, T{Bits::kBias})));
  const auto fraction = hn::And(moved, hn::Set(di, kFraction));
  const V m = hn::BitCast(d, hn::Add(fraction, hn::Set(di, Constants::kSqrtHalf)));

  const V f = hn::Sub(m, hn::Set(d, T{1}));
  const V s = hn::Div(f, hn::Add(hn::Set(d, T{2}), f));
  const V z = hn::Mul(s, s);
  const V r = hn::Mul(z, Polynomial(policy, d, z, Constants::kCoefficients));
  const V half_square = hn::Mul(hn::Mul(hn::Set(d, T{0.5}), f), f);
  const V k_low = hn::Mul(k, hn::Set(d, ExpConstants<T>::kLn2Low));
  const V k_high = hn::Mul(k, hn::Set(d, ExpConstants<T>::kLn2High));  // exact
  const V tail = MulAdd(policy, d, s, hn::Add(half_square, r), k_low);
  const V y = hn::Add(k_high, hn::Sub(f, hn::Sub(half_square, tail)));

  const V infinity = hn::Inf(d);
  const V below = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), hn::NaN(d));
  const V special = hn::IfThenElse(hn::Le(x, hn::Zero(d)), below, x);  // +inf and NaN stay
  const auto usual = hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity));
  return hn::IfThenElse(usual, y, special);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
