// SPDX-License-Identifier: Apache-2.0
// Emulated formats: a double rounded once to a narrower one.
//
// The sum, difference, product and quotient of two numbers of p <= 25 bits, computed in double and
// then rounded to p bits, are those of the format itself (Higham 2002, section 2: the second
// rounding is innocuous when 53 >= 2p + 2), away from underflow.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"

namespace attest {

// kE4M3 is the 8-bit type of the OCP OFP8 specification: 4 significant bits, emin -6, subnormals of
// 2^-9, no infinities, largest number 448.
enum class NumberFormat : std::uint8_t { kF64, kF32, kBF16, kF16, kE4M3 };

constexpr const char* NameOf(NumberFormat format) {
  constexpr const char* kNames[] = {"f64", "f32", "bf16", "f16", "e4m3"};
  return kNames[static_cast<int>(format)];
}

// Precision and exponents; of e4m3 the largest number is not that of this struct, but 448.
constexpr FloatFormat FormatOf(NumberFormat format) {
  constexpr FloatFormat kFormats[] = {kFormatF64, kFormatF32, kFormatBF16, kFormatF16, {4, -6, 8}};
  return kFormats[static_cast<int>(format)];
}

// Rounds to nearest, ties to even, gradual underflow. What rounds beyond the largest number becomes
// an infinity; in e4m3, infinities included, it saturates at 448. A NaN stays one. f64 is the
// identity.
class Rounder {
 public:
  constexpr Rounder(NumberFormat format)  // NOLINT: implicit by design
      : format_(format), layout_(FormatOf(format)) {}

  NumberFormat format() const { return format_; }
  double unit_roundoff() const { return layout_.unit_roundoff(); }

  double operator()(double x) const {
    if (format_ == NumberFormat::kF64 || x != x) return x;
    if (format_ == NumberFormat::kF32) return static_cast<double>(static_cast<float>(x));
    int exponent = static_cast<int>((std::bit_cast<std::uint64_t>(x) >> 52) & 0x7ff) - 1023;
    if (exponent > layout_.max_exponent) return std::copysign(Beyond(), x);
    if (exponent < layout_.min_exponent) exponent = layout_.min_exponent;
    // 1.5 * 2^(52 + e) for the spacing 2^e here: adding it rounds at 2^e, ties to even.
    const int spacing = exponent - layout_.precision + 1;
    const double shift = std::bit_cast<double>(
        (static_cast<std::uint64_t>(spacing + 52 + 1023) << 52) | (std::uint64_t{1} << 51));
    const double rounded = (x + shift) - shift;
    return std::copysign(std::fabs(rounded) > Largest() ? Beyond() : std::fabs(rounded), x);
  }

 private:
  double Largest() const {
    switch (format_) {
      case NumberFormat::kE4M3:
        return 448.0;
      case NumberFormat::kF16:
        return 65504.0;
      default:
        return 0x1.fep127;
    }
  }
  double Beyond() const {
    return format_ == NumberFormat::kE4M3 ? 448.0 : std::numeric_limits<double>::infinity();
  }

  NumberFormat format_;
  FloatFormat layout_;
};

}  // namespace attest
