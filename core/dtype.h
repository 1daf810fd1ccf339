// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, and correctly rounded conversions to the 16-bit ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace attest {

enum class DType : std::uint8_t { kF64, kF32, kBF16, kF16, kI32, kBool };

// bfloat16 (8 significant bits) and IEEE binary16 (11 significant bits), as bit patterns.
struct BFloat16 {
  std::uint16_t bits = 0;
};
struct Float16 {
  std::uint16_t bits = 0;
};

// A binary floating-point format with gradual underflow and infinities.
struct FloatFormat {
  int precision;     // significant bits p, the hidden one included
  int min_exponent;  // emin: the smallest normal number is 2^emin
  int max_exponent;  // emax: the largest finite number is (2 - 2^(1-p)) * 2^emax

  // Unit roundoff 2^-p of round-to-nearest.
  double unit_roundoff() const;
  // Spacing of the subnormal numbers, 2^(emin-p+1).
  double smallest_subnormal() const;
  double largest_finite() const;
};

inline constexpr FloatFormat kFormatF64{53, -1022, 1023};
inline constexpr FloatFormat kFormatF32{24, -126, 127};
inline constexpr FloatFormat kFormatBF16{8, -126, 127};
inline constexpr FloatFormat kFormatF16{11, -14, 15};

// The format of a floating-point DType. Only valid when IsFloat(dtype).
const FloatFormat& FormatOf(DType dtype);

bool IsFloat(DType dtype);
std::size_t SizeOf(DType dtype);

// Lower-case names as the contract writes them ("f64", "f32", "bf16", "f16", "i32", "bool").
std::string_view NameOf(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

// Exact widening.
double ToDouble(BFloat16 value);
double ToDouble(Float16 value);

// Round to nearest, ties to even, directly from double (never through float). Overflow gives the
// infinity of the same sign, underflow is gradual; a NaN stays a (quiet) NaN of the same sign.
BFloat16 RoundToBFloat16(double value);
Float16 RoundToFloat16(double value);

// `value` rounded to the format of `dtype` (ties to even), as a double. Only for floating types.
double RoundToDType(double value, DType dtype);

// One unit in the last place of `value` in `format`: the spacing of the format's numbers in the
// binade of |value|, 2^(emin-p+1) for zero and subnormals. The ULP convention of every report is
// |got - exact| / Ulp(exact), so that correct rounding is at most 0.5.
double Ulp(double value, const FloatFormat& format);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kBool;
};

}  // namespace attest
