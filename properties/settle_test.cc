// SPDX-License-Identifier: Apache-2.0
// Settle never decides a ball that crosses a rounding boundary, and decides one that is clear of
// them: centres at, next to and around midpoints, radii that just reach and just miss.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "properties/hard_doubles.h"
#include "reference/ball.h"
#include "reference/certified_value.h"
#include "reference/rounding.h"
#include "reference/rung_constants.h"

namespace attest {
namespace {

// Settle on a ball against exact rounding of its two ends. Whether it was decided.
bool CheckSettle(double hi, double lo, double radius, DType dtype) {
  const FloatFormat& format = FormatOf(dtype);
  const CertifiedValue value = Settle(hi, lo, radius, dtype, Rung::kDouble);
  const Ball centre = Ball(hi) + Ball(lo);
  const double lower = RoundToFormat(centre - Ball(radius), format) + 0.0;
  const double upper = RoundToFormat(centre + Ball(radius), format) + 0.0;
  if (value.decided) {
    EXPECT_TRUE(lower == upper && value.nearest == lower)
        << NameOf(dtype) << std::hexfloat << ": " << hi << " + " << lo << " +- " << radius
        << " was decided as " << value.nearest << ", its ends round to " << lower << " and "
        << upper;
  } else {
    // Well clear: neither end changes when the ball grows by far more than what Settle may lose.
    const double size = dtype == DType::kF64 ? std::fabs(lo) : std::fabs(hi);
    const Ball wide = Ball(radius) * Ball(1.0 + 0x1p-45) + Ball(size) * Ball(0x1p-45);
    const double wide_lower = RoundToFormat(centre - wide, format) + 0.0;
    const double wide_upper = RoundToFormat(centre + wide, format) + 0.0;
    EXPECT_FALSE(wide_lower == wide_upper && std::isfinite(lower))
        << NameOf(dtype) << std::hexfloat << ": " << hi << " + " << lo << " +- " << radius
        << " was not decided";
  }
  return value.decided;
}

class SettleOn : public ::testing::TestWithParam<DType> {};

TEST_P(SettleOn, DecidesWhatDoesNotCrossABoundary) {
  const PrecisionScope precision(2600);
  const DType dtype = GetParam();
  const FloatFormat& format = FormatOf(dtype);
  const double smallest = Ulp(0.0, format);
  HardDoubles draws("settle");
  std::vector<double> values = {0.0,
                                smallest,
                                3.0 * smallest,
                                std::ldexp(1.0, format.min_exponent) - smallest,
                                std::ldexp(1.0, format.min_exponent),
                                std::ldexp(1.0, format.min_exponent + 1),
                                1.0,
                                format.largest_finite()};
  for (int i = 0; i < 40; ++i) {
    const int range = dtype == DType::kF16 ? 14 : 100;
    values.push_back(RoundToDType(std::fabs(draws.Wide(-range, range)), dtype));
    values.push_back(std::ldexp(1.0, static_cast<int>(draws.Below(20)) - 10));
    values.push_back(static_cast<double>(draws.Below(100)) * smallest);
  }
  long decided = 0;
  long open = 0;
  const auto check = [&](double hi, double lo, double radius) {
    for (const double sign : {1.0, -1.0}) {
      (CheckSettle(sign * hi, sign * lo, radius, dtype) ? decided : open) += 1;
    }
  };
  for (const double value : values) {
    const double ulp = Ulp(value, format);
    if (dtype == DType::kF64) {
      // Centres value + lo; boundaries half an ulp away, a quarter below a power of two.
      const double limit = 0.5 * ulp;
      for (const double share :
           {0.0, 0.25, 0.49, 0.499999, 0.5, 1.0 - 0x1p-40, 1.0 - kRoundoff, 1.0}) {
        for (const double sign : {1.0, -1.0}) {
          const double lo = sign * limit * share;
          if (value + lo != value) continue;
          for (const double boundary : {limit - std::fabs(lo), 0.5 * limit - std::fabs(lo),
                                        limit + std::fabs(lo), 0.5 * limit + std::fabs(lo)}) {
            if (boundary < 0.0) continue;
            for (const double part :
                 {0.0, 0.5, 1.0 - 0x1p-40, 1.0 - kRoundoff, 1.0, 1.0 + 2.0 * kRoundoff, 2.0}) {
              check(value, lo, boundary * part);
            }
          }
        }
      }
      continue;
    }
    // hi on, next to and around the midpoint above `value`, and low parts across it.
    const double midpoint = value + 0.5 * ulp;
    for (const int ulps : {0, 1, -1, 2, -2, 1000, -1000}) {
      const double near = UlpsFrom(midpoint, ulps);
      const double half = 0.5 * Ulp(near, kFormatF64);
      for (double lo : {0.0, half * 0.5, -half * 0.5, half * 0x1p-40, -half * 0x1p-40}) {
        if (near + lo != near) lo = 0.0;
        const double distance = std::fabs((near - midpoint) + lo);
        for (const double part :
             {0.0, 0.5, 1.0 - 0x1p-40, 1.0 - kRoundoff, 1.0, 1.0 + 2.0 * kRoundoff, 2.0}) {
          check(near, lo, distance * part);
        }
        check(near, lo, 0x1p-1074);
        check(near, lo, 0.25 * ulp);
      }
    }
    // The centre far from both boundaries, or close to 0, and the radius reaching for one.
    for (const double share : {0.0, 0x1p-60, 0x1p-30, 0.1, 0.3, 0.4999}) {
      for (const double sign : {1.0, -1.0}) {
        const double centre = value + sign * share * ulp;
        for (const double boundary : {value + 0.5 * ulp, value - 0.5 * ulp, value - 0.25 * ulp}) {
          const double distance = std::fabs(boundary - centre);
          for (const int ulps : {0, 1, -1, 4, -4}) check(centre, 0.0, UlpsFrom(distance, ulps));
          check(centre, 0.0, distance * 0.99);
          check(centre, 0.0, distance * 1.01);
          const double lo = sign * 0.25 * Ulp(centre, kFormatF64);
          if (centre + lo == centre) check(centre, lo, UlpsFrom(distance, 0));
        }
      }
    }
  }
  RecordProperty("decided", std::to_string(decided));
  RecordProperty("open", std::to_string(open));
  EXPECT_GT(decided, 500);
  EXPECT_GT(open, 500);
  for (const double radius : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(Settle(1.0, 0.0, radius, dtype, Rung::kDouble).decided);
  }
  for (const double hi : {HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(Settle(hi, 0.0, 0.0, dtype, Rung::kDouble).decided);
  }
}

std::string FormatName(const ::testing::TestParamInfo<DType>& format) {
  return std::string(NameOf(format.param));
}

INSTANTIATE_TEST_SUITE_P(Formats, SettleOn,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kBF16, DType::kF16),
                         FormatName);

}  // namespace
}  // namespace attest
