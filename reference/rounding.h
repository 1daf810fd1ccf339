// SPDX-License-Identifier: Apache-2.0
// From enclosures to correctly rounded values and decimal digits.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "reference/interval.h"

namespace attest {

// `value` rounded once to `format`, ties to even, gradual underflow, overflow to infinity.
double RoundToFormat(mpfr_srcptr value, const FloatFormat& format);

// The correctly rounded value when both ends round alike, else nothing. -0 counts as 0.
std::optional<double> RoundedTo(const Interval& enclosure, const FloatFormat& format);

// `digits` significant decimal digits ("4.0111e-1") when both ends round to the same ones.
std::optional<std::string> DecimalDigits(const Interval& enclosure, int digits);

// An enclosure as the double-double `hi + lo` with |exact - (hi + lo)| <= radius.
struct CentreRadius {
  double hi = 0.0;
  double lo = 0.0;
  double radius = 0.0;
};
CentreRadius ToCentreRadius(const Interval& enclosure);

}  // namespace attest
