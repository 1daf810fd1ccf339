// SPDX-License-Identifier: Apache-2.0
// Ball arithmetic: enclosures hold against higher precision, and roundings against the hardware.
// Compiled once for each back end.
#include "reference/ball.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "reference/rounding.h"

namespace attest {
namespace {

bool NotAbove(const Ball& a, const Ball& b) { return CompareMidpoints(a, b) <= 0; }

bool Encloses(const Ball& wide, const Ball& narrow) {
  return wide.IsFinite() && narrow.IsFinite() && NotAbove(wide.Lower(), narrow.Lower()) &&
         NotAbove(narrow.Upper(), wide.Upper());
}

double Draw(const RandomStream& stream, std::uint64_t i) {
  return std::ldexp(stream.Normal(i), static_cast<int>(stream.Below(i + 1000000, 41)) - 20);
}

// The same expression at 64 and at 400 bits: the wide result must contain the narrow one.
TEST(Ball, EnclosesEveryOperationAtHigherPrecision) {
  const RandomStream stream(1, "interval", "operands");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const double x = Draw(stream, 2 * i);
    const double y = Draw(stream, 2 * i + 1);
    const double small = std::fmod(x, 100.0);
    const auto evaluate = [&](long bits) {
      const PrecisionScope scope(bits);
      const Ball a = Ball(x) / Ball(3.0);
      const Ball b = Ball(y) / Ball(7.0);
      const Ball s = Ball(small) / Ball(3.0);
      Ball accumulated = a;
      accumulated.AddProduct(b * b, x);
      const std::vector<Ball> balls{a, b, s};
      const std::vector<double> factors{y, x, -small};
      return std::vector<Ball>{a + b,  a - b,       a * b,       a / b,
                               Exp(s), Exp2(s),     Tanh(s),     Log(Exp(s)),
                               -a,     Sqrt(a * a), accumulated, Ball::Dot(balls, factors)};
    };
    const std::vector<Ball> wide = evaluate(64);
    const std::vector<Ball> narrow = evaluate(400);
    for (std::size_t k = 0; k < wide.size(); ++k) {
      ASSERT_TRUE(Encloses(wide[k], narrow[k])) << "operation " << k << " on " << x << ", " << y;
      // And is no wider than the precision and the condition of the expression explain.
      if (k < 2 || k == 7 || k == 11) continue;  // these may cancel
      const double width = (wide[k].Upper() - wide[k].Lower()).MagnitudeBound();
      ASSERT_LE(width, 0x1p-48 * std::fabs(wide[k].Midpoint())) << "operation " << k << " on " << x;
    }
  }
}

TEST(Ball, DotIsExactWhenItFits) {
  const std::vector<double> a{1.0, 0x1p-20, -3.0};
  const std::vector<double> b{0x1p20, 5.0, 7.0};
  const Ball dot = Ball::Dot(a, b);
  EXPECT_TRUE(dot.IsExact());
  EXPECT_EQ(dot.Midpoint(), 0x1p20 + 5 * 0x1p-20 - 21.0);
}

TEST(Ball, KnowsExactResults) {
  EXPECT_TRUE(Exp(Ball()).IsExact());
  EXPECT_TRUE(Log(Ball(1.0)).IsZero());
  EXPECT_TRUE(Tanh(Ball()).IsZero());
  EXPECT_TRUE((Ball(0.75) / Ball(3.0)).IsExact());
  EXPECT_FALSE((Ball(1.0) / Ball(3.0)).IsExact());
  EXPECT_TRUE(Sqrt(Ball(2.25)).IsExact());
  EXPECT_FALSE(Sqrt(Ball(2.0)).IsExact());
  EXPECT_EQ(Exp2(Ball(-3.0)).Midpoint(), 0.125);
  EXPECT_TRUE(Exp2(Ball(-3.0)).IsExact());
  EXPECT_FALSE(Exp2(Ball(0.5)).IsExact());
  EXPECT_EQ(Ball(-5.0).Sign(), -1);
  EXPECT_EQ((Ball(1.0) / Ball(3.0) * Ball(3.0) - Ball(1.0)).Sign(), 0);
  EXPECT_EQ(Ball(6.0).Exponent(), 2);
  EXPECT_EQ(Ball(5.0).RoundedToBits(2).Midpoint(), 4.0);  // ties to even
  EXPECT_EQ(Ball(7.0).RoundedToBits(2).Midpoint(), 8.0);
  EXPECT_EQ(Ball(-1234567.0).IntegerDigits(), "-1234567");
}

// Nothing is known, and nothing is claimed.
TEST(Ball, IsNotFiniteWhereNothingIsKnown) {
  const Ball around_zero = Ball(1.0) / Ball(3.0) * Ball(3.0) - Ball(1.0);
  for (const Ball& unknown :
       {Ball(1.0) / around_zero, Log(around_zero), Log(Ball(-1.0)), Exp(Ball(1e300)) / Ball()}) {
    EXPECT_FALSE(unknown.IsFinite());
    EXPECT_EQ(RoundedTo(unknown, kFormatF32), std::nullopt);
    EXPECT_EQ(ToCentreRadius(unknown).radius, HUGE_VAL);
    EXPECT_FALSE((unknown * Ball()).Sign() != 0);
  }
  // Far below every format, at any precision.
  EXPECT_EQ(RoundedTo(Exp(Ball(-1e9)), kFormatF64), 0.0);
  EXPECT_EQ(RoundedTo(Exp(Ball(-3e38)), kFormatF64), 0.0);
  EXPECT_EQ(RoundedTo(Tanh(Ball(-1e300)), kFormatF64), -1.0);
  EXPECT_EQ(RoundedTo(Tanh(Ball(0x1p-600)), kFormatF64), 0x1p-600);
}

TEST(Ball, DotEnclosesWhatDoesNotFit) {
  const std::vector<double> a{0x1p200, 1.0, -0x1p200, 0x1p-200};
  const std::vector<double> b{1.0, 1.0, 1.0, 1.0};
  const Ball rough = Ball::Dot(a, b);
  EXPECT_FALSE(rough.IsExact());
  const PrecisionScope scope(500);
  EXPECT_TRUE(Encloses(rough, Ball::Dot(a, b)));
  EXPECT_TRUE(Ball::Dot(a, b).IsExact());
  // 64 bits hold every partial sum in this order, although not every sum of some.
  const std::vector<double> c{0x1p200, -0x1p200, 1.0, 0x1p-60};
  const PrecisionScope narrow(64);
  EXPECT_TRUE(Ball::Dot(c, b).IsExact());
  EXPECT_EQ(Ball::Dot(c, b).Midpoint(), 1.0);
  std::vector<Ball> balls;
  for (const double value : c) balls.emplace_back(value);
  EXPECT_TRUE(Ball::Dot(balls, b).IsExact());
  EXPECT_EQ(Ball::Dot(balls, b).Midpoint(), 1.0);
}

TEST(Ball, CopiesAndMovesKeepTheirValue) {
  Ball a(2.5);
  Ball b = a;
  b += Ball(1.0);
  Ball c = std::move(b);
  a = c;
  EXPECT_EQ(a.Midpoint(), 3.5);
  EXPECT_EQ(c.Midpoint(), 3.5);
}

// The hardware rounds a double to float; RoundToFormat must agree, subnormals and ties included.
TEST(RoundToFormat, AgreesWithTheHardwareOnFloat) {
  const RandomStream stream(1, "rounding", "bits");
  for (std::uint64_t i = 0; i < 200000; ++i) {
    // Random mantissas over all exponents of float and beyond; every fourth one a halfway point.
    std::uint64_t bits = stream.Bits(i);
    if (i % 4 == 0) bits = (bits & ~((std::uint64_t{1} << 29) - 1)) | std::uint64_t{1} << 28;
    const int exponent = static_cast<int>(stream.Below(i + 1000000, 300)) - 160;
    const double x =
        std::ldexp(std::bit_cast<double>((bits >> 12) | 0x3ff0000000000000u), exponent);
    ASSERT_EQ(RoundToFormat(Ball(x), kFormatF32), static_cast<double>(static_cast<float>(x)))
        << std::hexfloat << x;
  }
}

TEST(RoundToFormat, AgreesWithTheExhaustivelyTestedConversions) {
  const RandomStream stream(2, "rounding", "bits");
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const int exponent = static_cast<int>(stream.Below(i + 1000000, 290)) - 150;
    const double x = std::ldexp(stream.Uniform(i) + 1.0, exponent);
    ASSERT_EQ(RoundToFormat(Ball(x), kFormatBF16), RoundToDType(x, DType::kBF16));
    ASSERT_EQ(RoundToFormat(Ball(x), kFormatF16), RoundToDType(x, DType::kF16));
  }
}

TEST(RoundToFormat, RoundsTheEndsOfTheRange) {
  const auto round = [&](double x, const FloatFormat& format) {
    return RoundToFormat(Ball(x), format);
  };
  EXPECT_EQ(round(0x1p-150, kFormatF32), 0.0);  // halfway to the smallest: even is 0
  EXPECT_EQ(round(0x1.8p-150, kFormatF32), 0x1p-149);
  EXPECT_EQ(round(0x1p-151, kFormatF32), 0.0);
  EXPECT_EQ(round(65520.0, kFormatF16), HUGE_VAL);
  EXPECT_EQ(round(65519.0, kFormatF16), 65504.0);
  EXPECT_EQ(round(-1e300, kFormatF32), -HUGE_VAL);
}

TEST(RoundedTo, DecidesOnlyWhenBothEndsAgree) {
  const Ball third = Ball(1.0) / Ball(3.0);
  EXPECT_EQ(RoundedTo(third, kFormatF32), static_cast<double>(1.0f / 3.0f));
  // A ball around a halfway point of bf16 is undecided.
  const Ball half = Ball(1.0 + 0x1p-8) + third - third;
  EXPECT_EQ(RoundedTo(half, kFormatBF16), std::nullopt);
  EXPECT_EQ(RoundedTo(half, kFormatF32), 1.0 + 0x1p-8);
}

TEST(DecimalDigits, GivesCertifiedDigits) {
  EXPECT_EQ(DecimalDigits(Ball(1.0) / Ball(3.0), 30), "3.33333333333333333333333333333e-01");
  EXPECT_EQ(DecimalDigits(Ball(1.0) / Ball(3.0), 60), std::nullopt);
  EXPECT_EQ(DecimalDigits(Ball(0.5), 3), "5.00e-01");
}

// What rounding to decimal digits must get right: carries, powers of ten, ties, signs and sizes.
TEST(DecimalDigits, AgreesWithTheCLibrary) {
  const RandomStream stream(1, "digits", "values");
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const int exponent = static_cast<int>(stream.Below(i + 1000000, 2000)) - 1000;
    double x = std::ldexp(stream.Normal(i), exponent);
    if (i % 4 == 0) x = std::nearbyint(1e3 * stream.Normal(i)) / 8.0;  // ties, short numbers
    if (i % 16 == 1) x = std::pow(10.0, static_cast<double>(exponent % 300));
    for (const int digits : {1, 3, 4, 17}) {
      char text[64];
      std::snprintf(text, sizeof text, "%.*e", digits - 1, x + 0.0);
      const PrecisionScope scope(2400);
      ASSERT_EQ(DecimalDigits(Ball(x), digits), std::string(text)) << std::hexfloat << x;
    }
  }
}

TEST(ToCentreRadius, CoversTheEnclosure) {
  const RandomStream stream(1, "centre", "operands");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Ball x = Exp(Ball(Draw(stream, i)) / Ball(1e6));
    const CentreRadius centre = ToCentreRadius(x);
    const Ball hi_lo = Ball(centre.hi) + Ball(centre.lo);
    const Ball low = hi_lo - Ball(centre.radius);
    const Ball high = hi_lo + Ball(centre.radius);
    ASSERT_TRUE(NotAbove(low.Lower(), x.Lower()));
    ASSERT_TRUE(NotAbove(x.Upper(), high.Upper()));
    ASSERT_LE(centre.radius, std::fabs(centre.hi) * 0x1p-100);
  }
}

}  // namespace
}  // namespace attest
