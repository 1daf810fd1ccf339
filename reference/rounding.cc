// SPDX-License-Identifier: Apache-2.0
#include "reference/rounding.h"

#include <algorithm>
#include <cmath>

namespace attest {

double RoundToFormat(mpfr_srcptr value, const FloatFormat& format) {
  if (mpfr_zero_p(value) != 0 || mpfr_number_p(value) == 0) return mpfr_get_d(value, MPFR_RNDN);
  const double sign = mpfr_sgn(value) < 0 ? -1.0 : 1.0;
  const mpfr_exp_t exponent =
      mpfr_get_exp(value) - 1;  // |value| is in [2^exponent, 2^(exponent+1))
  if (exponent > format.max_exponent) return sign * HUGE_VAL;
  const mpfr_exp_t lost_to_underflow = std::max<mpfr_exp_t>(0, format.min_exponent - exponent);
  const mpfr_exp_t bits = format.precision - lost_to_underflow;
  if (bits < 0) return sign * 0.0;  // below half of the smallest subnormal
  if (bits == 0) {                  // in [1/2, 1) of the smallest subnormal; 1/2 itself ties to 0
    const bool tie = mpfr_cmp_si_2exp(value, mpfr_sgn(value), exponent) == 0;
    return sign * (tie ? 0.0 : format.smallest_subnormal());
  }
  Mpfr rounded(static_cast<mpfr_prec_t>(bits));
  mpfr_set(rounded.get(), value, MPFR_RNDN);
  const double result = mpfr_get_d(rounded.get(), MPFR_RNDN);  // exact
  return std::fabs(result) > format.largest_finite() ? sign * HUGE_VAL : result;
}

std::optional<double> RoundedTo(const Interval& enclosure, const FloatFormat& format) {
  const double lower = RoundToFormat(enclosure.lower(), format);
  if (!(lower == RoundToFormat(enclosure.upper(), format))) return std::nullopt;
  return lower == 0.0 ? 0.0 : lower;
}

namespace {

std::string ScientificDigits(mpfr_srcptr value, int digits) {
  char* text = nullptr;
  mpfr_asprintf(&text, "%.*RNe", digits - 1, value);
  // A zero of either sign reads "0.0...".
  std::string result(mpfr_zero_p(value) != 0 && text[0] == '-' ? text + 1 : text);
  mpfr_free_str(text);
  return result;
}

}  // namespace

std::optional<std::string> DecimalDigits(const Interval& enclosure, int digits) {
  std::string lower = ScientificDigits(enclosure.lower(), digits);
  if (lower != ScientificDigits(enclosure.upper(), digits)) return std::nullopt;
  return lower;
}

CentreRadius ToCentreRadius(const Interval& enclosure) {
  CentreRadius result;
  const mpfr_prec_t bits = Interval::precision() + 2;
  Mpfr centre(bits);
  mpfr_add(centre.get(), enclosure.lower(), enclosure.upper(), MPFR_RNDN);
  mpfr_div_2ui(centre.get(), centre.get(), 1, MPFR_RNDN);
  result.hi = mpfr_get_d(centre.get(), MPFR_RNDN);
  if (std::isinf(result.hi)) {  // beyond the range of double
    result.radius = HUGE_VAL;
    return result;
  }
  Mpfr rest(bits);
  mpfr_sub_d(rest.get(), centre.get(), result.hi, MPFR_RNDN);
  result.lo = mpfr_get_d(rest.get(), MPFR_RNDN);
  // The radius reaches both ends from hi + lo, whatever the roundings above did.
  for (mpfr_srcptr end : {enclosure.lower(), enclosure.upper()}) {
    mpfr_rnd_t away = end == enclosure.lower() ? MPFR_RNDD : MPFR_RNDU;
    mpfr_sub_d(rest.get(), end, result.hi, away);
    mpfr_sub_d(rest.get(), rest.get(), result.lo, away);
    mpfr_abs(rest.get(), rest.get(), MPFR_RNDU);
    result.radius = std::max(result.radius, mpfr_get_d(rest.get(), MPFR_RNDU));
  }
  return result;
}

}  // namespace attest
