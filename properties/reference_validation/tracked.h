// SPDX-License-Identifier: Apache-2.0
// A number type that computes how far a high-precision evaluation of the same formula can be off.
//
// Running error analysis (Wilkinson 1986): every operation carries the value, in long double, and a
// bound on the error of that value in another arithmetic of the same operations, each rounded once
// with unit roundoff u. `error` is in multiples of u: first-order terms, and the product of two
// errors where it could matter. The value itself is off by at most 2^-64 in place of u, so that
// where it cancels its own error is still far below `error`.
#pragma once

#include <Eigen/Core>
#include <cmath>

namespace attest {

struct Tracked {
  long double value = 0.0L;
  long double error = 0.0L;

  Tracked() = default;
  explicit Tracked(double exact) : value(exact) {}
  Tracked(long double v, long double e) : value(v), error(e) {}

  // A result that was rounded once.
  static Tracked Rounded(long double v, long double propagated) {
    return {v, propagated + std::fabs(v)};
  }

  Tracked operator-() const { return {-value, error}; }
  friend Tracked operator+(const Tracked& a, const Tracked& b) {
    return Rounded(a.value + b.value, a.error + b.error);
  }
  friend Tracked operator-(const Tracked& a, const Tracked& b) {
    return Rounded(a.value - b.value, a.error + b.error);
  }
  friend Tracked operator*(const Tracked& a, const Tracked& b) {
    return Rounded(a.value * b.value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error +
                                          0x1p-60L * a.error * b.error);
  }
  friend Tracked operator/(const Tracked& a, const Tracked& b) {  // b far from 0
    const long double quotient = a.value / b.value;
    return Rounded(quotient, (a.error + std::fabs(quotient) * b.error) / std::fabs(b.value));
  }
  Tracked& operator+=(const Tracked& other) { return *this = *this + other; }
  Tracked& operator-=(const Tracked& other) { return *this = *this - other; }
  Tracked& operator*=(const Tracked& other) { return *this = *this * other; }
  Tracked& operator/=(const Tracked& other) { return *this = *this / other; }

  friend bool operator==(const Tracked& a, const Tracked& b) { return a.value == b.value; }
  friend bool operator!=(const Tracked& a, const Tracked& b) { return a.value != b.value; }
  friend bool operator<(const Tracked& a, const Tracked& b) { return a.value < b.value; }
  friend bool operator>(const Tracked& a, const Tracked& b) { return a.value > b.value; }
  friend bool operator<=(const Tracked& a, const Tracked& b) { return a.value <= b.value; }
  friend bool operator>=(const Tracked& a, const Tracked& b) { return a.value >= b.value; }
};

inline Tracked abs(const Tracked& x) { return {std::fabs(x.value), x.error}; }

inline Tracked sqrt(const Tracked& x) {  // x > 0
  const long double root = std::sqrt(x.value);
  return Tracked::Rounded(root, x.error / (2.0L * root));
}

// An argument whose own value is uncertain makes the exponential so by a factor.
inline Tracked exp(const Tracked& x) {
  const long double power = std::exp(x.value);
  return Tracked::Rounded(power, power * x.error * std::exp(0x1p-63L * x.error));
}

inline Tracked log(const Tracked& x) {  // x > 0
  return Tracked::Rounded(std::log(x.value), x.error / x.value);
}

inline Tracked tanh(const Tracked& x) { return Tracked::Rounded(std::tanh(x.value), x.error); }

inline Tracked pow(const Tracked& base, const Tracked& exponent) {  // base >= 1, exact
  const long double power = std::pow(base.value, exponent.value);
  return Tracked::Rounded(power, power * std::log(base.value) * exponent.error);
}

}  // namespace attest

namespace Eigen {

template <>
struct NumTraits<attest::Tracked> : GenericNumTraits<attest::Tracked> {
  using Real = attest::Tracked;
  using NonInteger = attest::Tracked;
  using Nested = attest::Tracked;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 2,
    AddCost = 4,
    MulCost = 8
  };
};

}  // namespace Eigen
