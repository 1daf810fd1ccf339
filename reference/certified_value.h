// SPDX-License-Identifier: Apache-2.0
// One certified element, and how an enclosure decides it.
#pragma once

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

// Settles those of out[0 .. count) that are not decided: element c from hi[c * stride], lo (null:
// 0) and radius likewise. Whether all are decided now.
bool SettleAll(const double* hi, const double* lo, const double* radius, std::size_t stride,
               std::size_t count, DType dtype, Rung rung, CertifiedValue* out);

}  // namespace attest
