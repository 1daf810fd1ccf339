// SPDX-License-Identifier: Apache-2.0
#include "reference/certified_value.h"

#include <cmath>

namespace attest {
namespace {

// Half the distance from `value`, a number of `format`, to its neighbour away from zero (`outward`)
// or towards zero, doubled so that it is always a double. At the ends of the range the format
// counts as going on.
double Gap(double value, bool outward, const FloatFormat& format) {
  const double magnitude = std::fabs(value);
  const double ulp = Ulp(magnitude, format);
  if (outward || magnitude == 0.0) return ulp;
  // The spacing below a power of two is half of that above, except among subnormal numbers.
  int exponent = 0;
  const bool power_of_two = std::frexp(magnitude, &exponent) == 0.5;
  return power_of_two && exponent - 1 > format.min_exponent ? 0.5 * ulp : ulp;
}

// Whether all numbers within `radius` of hi + lo round to `nearest`.
bool RoundsTo(double nearest, double hi, double lo, double radius, const FloatFormat& format) {
  if (std::isinf(nearest)) return false;
  const double distance = (hi - nearest) + lo;  // hi - nearest is exact
  const bool outward = (distance > 0.0) == (nearest > 0.0) || nearest == 0.0;
  const double reach = 2.0 * (std::fabs(distance) + radius) * (1.0 + 0x1p-50);
  // The other side is farther away than `distance`, but the radius may reach it.
  const double back = 2.0 * (radius - std::fabs(distance)) * (1.0 + 0x1p-50);
  return reach < Gap(nearest, outward, format) && back < Gap(nearest, !outward, format);
}

// For f32 and a plain double `hi`, on the quickest path.
inline CertifiedValue SettleF32(double hi, double radius, Rung rung) {
  // Rounding is monotone. Each end is itself rounded to double, by less than the widening: at most
  // u (|hi| + widened), and widened itself by 2 u.
  const double widened = radius * (1.0 + 0x1p-51) + 0x1p-52 * std::fabs(hi);
  const auto lower = static_cast<float>(hi - widened);
  const auto upper = static_cast<float>(hi + widened);
  return {static_cast<double>(lower) + 0.0, hi, 0.0, radius, rung, lower == upper};
}

}  // namespace

std::string_view NameOf(Rung rung) {
  switch (rung) {
    case Rung::kRule:
      return "rule";
    case Rung::kDouble:
      return "double";
    case Rung::kDoubleDouble:
      return "double-double";
    case Rung::kBall:
      return "ball";
    case Rung::kExact:
      return "exact";
  }
  return "";
}

CertifiedValue Settle(double hi, double lo, double radius, DType dtype, Rung rung) {
  CertifiedValue value{hi, hi, lo, radius, rung, false};
  if (!(radius < HUGE_VAL) || !std::isfinite(hi)) {
    value.radius = HUGE_VAL;
    return value;
  }
  if (dtype == DType::kF32 && lo == 0.0) return SettleF32(hi, radius, rung);
  const FloatFormat& format = FormatOf(dtype);
  double nearest = RoundToDType(hi, dtype);
  // hi may lie on the midpoint or just beyond it, with lo leading back.
  value.decided = RoundsTo(nearest, hi, lo, radius, format);
  if (!value.decided && dtype != DType::kF64 && std::isfinite(nearest)) {
    const double beside = RoundToDType(hi + std::copysign(Ulp(hi, kFormatF64), lo), dtype);
    if (beside != nearest && RoundsTo(beside, hi, lo, radius, format)) {
      nearest = beside;
      value.decided = true;
    }
  }
  value.nearest = nearest + 0.0;
  return value;
}

bool SettleAll(const double* hi, const double* lo, const double* radius, std::size_t stride,
               std::size_t count, DType dtype, Rung rung, CertifiedValue* out) {
  bool all = true;
  const bool quick = dtype == DType::kF32 && lo == nullptr;
  for (std::size_t c = 0; c < count; ++c) {
    if (out[c].decided) continue;
    const std::size_t at = c * stride;
    // Comparisons with NaN are false: nothing is decided by a radius or centre that is not finite.
    out[c] = quick && radius[at] < HUGE_VAL
                 ? SettleF32(hi[at], radius[at], rung)
                 : Settle(hi[at], lo == nullptr ? 0.0 : lo[at], radius[at], dtype, rung);
    all = all && out[c].decided;
  }
  return all;
}

}  // namespace attest
