// SPDX-License-Identifier: Apache-2.0
// Numbers mantissa * 2^exponent over Boost.Multiprecision's integers, and bounds that round up.
//
// Private to ball_cpp_int.cc. Only integer +, -, *, / with remainder, square root with remainder
// and shifts are trusted; whether a result is exact is seen from what they leave over.
#pragma once

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>

namespace attest::dyadic {

using Integer = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<>,
                                              boost::multiprecision::et_off>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A bound m * 2^e, m 0 or infinite or in [1/2, 1]: every operation rounds up.
struct Bound {
  double m = 0.0;
  std::int64_t e = 0;

  // At least m * 2^e, also where `m` is the rounded result of one operation.
  static Bound Above(double m, std::int64_t e) {
    if (m == 0.0) return {};
    if (!(m < kInfinity)) return {kInfinity, 0};
    int shift = 0;
    m = std::frexp(m, &shift) * (1.0 + 0x1p-50);
    return {m, e + shift};
  }
  static Bound PowerOfTwo(std::int64_t exponent) { return {0.5, exponent + 1}; }

  bool IsZero() const { return m == 0.0; }
  bool IsFinite() const { return m < kInfinity; }
};

inline Bound operator+(const Bound& a, const Bound& b) {
  if (a.IsZero()) return b;
  if (b.IsZero()) return a;
  if (!a.IsFinite() || !b.IsFinite()) return {kInfinity, 0};
  if (a.e < b.e) return b + a;
  // What is shifted out of the double is less than what Above adds.
  const auto shift = static_cast<int>(std::min<std::int64_t>(a.e - b.e, 200));
  return Bound::Above(a.m + std::ldexp(b.m, -shift), a.e);
}

inline Bound operator*(const Bound& a, const Bound& b) {
  if (a.IsZero() || b.IsZero()) return {};
  return Bound::Above(a.m * b.m, a.e + b.e);
}

// The number mantissa * 2^exponent.
struct Number {
  Integer mantissa = 0;
  std::int64_t exponent = 0;

  int sign() const { return mantissa.sign(); }
  std::int64_t length() const {  // bits of the mantissa; 0 for 0
    return sign() == 0 ? 0 : static_cast<std::int64_t>(msb(abs(mantissa))) + 1;
  }
  std::int64_t top() const { return exponent + length() - 1; }  // floor(log2 |x|)
};

inline Integer ShiftLeft(const Integer& x, std::int64_t bits) {
  return x << static_cast<std::size_t>(bits);
}
inline Integer ShiftRight(const Integer& x, std::int64_t bits) {
  return x >> static_cast<std::size_t>(bits);
}

inline void DropTrailingZeros(Number* x) {
  if (x->sign() == 0) {
    x->exponent = 0;
    return;
  }
  const auto zeros = static_cast<std::int64_t>(lsb(abs(x->mantissa)));
  if (zeros == 0) return;
  // Of magnitudes: a shift of negative numbers rounds down.
  const Integer shifted = ShiftRight(abs(x->mantissa), zeros);
  x->mantissa = x->sign() < 0 ? Integer(-shifted) : shifted;
  x->exponent += zeros;
}

// Cuts `x` off after `bits` bits and adds the error to `error`.
inline void Cut(Number* x, std::int64_t bits, Bound* error) {
  DropTrailingZeros(x);
  const std::int64_t surplus = x->length() - bits;
  if (surplus <= 0) return;
  const Integer shifted = ShiftRight(abs(x->mantissa), surplus);
  x->mantissa = x->sign() < 0 ? Integer(-shifted) : shifted;
  x->exponent += surplus;
  *error = *error + Bound::PowerOfTwo(x->exponent);  // odd before, so something was lost
  DropTrailingZeros(x);
}

// To `bits` bits, ties to even.
inline Number Nearest(const Number& x, std::int64_t bits) {
  const std::int64_t surplus = x.length() - bits;
  if (surplus <= 0) return x;
  const Integer magnitude = abs(x.mantissa);
  Integer quotient = ShiftRight(magnitude, surplus);
  const Integer rest = magnitude - ShiftLeft(quotient, surplus);
  const Integer half = ShiftLeft(Integer(1), surplus - 1);
  if (rest > half || (rest == half && bit_test(quotient, 0))) ++quotient;
  Number result{x.sign() < 0 ? Integer(-quotient) : quotient, x.exponent + surplus};
  DropTrailingZeros(&result);
  return result;
}

// a + b without rounding; the caller knows that the exponents are not far apart.
inline Number ExactSum(const Number& a, const Number& b) {
  if (a.sign() == 0) return b;
  if (b.sign() == 0) return a;
  if (a.exponent < b.exponent) return ExactSum(b, a);
  return {ShiftLeft(a.mantissa, a.exponent - b.exponent) + b.mantissa, b.exponent};
}

inline Number Sum(const Number& a, const Number& b, std::int64_t bits, Bound* error) {
  Number sum;
  if (a.sign() != 0 && b.sign() != 0 && std::abs(a.top() - b.top()) > bits + 64) {
    // The smaller one is less than the last bit of the larger, and no sum of so few bits is exact.
    sum = a.top() > b.top() ? a : b;
    *error = *error + Bound::PowerOfTwo(sum.top() - bits);
  } else {
    sum = ExactSum(a, b);
  }
  Cut(&sum, bits, error);
  return sum;
}

inline Number Negated(const Number& x) { return {-x.mantissa, x.exponent}; }

// At least and at most |x|.
inline Bound Magnitude(const Number& x, bool above) {
  if (x.sign() == 0) return {};
  const std::int64_t surplus = std::max<std::int64_t>(0, x.length() - 52);
  const double leading = ShiftRight(abs(x.mantissa), surplus).convert_to<double>();  // exact
  if (above) return Bound::Above(leading + (surplus > 0 ? 1.0 : 0.0), x.exponent + surplus);
  int shift = 0;
  return {std::frexp(leading, &shift), x.exponent + surplus + shift};
}

inline Number FromDouble(double value) {
  assert(std::isfinite(value));
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  Number x{Integer(static_cast<std::int64_t>(std::ldexp(fraction, 53))), exponent - 53};
  DropTrailingZeros(&x);
  return x;
}

inline Number FromBound(const Bound& bound) {
  Number x = FromDouble(bound.m);
  if (x.sign() != 0) x.exponent += bound.e;
  return x;
}

inline int Compare(const Number& a, const Number& b) {
  if (a.sign() != b.sign()) return a.sign() < b.sign() ? -1 : 1;
  if (a.sign() == 0) return 0;
  if (a.top() != b.top()) return (a.top() < b.top()) == (a.sign() > 0) ? -1 : 1;
  return ExactSum(a, Negated(b)).sign();
}

}  // namespace attest::dyadic
