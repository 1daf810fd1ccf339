// SPDX-License-Identifier: Apache-2.0
// From enclosures to correctly rounded values and decimal digits.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "reference/ball.h"

namespace attest {

// The number `exact` (a ball of radius 0) rounded once to `format`, ties to even, gradual
// underflow, overflow to infinity.
double RoundToFormat(const Ball& exact, const FloatFormat& format);

// The correctly rounded value when both ends round alike, else nothing. -0 counts as 0.
std::optional<double> RoundedTo(const Ball& enclosure, const FloatFormat& format);

// The only midpoint between neighbours of `format` that an enclosure which contains one, but not 0,
// can contain when it is narrow: its lower end rounded to one bit more than the format has there.
Ball NearestMidpoint(const Ball& enclosure, const FloatFormat& format);

// The rounding of a number next to `midpoint`, above it for sign > 0 and below for sign < 0.
double RoundBeside(const Ball& midpoint, int sign, const FloatFormat& format);

// A quotient of exact numbers, with a positive denominator, rounded once; nothing when the working
// precision does not suffice.
std::optional<double> RoundedQuotient(const Ball& numerator, const Ball& denominator,
                                      const FloatFormat& format);

// `digits` significant decimal digits ("4.0111e-1") when both ends round to the same ones.
std::optional<std::string> DecimalDigits(const Ball& enclosure, int digits);

// An enclosure as the double-double `hi + lo` with |exact - (hi + lo)| <= radius.
struct CentreRadius {
  double hi = 0.0;
  double lo = 0.0;
  double radius = 0.0;
};
CentreRadius ToCentreRadius(const Ball& enclosure);

}  // namespace attest
