// SPDX-License-Identifier: Apache-2.0
// Interval arithmetic: enclosures hold against higher precision, and roundings against the
// hardware.
#include "reference/interval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "reference/rounding.h"

namespace attest {
namespace {

// Restores the working precision of the thread.
class PrecisionScope {
 public:
  explicit PrecisionScope(mpfr_prec_t bits) : before_(Interval::precision()) {
    Interval::SetPrecision(bits);
  }
  ~PrecisionScope() { Interval::SetPrecision(before_); }

 private:
  mpfr_prec_t before_;
};

bool Encloses(const Interval& wide, const Interval& narrow) {
  return mpfr_lessequal_p(wide.lower(), narrow.lower()) != 0 &&
         mpfr_greaterequal_p(wide.upper(), narrow.upper()) != 0;
}

double Draw(const RandomStream& stream, std::uint64_t i) {
  return std::ldexp(stream.Normal(i), static_cast<int>(stream.Below(i + 1000000, 41)) - 20);
}

// The same expression at 64 and at 400 bits: the wide result must contain the narrow one.
TEST(Interval, EnclosesEveryOperationAtHigherPrecision) {
  const RandomStream stream(1, "interval", "operands");
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const double x = Draw(stream, 2 * i);
    const double y = Draw(stream, 2 * i + 1);
    const double small = std::fmod(x, 100.0);
    const auto evaluate = [&](mpfr_prec_t bits) {
      const PrecisionScope scope(bits);
      const Interval a = Interval(x) / Interval(3.0);
      const Interval b = Interval(y) / Interval(7.0);
      const Interval s = Interval(small) / Interval(3.0);
      Interval accumulated = a;
      accumulated.AddProduct(b, x);
      return std::vector<Interval>{a + b,   a - b,       a * b,       a / b, Exp(s),     Exp2(s),
                                   Tanh(s), Log(Exp(s)), Sqrt(a * a), a,     accumulated};
    };
    const std::vector<Interval> wide = evaluate(64);
    const std::vector<Interval> narrow = evaluate(400);
    for (std::size_t k = 0; k < wide.size(); ++k) {
      ASSERT_TRUE(Encloses(wide[k], narrow[k])) << "operation " << k << " on " << x << ", " << y;
    }
  }
}

TEST(Interval, DotIsAPointWhenItFits) {
  const std::vector<double> a{1.0, 0x1p-20, -3.0};
  const std::vector<double> b{0x1p20, 5.0, 7.0};
  const Interval dot = Interval::Dot(a, b);
  EXPECT_TRUE(dot.IsPoint());
  EXPECT_EQ(dot.Midpoint(), 0x1p20 + 5 * 0x1p-20 - 21.0);
}

TEST(Interval, DotEnclosesWhatDoesNotFit) {
  const std::vector<double> a{0x1p200, 1.0, -0x1p200, 0x1p-200};
  const std::vector<double> b{1.0, 1.0, 1.0, 1.0};
  const Interval rough = Interval::Dot(a, b);
  EXPECT_FALSE(rough.IsPoint());
  const PrecisionScope scope(500);
  EXPECT_TRUE(Encloses(rough, Interval::Dot(a, b)));
  EXPECT_TRUE(Interval::Dot(a, b).IsPoint());
}

TEST(Interval, CopiesAndMovesKeepTheirEnds) {
  Interval a(2.5);
  Interval b = a;
  b += Interval(1.0);
  Interval c = std::move(b);
  a = c;
  EXPECT_EQ(a.Midpoint(), 3.5);
  EXPECT_EQ(c.Midpoint(), 3.5);
}

// The hardware rounds a double to float; RoundToFormat must agree, subnormals and ties included.
TEST(RoundToFormat, AgreesWithTheHardwareOnFloat) {
  const RandomStream stream(1, "rounding", "bits");
  Mpfr value(53);
  for (std::uint64_t i = 0; i < 200000; ++i) {
    // Random mantissas over all exponents of float and beyond; every fourth one a halfway point.
    std::uint64_t bits = stream.Bits(i);
    if (i % 4 == 0) bits = (bits & ~((std::uint64_t{1} << 29) - 1)) | std::uint64_t{1} << 28;
    const int exponent = static_cast<int>(stream.Below(i + 1000000, 300)) - 160;
    const double x =
        std::ldexp(std::bit_cast<double>((bits >> 12) | 0x3ff0000000000000u), exponent);
    mpfr_set_d(value.get(), x, MPFR_RNDN);
    ASSERT_EQ(RoundToFormat(value.get(), kFormatF32), static_cast<double>(static_cast<float>(x)))
        << std::hexfloat << x;
  }
}

TEST(RoundToFormat, AgreesWithTheExhaustivelyTestedConversions) {
  const RandomStream stream(2, "rounding", "bits");
  Mpfr value(53);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const int exponent = static_cast<int>(stream.Below(i + 1000000, 290)) - 150;
    const double x = std::ldexp(stream.Uniform(i) + 1.0, exponent);
    mpfr_set_d(value.get(), x, MPFR_RNDN);
    ASSERT_EQ(RoundToFormat(value.get(), kFormatBF16), RoundToDType(x, DType::kBF16));
    ASSERT_EQ(RoundToFormat(value.get(), kFormatF16), RoundToDType(x, DType::kF16));
  }
}

TEST(RoundToFormat, RoundsTheEndsOfTheRange) {
  Mpfr value(60);
  const auto round = [&](double x, const FloatFormat& format) {
    mpfr_set_d(value.get(), x, MPFR_RNDN);
    return RoundToFormat(value.get(), format);
  };
  EXPECT_EQ(round(0x1p-150, kFormatF32), 0.0);  // halfway to the smallest: even is 0
  EXPECT_EQ(round(0x1.8p-150, kFormatF32), 0x1p-149);
  EXPECT_EQ(round(0x1p-151, kFormatF32), 0.0);
  EXPECT_EQ(round(65520.0, kFormatF16), HUGE_VAL);
  EXPECT_EQ(round(65519.0, kFormatF16), 65504.0);
  EXPECT_EQ(round(-1e300, kFormatF32), -HUGE_VAL);
}

TEST(RoundedTo, DecidesOnlyWhenBothEndsAgree) {
  const Interval third = Interval(1.0) / Interval(3.0);
  EXPECT_EQ(RoundedTo(third, kFormatF32), static_cast<double>(1.0f / 3.0f));
  // An interval around a halfway point of bf16 is undecided.
  const Interval half = Interval(1.0 + 0x1p-8) + third - third;
  EXPECT_EQ(RoundedTo(half, kFormatBF16), std::nullopt);
  EXPECT_EQ(RoundedTo(half, kFormatF32), 1.0 + 0x1p-8);
}

TEST(DecimalDigits, GivesCertifiedDigits) {
  EXPECT_EQ(DecimalDigits(Interval(1.0) / Interval(3.0), 30),
            "3.33333333333333333333333333333e-01");
  EXPECT_EQ(DecimalDigits(Interval(1.0) / Interval(3.0), 60), std::nullopt);
  EXPECT_EQ(DecimalDigits(Interval(0.5), 3), "5.00e-01");
}

TEST(ToCentreRadius, CoversTheEnclosure) {
  const RandomStream stream(1, "centre", "operands");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const Interval x = Exp(Interval(Draw(stream, i)) / Interval(1e6));
    const CentreRadius centre = ToCentreRadius(x);
    const Interval hi_lo = Interval(centre.hi) + Interval(centre.lo);
    const Interval low = hi_lo - Interval(centre.radius);
    const Interval high = hi_lo + Interval(centre.radius);
    ASSERT_TRUE(mpfr_lessequal_p(low.lower(), x.lower()) != 0);
    ASSERT_TRUE(mpfr_greaterequal_p(high.upper(), x.upper()) != 0);
    ASSERT_LE(centre.radius, std::fabs(centre.hi) * 0x1p-100);
  }
}

}  // namespace
}  // namespace attest
