// SPDX-License-Identifier: Apache-2.0
// What every bound of the audit is made of: gamma_k, and how accurate the certified conditions are.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "reference/certified_value.h"

namespace attest {

inline constexpr double kNoBound = std::numeric_limits<double>::infinity();

// How accurate the conditions are (reference/certify.h), doubled to cover the rounding in between.
inline constexpr double kConditionError = 0x1p-29;

// No smaller than the p that a condition is of.
inline double WeightAtMost(double weight) { return weight * (1.0 + kConditionError) + 0x1p-1074; }
// How far a logarithm of a weight may be off.
inline double LogError(double log_weight) {
  return kConditionError * std::max(1.0, std::fabs(log_weight));
}
// No smaller than the magnitude of a certified element.
inline double AtMost(const CertifiedValue& exact) {
  return std::fabs(exact.hi) + std::fabs(exact.lo) + exact.radius;
}

// k roundings of size u: (1 + u)^k - 1 <= k u / (1 - k u), infinite where that says nothing.
inline double Gamma(double k, double u) { return k * u < 1.0 ? k * u / (1.0 - k * u) : kNoBound; }

// Relative errors a and b, one after the other.
inline double Both(double a, double b) { return (1.0 + a) * (1.0 + b) - 1.0; }

inline double SumOfMagnitudes(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += std::fabs(value);
  return sum;
}

// p (e^error - 1), the change of a weight p = e^log_weight whose exponent is off by `error`; usable
// also where p underflows in double.
inline double Perturbation(double weight, double log_weight, double error) {
  return error <= 1.0 ? weight * std::expm1(error) : std::exp(std::min(log_weight + error, 700.0));
}

}  // namespace attest
