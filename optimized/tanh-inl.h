// SPDX-License-Identifier: Apache-2.0
// The hyperbolic tangent of float and double vectors.
//
// Computes: tanh x = t / (t + 2) with t = exp(2|x|) - 1, and the sign of x. With n and r of
//   optimized/exp-inl.h for 2|x|, t = (2^n - 1) + 2^n (r + r^2 (c2 + c3 r + ...)), kept in two
//   parts, as is t + 2; the quotient q of the first parts is corrected by (t_low - q (t + 2)_low) /
//   (t + 2). An error of t counts 2 / (t + 2) < 1 times. tanh(+-0) = +-0, tanh(+-inf) = +-1, a NaN
//   a NaN.
// Shapes: one vector of any float or double tag; lanes do not interact.
// Rounding points: those of ExpTail; q and the last sum, both to the type, are what counts; 2^n - 1
//   is rounded where 2^n is beyond the precision, which tanh does not see. Reproducible: the same
//   bits on every target.
// Bound: 1.6 ULP on paper (docs/functions.md). ULP = |got - exact| / ulp(exact), 2^(emin-p+1) for
//   subnormal results.
// Measured: properties/functions_test.cc: every float of 2^-14 <= |x| < 2^4, 1.375596 at
//   0x1.ff7a42p-5 in every mode; doubles 1.217263 at 0x1.76cade34b942ap-3.

#include "optimized/exp-inl.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_TANH_INL_H_
#undef ATTEST_OPTIMIZED_TANH_INL_H_
#else
#define ATTEST_OPTIMIZED_TANH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Policy, class D>
HWY_INLINE hn::Vec<D> Tanh(Policy policy, D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  using Bits = FloatBits<T>;
  const hn::RebindToSigned<D> di;
  // From here on tanh is 1 to the precision.
  const V one_from = hn::Set(d, sizeof(T) == sizeof(float) ? T{9.5} : T{20});
  const V size = ClampAbove(d, one_from, hn::Abs(x));
  const ReducedArgument<D> r = ReduceByLn2(d, hn::Add(size, size));
  const V tail = ExpTail(policy, d, r.high, r.low);

  // t = high + low. 2^n - 1 is 0 or above the product, so that the error of their sum is exact.
  const auto n = hn::Sub(hn::BitCast(di, r.shifted), hn::BitCast(di, hn::Set(d, Bits::kShifter)));
  const V power =
      hn::BitCast(d, hn::ShiftLeft<Bits::kMantissa>(hn::Add(n, hn::Set(di, Bits::kBias))));
  const V whole = hn::Sub(power, hn::Set(d, T{1}));
  const V part = hn::Mul(power, r.high);
  const V sum = hn::Add(whole, part);
  const V sum_low = hn::Add(hn::Sub(part, hn::Sub(sum, whole)), hn::Mul(power, tail));
  const V high = hn::Add(sum, sum_low);
  const V low = hn::Sub(sum_low, hn::Sub(high, sum));

  // t + 2 likewise; the larger one first.
  const V two = hn::Set(d, T{2});
  const V below = hn::Add(high, two);
  const V large = hn::Max(high, two);
  const V below_low = hn::Add(hn::Sub(hn::Min(high, two), hn::Sub(below, large)), low);
  const V quotient = hn::Div(high, below);
  const V correction = hn::Div(hn::Sub(low, hn::Mul(quotient, below_low)), below);
  return hn::CopySign(hn::Add(quotient, correction), x);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
