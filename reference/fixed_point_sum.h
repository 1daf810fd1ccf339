// SPDX-License-Identifier: Apache-2.0
// Sums of products of doubles as 256-bit integers times a power of two: exact, and quick.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace attest {

// |value| = mantissa * 2^exponent with an odd mantissa; 0 has mantissa 0.
struct OddDouble {
  std::uint64_t mantissa = 0;
  int exponent = 0;
};
inline OddDouble Decompose(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto biased = static_cast<int>((bits >> 52) & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= std::uint64_t{1} << 52;
  if (mantissa == 0) return {};
  const int zeros = std::countr_zero(mantissa);
  return {mantissa >> zeros, std::max(biased, 1) - 1075 + zeros};
}

// A sum of products as an integer of kBits bits (two's complement) times a power of two.
class FixedPointSum {
 public:
  static constexpr int kBits = 256;

  // The sum of a[i] * b[i], where every partial sum has at most `bits` bits for certain and fits.
  static std::optional<FixedPointSum> Of(std::span<const double> a, std::span<const double> b,
                                         long bits);

  explicit FixedPointSum(int lowest) : lowest_(lowest) {}

  // Adds +-a * b, a multiple of 2^lowest.
  void Add(const OddDouble& a, const OddDouble& b, bool negative) {
    const auto product = static_cast<Wide>(a.mantissa) * b.mantissa;
    const auto shift = static_cast<unsigned>(a.exponent + b.exponent - lowest_);
    std::array<std::uint64_t, 3> parts{static_cast<std::uint64_t>(product),
                                       static_cast<std::uint64_t>(product >> 64), 0};
    const unsigned within = shift % 64;
    if (within != 0) {
      parts[2] = parts[1] >> (64 - within);
      parts[1] = (parts[1] << within) | (parts[0] >> (64 - within));
      parts[0] <<= within;
    }
    const unsigned first = shift / 64;
    Wide carry = negative ? 1 : 0;  // -x is the complement of x, plus 1
    for (unsigned i = 0; i < limbs_.size(); ++i) {
      std::uint64_t part = i >= first && i - first < 3 ? parts[i - first] : 0;
      if (negative) part = ~part;
      carry += limbs_[i];
      carry += part;
      limbs_[i] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
  }

  int lowest() const { return lowest_; }
  const std::array<std::uint64_t, kBits / 64>& limbs() const { return limbs_; }

 private:
  using Wide = unsigned __int128;
  int lowest_;
  std::array<std::uint64_t, kBits / 64> limbs_{};
};

inline int BitWidth(std::uint64_t value) { return static_cast<int>(std::bit_width(value)); }

inline std::optional<FixedPointSum> FixedPointSum::Of(std::span<const double> a,
                                                      std::span<const double> b, long bits) {
  int lowest = std::numeric_limits<int>::max();
  int highest = std::numeric_limits<int>::min();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const OddDouble x = Decompose(a[i]);
    const OddDouble y = Decompose(b[i]);
    if (x.mantissa == 0 || y.mantissa == 0) continue;
    const int low = x.exponent + y.exponent;
    lowest = std::min(lowest, low);
    highest = std::max(highest, low + BitWidth(x.mantissa) + BitWidth(y.mantissa));
  }
  if (lowest > highest) return FixedPointSum(0);
  const int width = highest - lowest + BitWidth(a.size());
  if (width > bits || width + 1 > FixedPointSum::kBits) return std::nullopt;
  FixedPointSum sum(lowest);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const OddDouble x = Decompose(a[i]);
    const OddDouble y = Decompose(b[i]);
    if (x.mantissa == 0 || y.mantissa == 0) continue;
    sum.Add(x, y, std::signbit(a[i]) != std::signbit(b[i]));
  }
  return sum;
}

}  // namespace attest
