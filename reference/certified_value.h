// SPDX-License-Identifier: Apache-2.0
// One certified element, and how an enclosure decides it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace attest {

// What settled an element, from cheap to dear.
enum class Rung : std::uint8_t {
  kRule,          // the contract: NaN, infinities, empty rows, weights of forbidden keys
  kDouble,        // SIMD double with an a priori bound
  kDoubleDouble,  // the same in double-double
  kBall,          // arbitrary precision, doubled until the rounding is unique
  kExact,         // an exact tie, decided by algebra
};
inline constexpr std::size_t kRungs = 5;

// "rule", "double", "double-double", "ball", "exact".
std::string_view NameOf(Rung rung);

// One output element. Where the exact result is a real number:
//   |exact - (hi + lo)| <= radius, and `nearest` is the exact result rounded once to the output
//   type (ties to even; an infinity where it is beyond the type's range).
// Where the contract says NaN or an infinity, nearest = hi is that value, lo = 0 and radius = 0.
struct CertifiedValue {
  double nearest = 0.0;
  double hi = 0.0;
  double lo = 0.0;
  double radius = 0.0;
  Rung rung = Rung::kRule;
  bool decided = false;  // false: not separated from a rounding boundary within the precision limit
};

// The element whose exact value lies within `radius` of hi + lo, |lo| <= ulp(hi) / 2: decided where
// every number that near rounds alike. A radius that is NaN or infinite decides nothing.
CertifiedValue Settle(double hi, double lo, double radius, DType dtype, Rung rung);

// The same for f32 and a plain double `hi`, on the quickest path.
inline CertifiedValue SettleF32(double hi, double radius, Rung rung) {
  // Rounding is monotone. Each end is itself rounded to double, by less than the widening.
  const double widened = radius + 0x1p-52 * std::fabs(hi);
  const auto lower = static_cast<float>(hi - widened);
  const auto upper = static_cast<float>(hi + widened);
  return {static_cast<double>(lower) + 0.0, hi, 0.0, radius, rung, lower == upper};
}

}  // namespace attest
