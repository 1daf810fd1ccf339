// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <Random123/philox.h>

#include <cmath>

namespace attest {
namespace {

// FNV-1a, 64 bits.
std::uint64_t HashText(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

// Natural logarithm of x in (0, 1] by atanh series: the C library's differs between versions.
double PortableLog(double x) {
  int exponent = 0;
  double fraction = std::frexp(x, &exponent);  // in [1/2, 1)
  if (fraction < 0.70710678118654752) {
    fraction *= 2.0;
    --exponent;
  }
  const double t = (fraction - 1.0) / (fraction + 1.0);  // |t| <= 0.172
  const double square = t * t;
  double series = 0.0;
  for (int k = 23; k >= 1; k -= 2) series = series * square + 1.0 / k;
  constexpr double kLn2 = 0.69314718055994530942;
  return exponent * kLn2 + 2.0 * t * series;
}

// Numerator and denominator of degree 7, constant term first.
double RationalDegree7(const double (&numerator)[8], const double (&denominator)[8], double x) {
  double top = numerator[7];
  double bottom = denominator[7];
  for (int i = 6; i >= 0; --i) {
    top = top * x + numerator[i];
    bottom = bottom * x + denominator[i];
  }
  return top / bottom;
}

// Coefficients of AS 241 (Wichura 1988): centre |p - 1/2| <= 0.425, tails r <= 5 and r > 5 with
// r = sqrt(-ln(min(p, 1-p))).
constexpr double kCentreTop[8] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                  1.9715909503065514427e3, 1.3731693765509461125e4,
                                  4.5921953931549871457e4, 6.7265770927008700853e4,
                                  3.3430575583588128105e4, 2.5090809287301226727e3};
constexpr double kCentreBottom[8] = {1.0,
                                     4.2313330701600911252e1,
                                     6.8718700749205790830e2,
                                     5.3941960214247511077e3,
                                     2.1213794301586595867e4,
                                     3.9307895800092710610e4,
                                     2.8729085735721942674e4,
                                     5.2264952788528545610e3};
constexpr double kTailTop[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                5.76949722146069140550e0,  3.64784832476320460504e0,
                                1.27045825245236838258e0,  2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kTailBottom[8] = {1.0,
                                   2.05319162663775882187e0,
                                   1.67638483018380384940e0,
                                   6.89767334985100004550e-1,
                                   1.48103976427480074590e-1,
                                   1.51986665636164571966e-2,
                                   5.47593808499534494600e-4,
                                   1.05075007164441684324e-9};
constexpr double kFarTop[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                               1.78482653991729133580e0,  2.96560571828504891230e-1,
                               2.65321895265761230930e-2, 1.24266094738807843860e-3,
                               2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kFarBottom[8] = {1.0,
                                  5.99832206555887937690e-1,
                                  1.36929880922735805310e-1,
                                  1.48753612908506148525e-2,
                                  7.86869131145613259100e-4,
                                  1.84631831751005468180e-5,
                                  1.42151175831644588870e-7,
                                  2.04426310338993978564e-15};

}  // namespace

double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    return q * RationalDegree7(kCentreTop, kCentreBottom, 0.180625 - q * q);
  }
  const double r = std::sqrt(-PortableLog(q < 0.0 ? p : 1.0 - p));
  const double x = r <= 5.0 ? RationalDegree7(kTailTop, kTailBottom, r - 1.6)
                            : RationalDegree7(kFarTop, kFarBottom, r - 5.0);
  return q < 0.0 ? -x : x;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view case_name,
                           std::string_view tensor_name)
    : seed_(seed), case_hash_(HashText(case_name)), tensor_hash_(HashText(tensor_name)) {}

std::uint64_t RandomStream::Bits(std::uint64_t index) const {
  const r123::Philox4x64::key_type key{{seed_, case_hash_}};
  const r123::Philox4x64::ctr_type counter{{index, tensor_hash_, 0, 0}};
  return r123::Philox4x64()(counter, key)[0];
}

double RandomStream::Uniform(std::uint64_t index) const {
  return (static_cast<double>(Bits(index) >> 11) + 0.5) * 0x1p-53;
}

double RandomStream::Normal(std::uint64_t index) const { return NormalQuantile(Uniform(index)); }

std::uint64_t RandomStream::Below(std::uint64_t index, std::uint64_t bound) const {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(Bits(index)) * bound) >> 64);
}

}  // namespace attest
