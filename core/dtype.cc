// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>

namespace attest {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t size;
  const FloatFormat* format;  // null for integers and booleans
};

constexpr std::array<DTypeRow, 6> kDTypes{{
    {DType::kF64, "f64", 8, &kFormatF64},
    {DType::kF32, "f32", 4, &kFormatF32},
    {DType::kBF16, "bf16", 2, &kFormatBF16},
    {DType::kF16, "f16", 2, &kFormatF16},
    {DType::kI32, "i32", 4, nullptr},
    {DType::kBool, "bool", 1, nullptr},
}};

const DTypeRow& RowOf(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

// Rounds a 64-bit significand to `shift` fewer bits, ties to even.
std::uint64_t ShiftRightToNearestEven(std::uint64_t significand, int shift) {
  if (shift <= 0) return significand << -shift;
  if (shift > 63) return 0;  // below half of the last place: callers keep significand < 2^53
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rest = significand & ((half << 1) - 1);
  std::uint64_t kept = significand >> shift;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  return kept;
}

// The 16-bit pattern of `value` in a format of sign, exponent and precision-1 fraction bits.
// The rounded significand is added to (not merged with) the exponent field, so that a carry out of
// the significand moves to the next binade and, past the last one, to infinity.
std::uint16_t RoundToBits16(double value, const FloatFormat& format) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 48) & 0x8000u);
  const int fraction_bits = format.precision - 1;
  const auto infinity = static_cast<std::uint16_t>(
      static_cast<unsigned>(format.max_exponent - format.min_exponent + 2) << fraction_bits);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | infinity | (1u << (fraction_bits - 1)));
  }
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const int biased = static_cast<int>((bits >> 52) & 0x7ff);
  if (biased == 0) return sign;  // zero, or a double subnormal: far below every 16-bit quantum
  const int exponent = biased - 1023;
  if (exponent > format.max_exponent) return static_cast<std::uint16_t>(sign | infinity);
  const std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1}
                                                                                  << 52;
  const int lost_to_underflow = exponent < format.min_exponent ? format.min_exponent - exponent : 0;
  const std::uint64_t rounded =
      ShiftRightToNearestEven(significand, 53 - format.precision + lost_to_underflow);
  const std::uint64_t field =
      lost_to_underflow > 0 ? 0 : static_cast<std::uint64_t>(exponent - format.min_exponent);
  return static_cast<std::uint16_t>(sign | (rounded + (field << fraction_bits)));
}

double WidenBits16(std::uint16_t bits, const FloatFormat& format) {
  const int fraction_bits = format.precision - 1;
  const unsigned magnitude = bits & 0x7fffu;
  const unsigned fraction = magnitude & ((1u << fraction_bits) - 1);
  const int field = static_cast<int>(magnitude >> fraction_bits);
  double value;
  if (field == format.max_exponent - format.min_exponent + 2) {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  } else if (field == 0) {
    value = std::ldexp(static_cast<double>(fraction), format.min_exponent - fraction_bits);
  } else {
    value = std::ldexp(static_cast<double>(fraction | 1u << fraction_bits),
                       format.min_exponent + field - 1 - fraction_bits);
  }
  return std::copysign(value, (bits & 0x8000u) != 0 ? -1.0 : 1.0);
}

}  // namespace

double FloatFormat::unit_roundoff() const { return std::ldexp(1.0, -precision); }
double FloatFormat::smallest_subnormal() const {
  return std::ldexp(1.0, min_exponent - precision + 1);
}
double FloatFormat::largest_finite() const {
  return std::ldexp(2.0 - std::ldexp(1.0, 1 - precision), max_exponent);
}

const FloatFormat& FormatOf(DType dtype) {
  assert(IsFloat(dtype));
  return *RowOf(dtype).format;
}
bool IsFloat(DType dtype) { return RowOf(dtype).format != nullptr; }
std::size_t SizeOf(DType dtype) { return RowOf(dtype).size; }
std::string_view NameOf(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

double ToDouble(BFloat16 value) { return WidenBits16(value.bits, kFormatBF16); }
double ToDouble(Float16 value) { return WidenBits16(value.bits, kFormatF16); }

BFloat16 RoundToBFloat16(double value) { return {RoundToBits16(value, kFormatBF16)}; }
Float16 RoundToFloat16(double value) { return {RoundToBits16(value, kFormatF16)}; }

double RoundToDType(double value, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kBF16:
      return ToDouble(RoundToBFloat16(value));
    case DType::kF16:
      return ToDouble(RoundToFloat16(value));
    default:
      assert(dtype == DType::kF64);
      return value;
  }
}

double Ulp(double value, const FloatFormat& format) {
  if (!std::isfinite(value)) return value * value;  // infinity or NaN: no spacing there
  int exponent = format.min_exponent;
  if (value != 0.0) exponent = std::max(exponent, std::ilogb(value));
  return std::ldexp(1.0, std::min(exponent, format.max_exponent) - format.precision + 1);
}

}  // namespace attest
