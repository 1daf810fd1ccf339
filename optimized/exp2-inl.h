// SPDX-License-Identifier: Apache-2.0
// The power of two of float vectors: the inner loop of every softmax here.
//
// Computes: 2^y for y <= 127.5. With n = round(y), ties to even, and f = y - n (exact):
//     2^y = 2^n (1 + c1 f + c2 f^2 + ... + c6 f^6).
//   The coefficients are a minimax fit of the relative error on [-1/2, 1/2] with c0 = 1, rounded to
//   float one by one, each followed by a new fit of those that remain; truncation error
//   0.050 * 2^-24. y = -inf gives +0, a NaN a NaN; every integer y an exact power of two.
//   y > 127.5 gives any value. Fast on AVX3 takes 16 values from a table instead (Exp2ByTable).
// Shapes: one vector of any float tag; lanes do not interact.
// Rounding points: each step of the polynomial, to float; a subnormal result once more. Fast, on
//   targets other than AVX3: results of y < -126.5 are 0.
//   Otherwise underflow is gradual; Reproducible: the same bits on every target.
// Bound: 0.88 ULP by exhaustion, for results that are not flushed. ULP = |got - exact| /
// ulp(exact),
//   2^-149 for subnormal results, which have the largest errors.
// Measured: every float of 2^-14 <= |y| <= 127.5, Exhaustive.EveryFloat of
//   properties/functions_test.cc: 0.878363 at -0x1.f9fc6ap+6 (fused), 0.837536 at 0x1.fe3a54p-2
//   (SSE4, not Reproducible), 0.854412 at -0x1.f98784p+6 (Fast on AVX3).

#include <cstdint>
#include <type_traits>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_EXP2_INL_H_
#undef ATTEST_OPTIMIZED_EXP2_INL_H_
#else
#define ATTEST_OPTIMIZED_EXP2_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x86's maximum and minimum return their second operand for a NaN, those of EMU128 and SCALAR the
// other one than the NaN.
#undef ATTEST_MAX_KEEPS_SECOND_NAN
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#define ATTEST_MAX_KEEPS_SECOND_NAN 1
#else
#define ATTEST_MAX_KEEPS_SECOND_NAN 0
#endif

// x, but at least `lowest`; a NaN stays.
template <class D>
HWY_INLINE hn::Vec<D> ClampBelow(D /*d*/, hn::Vec<D> lowest, hn::Vec<D> x) {
#if ATTEST_MAX_KEEPS_SECOND_NAN
  return hn::Max(lowest, x);
#else
  return hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
#endif
}

// x, but at most `highest`; a NaN stays.
template <class D>
HWY_INLINE hn::Vec<D> ClampAbove(D /*d*/, hn::Vec<D> highest, hn::Vec<D> x) {
#if ATTEST_MAX_KEEPS_SECOND_NAN
  return hn::Min(highest, x);
#else
  return hn::IfThenElse(hn::Gt(x, highest), highest, x);
#endif
}

// Adding this rounds |x| < 2^22 (2^51) to an integer, ties to even, and leaves that in the last
// bits of the sum, on top of kBias.
template <class T>
struct FloatBits;
template <>
struct FloatBits<float> {
  static constexpr int kBias = 127;
  static constexpr int kMantissa = 23;
  static constexpr float kShifter = 0x1.8p23f;
};
template <>
struct FloatBits<double> {
  static constexpr int kBias = 1023;
  static constexpr int kMantissa = 52;
  static constexpr double kShifter = 0x1.8p52;
};

// x 2^n, rounded once where the result is subnormal, for the integer n that a sum with kShifter
// ends in; n is at most about twice an exponent of a normal number.
template <class D>
HWY_INLINE hn::Vec<D> ScaleInHalves(D d, hn::Vec<D> x, hn::Vec<D> shifted) {
  using Bits = FloatBits<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  const auto bias = hn::Set(di, Bits::kBias);
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, hn::Set(d, Bits::kShifter)));
  // 2^n itself may not be a normal number, its two halves are.
  const auto half = hn::ShiftRight<1>(n);
  const auto high = hn::ShiftLeft<Bits::kMantissa>(hn::Add(half, bias));
  const auto low = hn::ShiftLeft<Bits::kMantissa>(hn::Add(hn::Sub(n, half), bias));
  return hn::Mul(hn::Mul(x, hn::BitCast(d, high)), hn::BitCast(d, low));
}

#undef ATTEST_HAS_SCALE_INSTRUCTIONS
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define ATTEST_HAS_SCALE_INSTRUCTIONS 1
#else
#define ATTEST_HAS_SCALE_INSTRUCTIONS 0
#endif

#if ATTEST_HAS_SCALE_INSTRUCTIONS

// x - round(x), ties to even, and 0 for an infinity.
template <class D>
HWY_INLINE hn::Vec<D> Fraction(D /*d*/, hn::Vec<D> x) {
  using V = hn::Vec<D>;
  static_assert(std::is_same_v<hn::TFromD<D>, float>);
  if constexpr (sizeof(V) == 64) {
    return V{_mm512_reduce_ps(x.raw, _MM_FROUND_NO_EXC)};
  } else if constexpr (sizeof(V) == 32) {
    return V{_mm256_reduce_ps(x.raw, _MM_FROUND_NO_EXC)};
  } else {
    return V{_mm_reduce_ps(x.raw, _MM_FROUND_NO_EXC)};
  }
}

// x 2^floor(n) for any n, rounded once where the result is subnormal.
template <class D>
HWY_INLINE hn::Vec<D> Scale(D /*d*/, hn::Vec<D> x, hn::Vec<D> n) {
  using V = hn::Vec<D>;
  constexpr bool kFloat = std::is_same_v<hn::TFromD<D>, float>;
  if constexpr (sizeof(V) == 64) {
    if constexpr (kFloat)
      return V{_mm512_scalef_ps(x.raw, n.raw)};
    else
      return V{_mm512_scalef_pd(x.raw, n.raw)};
  } else if constexpr (sizeof(V) == 32) {
    if constexpr (kFloat)
      return V{_mm256_scalef_ps(x.raw, n.raw)};
    else
      return V{_mm256_scalef_pd(x.raw, n.raw)};
  } else {
    if constexpr (kFloat)
      return V{_mm_scalef_ps(x.raw, n.raw)};
    else
      return V{_mm_scalef_pd(x.raw, n.raw)};
  }
}

// The 512-bit register that begins with these lanes (the others are undefined), and back.
HWY_INLINE __m512 Widen(hn::Vec512<float> x) { return x.raw; }
HWY_INLINE __m512 Widen(hn::Vec256<float> x) { return _mm512_castps256_ps512(x.raw); }
template <std::size_t kLanes>
HWY_INLINE __m512 Widen(hn::Vec128<float, kLanes> x) {
  return _mm512_castps128_ps512(x.raw);
}
HWY_INLINE hn::Vec512<float> Narrow(hn::Full512<float> /*d*/, __m512 x) {
  return hn::Vec512<float>{x};
}
HWY_INLINE hn::Vec256<float> Narrow(hn::Full256<float> /*d*/, __m512 x) {
  return hn::Vec256<float>{_mm512_castps512_ps256(x)};
}
template <std::size_t kLanes>
HWY_INLINE hn::Vec128<float, kLanes> Narrow(hn::Simd<float, kLanes, 0> /*d*/, __m512 x) {
  return hn::Vec128<float, kLanes>{_mm512_castps512_ps128(x)};
}

// 2^y by 16 values in one register. With k = floor(16 y) / 16 and f = y - k in [0, 1/16]:
//     2^y = 2^floor(y) (s + s p),  s = 2^(k mod 1) (1 + delta),  p = 2^f / (1 + delta) - 1,
// p of degree 3, truncation error 0.020 * 2^-24. delta = 0x1.43e30017p-11 is chosen such that all
// 16 values of s are within 0.188 ULP of floats, where those for delta = 0 are up to 0.45 off.
HWY_INLINE __m512 Exp2ByTable(__m512 y) {
  const __m512 table = _mm512_setr_ps(0x1.00287cp0f, 0x1.0b7fcep0f, 0x1.1757aap0f, 0x1.23b5c2p0f,
                                      0x1.30a006p0f, 0x1.3e1cacp0f, 0x1.4c322ep0f, 0x1.5ae752p0f,
                                      0x1.6a4328p0f, 0x1.7a4d12p0f, 0x1.8b0cc4p0f, 0x1.9c8a4cp0f,
                                      0x1.aece10p0f, 0x1.c1e0d8p0f, 0x1.d5cbcep0f, 0x1.ea9884p0f);
  // The sum, rounded down, ends in the four bits of k after the point.
  const __m512 k =
      _mm512_add_round_ps(y, _mm512_set1_ps(0x1.8p19f), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  const __m512 s = _mm512_permutexvar_ps(_mm512_castps_si512(k), table);
  const __m512 f = _mm512_reduce_ps(y, 4 << 4 | _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0x1.d049cep-5f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.eb95a0p-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62ac2cp-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(-0x1.43aff6p-11f));
  return _mm512_scalef_ps(_mm512_fmadd_ps(s, p, s), y);  // 2^y counts as 2^floor(y)
}

#endif  // ATTEST_HAS_SCALE_INSTRUCTIONS

// 2^f for |f| <= 1/2.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> Exp2Polynomial(Policy policy, D d, hn::Vec<D> f) {
  hn::Vec<D> p = hn::Set(d, 0x1.417a70p-13f);
  p = MulAdd(policy, d, p, f, hn::Set(d, 0x1.5f0948p-10f));
  p = MulAdd(policy, d, p, f, hn::Set(d, 0x1.3b2dd2p-7f));
  p = MulAdd(policy, d, p, f, hn::Set(d, 0x1.c6af7ap-5f));
  p = MulAdd(policy, d, p, f, hn::Set(d, 0x1.ebfbdcp-3f));
  if constexpr (HWY_NATIVE_FMA || kModeOf<Policy> == Mode::kReproducible) {
    p = MulAdd(policy, d, p, f, hn::Set(d, 0x1.62e430p-1f));
    return MulAdd(policy, d, p, f, hn::Set(d, 1.0f));
  } else {
    // Unfused, the last product is a third of the error; f/2 is exact, what remains of it small.
    p = hn::MulAdd(p, f, hn::Set(d, 0x1.62e430p-1f - 0.5f));
    p = hn::MulAdd(p, f, hn::Mul(f, hn::Set(d, 0.5f)));
    return hn::Add(hn::Set(d, 1.0f), p);
  }
}

// 2^y for y <= 127.5.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> Exp2(Policy policy, D d, hn::Vec<D> y) {
#if ATTEST_HAS_SCALE_INSTRUCTIONS
  if constexpr (kModeOf<Policy> == Mode::kFast) {
    return Narrow(d, Exp2ByTable(Widen(y)));
  } else {
    const hn::Vec<D> f = Fraction(d, y);
    return Scale(d, Exp2Polynomial(policy, d, f), hn::Sub(y, f));
  }
#else
  using V = hn::Vec<D>;
  constexpr bool kGradual = kModeOf<Policy> != Mode::kFast;
  const V clamped = ClampBelow(d, hn::Set(d, kGradual ? -151.0f : -127.0f), y);
  // Flushed, the sum ends in n + 127, the bits of 2^n (0 for n = -127).
  const V shifter = hn::Set(d, FloatBits<float>::kShifter + (kGradual ? 0.0f : 127.0f));
  const V shifted = hn::Add(clamped, shifter);
  const V f = hn::Sub(clamped, hn::Sub(shifted, shifter));
  const V p = Exp2Polynomial(policy, d, f);
  if constexpr (kGradual) return ScaleInHalves(d, p, shifted);
  const hn::RebindToSigned<D> di;
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
