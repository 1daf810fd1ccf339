// SPDX-License-Identifier: Apache-2.0
// The exponential of float vectors that every kernel here uses.
//
// Computes: exp(x) for every float x. With n = round(x / ln 2) and r = x - n ln 2, |r| < 0.34661:
//     exp(x) = 2^n (1 + r + r^2 (c2 + c3 r + c4 r^2 + c5 r^3 + c6 r^4)).
//   ln 2 is split in two, the first part of 15 bits, so that its product with n is exact. The
//   coefficients are a minimax fit of the relative error with c0 = c1 = 1, rounded to float one by
//   one, each followed by a new fit of those that remain; truncation error 0.053 * 2^-24.
//   exp(-inf) = 0, exp(+-0) = 1 exactly, overflow (x > 88.7228) gives +inf, NaN gives NaN.
// Shapes: one vector of any float tag; lanes do not interact.
// Rounding points: r once (what that loses is added to the polynomial), each step of the polynomial
//   and its last two sums r + (...) and 1 + (...), all to float. Results below 2^-126 are rounded
//   once more, by the second multiplication with a power of two: underflow is gradual.
//   The bits depend only on whether MulAdd is fused (AVX2, AVX3) or not (SSE4, SSSE3, EMU128,
//   SCALAR), not on the number of lanes.
// Bound: 0.891 ULP, by exhaustion over all 2^32 floats. ULP = |got - exact| / ulp(exact), 2^-149
//   for subnormal results.
// Measured: by Exhaustive.EveryFloat of properties/exp_test.cc, which prints it under
//   ATTEST_EXHAUSTIVE=1:
//     AVX3, AVX2           x < 0: 0.865310 at -0x1.78ffdcp+2,  x > 0: 0.875030 at 0x1.f31782p+3
//     SSE4, SSSE3, EMU128  x < 0: 0.888349 at -0x1.4b00d2p+2,  x > 0: 0.890316 at 0x1.2067a6p+2
//   SCALAR gives the bits of the second line (ExpBits.DependOnlyOnWhetherMulAddIsFused, sampled).

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_EXP_INL_H_
#undef ATTEST_OPTIMIZED_EXP_INL_H_
#else
#define ATTEST_OPTIMIZED_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 2^n for -126 <= n <= 127; any other n gives some float.
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

template <class D>
HWY_INLINE hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  using V = hn::Vec<D>;
  // Beyond these the result is 0 (below 2^-150) or +inf (above 2^128). Comparisons instead of Min
  // and Max: a NaN must stay, and Highway leaves open which operand Min and Max return for one.
  const V lowest = hn::Set(d, -104.5f);
  const V highest = hn::Set(d, 89.5f);
  x = hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
  x = hn::IfThenElse(hn::Gt(x, highest), highest, x);

  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 0x1.715476p+0f)));  // log2(e)
  const V nf = hn::ConvertTo(d, n);
  const V ln2_high = hn::Set(d, 0x1.62e4p-1f);
  const V ln2_low = hn::Set(d, 0x1.7f7d1cp-20f);
  const V x1 = hn::NegMulAdd(nf, ln2_high, x);  // exact
  const V r = hn::NegMulAdd(nf, ln2_low, x1);
  const V r_low = hn::NegMulAdd(nf, ln2_low, hn::Sub(x1, r));  // what the rounding of r lost

  V q = hn::Set(d, 0x1.6a5178p-10f);                 // c6
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.12397ep-7f));  // c5
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.5558acp-5f));  // c4
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.555492p-3f));  // c3
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.fffffcp-2f));  // c2
  const V p = hn::Add(r, hn::MulAdd(q, hn::Mul(r, r), r_low));
  const V y = hn::Add(hn::Set(d, 1.0f), p);

  // -151 <= n <= 129: 2^n itself may not be a normal float, its two halves are.
  const auto half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(y, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(n, half)));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
