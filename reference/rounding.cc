// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace attest {
namespace {

// Significant bits that `format` has for numbers in [2^exponent, 2^(exponent+1)); 0 or less below
// its smallest subnormal.
std::int64_t BitsAt(std::int64_t exponent, const FloatFormat& format) {
  return format.precision - std::max<std::int64_t>(0, format.min_exponent - exponent);
}

}  // namespace

double RoundToFormat(const Ball& exact, const FloatFormat& format) {
  if (exact.IsZero()) return 0.0;
  const double sign = exact.Sign();
  const std::int64_t exponent = exact.Exponent();
  if (exponent > format.max_exponent) return sign * HUGE_VAL;
  const std::int64_t bits = BitsAt(exponent, format);
  if (bits < 0) return sign * 0.0;  // below half of the smallest subnormal
  if (bits == 0) {                  // in [1/2, 1) of the smallest subnormal; 1/2 itself ties to 0
    const Ball half = TimesPowerOfTwo(Ball(sign), exponent);
    return sign * ((exact - half).IsZero() ? 0.0 : format.smallest_subnormal());
  }
  const double result = exact.RoundedToBits(bits).Midpoint();  // exact
  return std::fabs(result) > format.largest_finite() ? sign * HUGE_VAL : result;
}

std::optional<double> RoundedTo(const Ball& enclosure, const FloatFormat& format) {
  if (!enclosure.IsFinite()) return std::nullopt;
  const double lower = RoundToFormat(enclosure.Lower(), format);
  if (!(lower == RoundToFormat(enclosure.Upper(), format))) return std::nullopt;
  return lower == 0.0 ? 0.0 : lower;
}

Ball NearestMidpoint(const Ball& enclosure, const FloatFormat& format) {
  const Ball lower = enclosure.Lower();
  return lower.RoundedToBits(std::max<std::int64_t>(1, BitsAt(lower.Exponent(), format) + 1));
}

double RoundBeside(const Ball& midpoint, int sign, const FloatFormat& format) {
  // Far below the last bit of a midpoint, which has at most 54.
  const Ball little = TimesPowerOfTwo(Ball(static_cast<long>(sign)), midpoint.Exponent() - 60);
  return RoundToFormat(midpoint + little, format) + 0.0;  // + 0.0: -0 counts as 0
}

std::optional<double> RoundedQuotient(const Ball& numerator, const Ball& denominator,
                                      const FloatFormat& format) {
  const Ball quotient = numerator / denominator;
  if (const std::optional<double> rounded = RoundedTo(quotient, format)) return rounded;
  if (!quotient.IsFinite() || quotient.ContainsZero()) return std::nullopt;
  const Ball midpoint = NearestMidpoint(quotient, format);
  const Ball difference = numerator - midpoint * denominator;
  if (difference.IsZero()) return RoundToFormat(midpoint, format) + 0.0;  // + 0.0: -0 counts as 0
  if (difference.Sign() == 0) return std::nullopt;
  return RoundBeside(midpoint, difference.Sign(), format);
}

namespace {

Ball PowerOfTen(std::int64_t exponent) {
  Ball power(1.0);
  Ball square(10.0);
  for (auto rest = static_cast<std::uint64_t>(std::abs(exponent)); rest != 0; rest /= 2) {
    if (rest % 2 != 0) power = power * square;
    if (rest > 1) square = square * square;
  }
  return power;
}

// The integer nearest to a number of at least 1/2, ties to even.
Ball NearestInteger(const Ball& exact) {
  const std::int64_t exponent = exact.Exponent();
  return exponent < 0 ? Ball(1.0) : exact.RoundedToBits(exponent + 1);
}

// The digits of a number as an integer of `digits` digits and the exponent of the first one;
// nothing when the working precision does not suffice.
std::optional<std::string> ScientificDigits(const Ball& exact, int digits) {
  const auto text = [&](const std::string& mantissa, std::int64_t exponent) {
    std::string result(exact.Sign() < 0 ? "-" : "");
    result += mantissa.substr(0, 1);
    if (digits > 1) result += "." + mantissa.substr(1);
    const std::string places = std::to_string(std::abs(exponent));
    return result + (exponent < 0 ? "e-" : "e+") + (places.size() < 2 ? "0" : "") + places;
  };
  if (exact.IsZero()) return text(std::string(static_cast<std::size_t>(digits), '0'), 0);
  constexpr std::int64_t kLargestExponent = std::int64_t{1} << 40;  // beyond, no power of ten
  const std::int64_t binary = exact.Exponent();
  if (std::abs(binary) > kLargestExponent) return std::nullopt;
  const Ball magnitude = exact.Sign() < 0 ? -exact : exact;
  const double leading = TimesPowerOfTwo(magnitude, -binary).Midpoint();
  const double log10 = static_cast<double>(binary) * std::log10(2.0) + std::log10(leading);
  const Ball least = PowerOfTen(digits - 1);
  // The guess may be 1 off. One digit too many is noticed below, one too few is asked for anew.
  auto exponent = static_cast<std::int64_t>(std::floor(log10)) + 1;
  for (int attempt = 0; attempt < 3; ++attempt, --exponent) {
    const std::int64_t shift = digits - 1 - exponent;
    const Ball power = PowerOfTen(shift);
    const Ball scaled = shift < 0 ? magnitude / power : magnitude * power;
    if (!scaled.IsFinite()) return std::nullopt;
    const Ball lower = scaled.Lower();
    if ((lower - least).Sign() < 0) continue;
    const std::string mantissa = NearestInteger(lower).IntegerDigits();
    if (mantissa != NearestInteger(scaled.Upper()).IntegerDigits()) return std::nullopt;
    if (mantissa.size() == static_cast<std::size_t>(digits)) return text(mantissa, exponent);
    // 9.99... rounded up to 10.
    return text("1" + std::string(static_cast<std::size_t>(digits - 1), '0'), exponent + 1);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> DecimalDigits(const Ball& enclosure, int digits) {
  if (!enclosure.IsFinite()) return std::nullopt;
  const std::optional<std::string> lower = ScientificDigits(enclosure.Lower(), digits);
  if (!lower || lower != ScientificDigits(enclosure.Upper(), digits)) return std::nullopt;
  return lower;
}

CentreRadius ToCentreRadius(const Ball& enclosure) {
  CentreRadius result;
  const double hi = enclosure.Midpoint();
  if (!enclosure.IsFinite() || !std::isfinite(hi)) {  // or beyond the range of double
    result.hi = std::isnan(hi) ? 0.0 : hi;
    result.radius = HUGE_VAL;
    return result;
  }
  result.hi = hi;
  const Ball rest = enclosure - Ball(hi);
  result.lo = rest.Midpoint();
  result.radius = (rest - Ball(result.lo)).MagnitudeBound();
  return result;
}

}  // namespace attest
