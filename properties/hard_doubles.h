// SPDX-License-Identifier: Apache-2.0
// Doubles that are hard on floating-point arithmetic.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "core/random.h"

namespace attest {

// Doubles that provoke carries, cancellation and ties; drawn anew by each run alike.
class HardDoubles {
 public:
  explicit HardDoubles(const char* name) : stream_(20, "hard doubles", name) {}
  double Uniform(double low, double high) { return low + (high - low) * stream_.Uniform(next_++); }
  std::uint64_t Below(std::uint64_t bound) { return stream_.Below(next_++, bound); }
  double Sign() { return Below(2) == 0 ? 1.0 : -1.0; }
  // Mantissas random, of few bits, or next to a power of two.
  double Mantissa() {
    const double random = Uniform(1.0, 2.0);
    switch (Below(5)) {
      case 0:
        return 1.0 + static_cast<double>(Below(4)) * 2.0 * 0x1p-53;
      case 1:
        return 2.0 - static_cast<double>(1 + Below(4)) * 2.0 * 0x1p-53;
      case 2:
        return 1.0 + static_cast<double>(Below(256)) * 0x1p-8;
      default:
        return random;
    }
  }
  double Wide(int low, int high) {
    const int exponent = low + static_cast<int>(Below(static_cast<std::uint64_t>(high - low + 1)));
    return Sign() * std::ldexp(Mantissa(), exponent);
  }
  // A low part that leaves hi = fl(hi + lo): up to half an ulp, often just that, or a few bits, or
  // 0.
  double LowFor(double hi) {
    const double half = 0.5 * Ulp(hi, kFormatF64);
    double lo = 0.0;
    switch (Below(6)) {
      case 0:
        return 0.0;
      case 1:
        lo = Sign() * std::nextafter(half, 0.0);
        break;
      case 2:
        lo = Sign() * std::ldexp(half, -1 - static_cast<int>(Below(60)));
        break;
      default:
        lo = Sign() * half * Uniform(0.0, 1.0);
        break;
    }
    if (hi + lo != hi) lo *= 0.5;  // below a power of two
    return hi + lo == hi ? lo : 0.0;
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

// The double so many steps above x.
inline double UlpsFrom(double x, int ulps) {
  for (; ulps > 0; --ulps) x = std::nextafter(x, HUGE_VAL);
  for (; ulps < 0; ++ulps) x = std::nextafter(x, -HUGE_VAL);
  return x;
}

}  // namespace attest
