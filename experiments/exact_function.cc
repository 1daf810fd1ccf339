// SPDX-License-Identifier: Apache-2.0
// The bound of EvaluateClosely. Floats that share their upper bits are cut into blocks around a
// middle c, so narrow that |h| = |x - c| <= 2^-11 s, s = 1 for exp and 2^x, min(1, |c|) for tanh,
// min(c, |c - 1|) for ln; h is exact. y = hi + (lo + P), P = b1 t + ... + b5 t^5, with f(c) = hi +
// lo from the reference.
//
// - Truncation: the Taylor coefficients of exp and 2^x are f(c)/n! at most, those of ln are 1/(n
//   c^n), those of tanh at most tan(1) (Cauchy on the unit disc around c, on which |tanh| <= tan
//   1). With n = 6, and |ln c| >= |c - 1| / max(c, 1), the rest is below 2^-60 |f(x)|.
// - |P| <= 2^-9.8 |f(c)|: for ln because |h| / (c |ln c|) <= 2^-11 max(c, 1) / c <= 2^-10 for c in
//   (1/2, 2), and |ln c| >= ln 2 elsewhere; for tanh because tanh' c <= tanh c.
// - Rounding: b_n, t, the steps of Horner's rule, the sum with lo: less than 12 roundings of P,
//   2^-53 * 12 * 2^-9.8 |f(c)| < 2^-59 |f(c)|. The last sum: 2^-53 |y|. lo: 2^-105.
//
// Together less than 2^-52.9 |f(x)|.
#include "experiments/exact_function.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "core/dtype.h"
#include "reference/ball.h"
#include "reference/rounding.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kOverflow = 0x1p128;
constexpr double kRelative = 0x1p-52;
constexpr int kLargestBlock = 13;  // log2 of floats
constexpr int kTerms = 5;
constexpr int kBias = 1023;  // of exponents of double

// What has one value, or is beyond all floats, and needs no polynomial.
std::optional<double> PlainValue(ExactFunction function, double x) {
  if (std::isnan(x)) return x;
  switch (function) {
    case ExactFunction::kExp:
      if (x > 100.0) return x == kInfinity ? kInfinity : 0x1p144;
      if (x < -140.0) return x == -kInfinity ? 0.0 : 0x1p-201;
      return x == 0.0 ? std::optional(1.0) : std::nullopt;
    case ExactFunction::kExp2:
      if (x > 130.0) return x == kInfinity ? kInfinity : 0x1p130;
      if (x < -201.0) return x == -kInfinity ? 0.0 : 0x1p-201;
      return x == 0.0 ? std::optional(1.0) : std::nullopt;
    case ExactFunction::kLog:
      if (x < 0.0) return std::numeric_limits<double>::quiet_NaN();
      if (x == 0.0) return -kInfinity;
      if (x == kInfinity) return kInfinity;
      return x == 1.0 ? std::optional(0.0) : std::nullopt;
    case ExactFunction::kTanh:
      // 1 - tanh 20 < 2^-56
      if (std::fabs(x) > 20.0) return std::copysign(std::isinf(x) ? 1.0 : 1.0 - 0x1p-53, x);
      return x == 0.0 ? std::optional(x) : std::nullopt;
  }
  return std::nullopt;
}

Ball Enclosure(ExactFunction function, double x) {
  if (const std::optional<double> plain = PlainValue(function, x)) return Ball(*plain);
  switch (function) {
    case ExactFunction::kExp:
      return Exp(Ball(x));
    case ExactFunction::kExp2:
      return Exp2(Ball(x));
    case ExactFunction::kLog:
      return Log(Ball(x));
    case ExactFunction::kTanh:
      return Tanh(Ball(x));
  }
  return Ball();
}

CentreRadius Closely(ExactFunction function, double x) {
  for (long bits = 128;; bits *= 2) {
    const PrecisionScope precision(bits);
    const CentreRadius value = ToCentreRadius(Enclosure(function, x));
    if (value.radius <= 0x1p-90 * std::fabs(value.hi)) return value;
  }
}

// hi + (lo + t (b1 + t (b2 + ...))), t = (x - c) * scale.
struct Polynomial {
  std::uint32_t first_bits = 0;
  std::uint32_t last_bits = 0;
  double c = 0.0;
  double hi = 0.0;
  double lo = 0.0;
  double scale = 1.0;
  std::array<double, kTerms + 1> b{};

  double At(double x) const {
    const double t = (x - c) * scale;
    double p = b[kTerms];
    for (std::size_t n = kTerms - 1; n >= 1; --n) p = p * t + b[n];
    return hi + (lo + p * t);
  }
};

double ValueOfBits(std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); }

// Around a finite x without a plain value.
Polynomial Around(ExactFunction function, float x) {
  Polynomial p;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  for (int size = kLargestBlock;; --size) {
    const std::uint32_t low = (std::uint32_t{1} << size) - 1;
    p.first_bits = bits & ~low;
    p.last_bits = bits | low;
    p.c = ValueOfBits(p.first_bits + (low + 1) / 2);
    const double radius = std::max(std::fabs(ValueOfBits(p.first_bits) - p.c),
                                   std::fabs(ValueOfBits(p.last_bits) - p.c));
    double scale = 1.0;
    if (function == ExactFunction::kLog) scale = std::min(p.c, std::fabs(p.c - 1.0));
    if (function == ExactFunction::kTanh) scale = std::min(1.0, std::fabs(p.c));
    if (radius <= 0x1p-11 * scale) break;
    if (size == 0) break;
  }
  if (p.first_bits == p.last_bits) p.c = static_cast<double>(x);
  const CentreRadius value = Closely(function, p.c);
  p.hi = value.hi;
  p.lo = value.lo;
  p.b[0] = p.hi;
  for (std::size_t n = 1; n <= kTerms; ++n) {
    const double order = static_cast<double>(n);
    switch (function) {
      case ExactFunction::kExp:
      case ExactFunction::kExp2:
        p.b[n] = p.b[n - 1] / order;
        break;
      case ExactFunction::kLog:
        p.b[n] = (n % 2 == 0 ? -1.0 : 1.0) / order;
        break;
      case ExactFunction::kTanh: {  // f' = 1 - f^2
        double square = 0.0;
        for (std::size_t i = 0; i < n; ++i) square += p.b[i] * p.b[n - 1 - i];
        p.b[n] = ((n == 1 ? 1.0 : 0.0) - square) / order;
        break;
      }
    }
  }
  if (function == ExactFunction::kExp2) p.scale = 0x1.62e42fefa39efp-1;  // ln 2
  if (function == ExactFunction::kLog) p.scale = 1.0 / p.c;
  return p;
}

}  // namespace

std::string_view NameOf(ExactFunction function) {
  constexpr std::array<std::string_view, 4> kNames{"exp", "2^x", "ln", "tanh"};
  return kNames[static_cast<std::size_t>(function)];
}

void EvaluateClosely(ExactFunction function, std::span<const float> x, CloseValues* values) {
  values->value.resize(x.size());
  values->inverse_ulp.resize(x.size());
  values->wanted.resize(x.size());
  for (std::size_t i = 0; i < x.size();) {
    if (const auto plain = PlainValue(function, static_cast<double>(x[i]))) {
      values->value[i++] = *plain;
      continue;
    }
    const Polynomial p = Around(function, x[i]);
    // What has a plain value in such a block lies beyond a limit, where the polynomial serves as
    // well: 1 has a block of its own in ln, and so has 0 in tanh.
    std::size_t end = i + 1;
    while (end < x.size()) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[end]);
      if (bits < p.first_bits || bits > p.last_bits) break;
      ++end;
    }
    for (; i < end; ++i) values->value[i] = p.At(static_cast<double>(x[i]));
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double y = values->value[i];
    const double error = std::isfinite(y) ? std::fabs(y) * kRelative : 0.0;
    const auto low = static_cast<float>(y - error);
    const auto high = static_cast<float>(y + error);
    values->wanted[i] = low == high || std::isnan(y) ? high : ErrorOf(function, x[i], high).wanted;
    const double smaller = y - y * kRelative;
    const int exponent =
        std::clamp(static_cast<int>(std::bit_cast<std::uint64_t>(smaller) >> 52 & 0x7ff) - kBias,
                   kFormatF32.min_exponent, kFormatF32.max_exponent);
    values->inverse_ulp[i] = std::bit_cast<double>(
        static_cast<std::uint64_t>(kBias + kFormatF32.precision - 1 - exponent) << 52);
    values->value[i] = std::min(y, 0x1p129);
  }
}

CertifiedError ErrorOf(ExactFunction function, float x, float got) {
  const std::optional<double> plain = PlainValue(function, static_cast<double>(x));
  if (plain && !std::isfinite(*plain)) {
    const auto wanted = static_cast<float>(*plain);
    const bool same = std::isnan(wanted) ? std::isnan(got) : got == wanted;
    return {same ? 0.0 : kInfinity, wanted};
  }
  // Ends: no value is a midpoint or a power of two but those of 2^x, whose balls are exact.
  for (long bits = 128;; bits *= 2) {
    const PrecisionScope precision(bits);
    const Ball exact = Enclosure(function, static_cast<double>(x));
    const std::optional<double> wanted = RoundedTo(exact, kFormatF32);
    if (!wanted) continue;
    CertifiedError result{kInfinity, static_cast<float>(*wanted)};
    if (std::isnan(got)) return result;
    std::int64_t exponent = kFormatF32.min_exponent;
    if (!exact.IsZero()) {
      exponent = exact.Lower().Exponent();
      if (exponent != exact.Upper().Exponent()) continue;
    }
    const bool beyond = exponent > kFormatF32.max_exponent;
    const Ball counted = beyond ? Ball(std::copysign(kOverflow, exact.Sign())) : exact;
    exponent = std::clamp<std::int64_t>(exponent, kFormatF32.min_exponent, kFormatF32.max_exponent);
    const Ball ulp = Ball::PowerOfTwo(exponent + 1 - kFormatF32.precision);
    const double value = std::isinf(got) ? std::copysign(kOverflow, got) : static_cast<double>(got);
    const CentreRadius error = ToCentreRadius((Ball(value) - counted) / ulp);
    if (error.radius > 0x1p-50) continue;
    result.ulp = std::fabs(error.hi);
    return result;
  }
}

void FreeExactCaches() { Ball::FreeThreadCaches(); }

}  // namespace attest
