// SPDX-License-Identifier: Apache-2.0
// The kernels' exponential stays within its documented ULP on every SIMD target, and the targets
// that can be forced are the ones that really run.
#include "optimized/exp.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "optimized/targets.h"

namespace attest {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kDocumentedUlp = 0.891;  // optimized/exp-inl.h

std::vector<float> ExpOf(const std::vector<float>& x) {
  std::vector<float> y(x.size(), -1234.5f);
  ExpEach(x.data(), y.data(), x.size());
  return y;
}

// The exact value and the unit that an error is counted in. Overflow counts as 2^128: an infinity
// is correct from there on, and a rounding error just below. std::exp in double is within 1e-8 of a
// float's ULP.
struct Exact {
  double value;
  double ulp;
};

Exact ExactOf(float x) {
  const double value = std::exp(static_cast<double>(x));
  const double largest = kFormatF32.largest_finite();
  return {value > 0x1p128 ? 0x1p128 : value, Ulp(value > largest ? largest : value, kFormatF32)};
}

// |got - exact| / ulp(exact); NaN when exactly one of got and exact is NaN.
double UlpError(const Exact& exact, float got) {
  if (std::isnan(exact.value) && std::isnan(got)) return 0.0;
  const double value = got == kInfinity ? 0x1p128 : static_cast<double>(got);
  return std::fabs(value - exact.value) / exact.ulp;
}

// Largest error over a set of arguments, and the argument that attains it. A NaN stays.
struct Worst {
  double ulp = 0.0;
  float x = 0.0f;

  void Add(float argument, double error) {
    if (!std::isnan(ulp) && !(error <= ulp)) *this = {error, argument};
  }
};

class Exp : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    StatusOr<ScopedTarget> forced = ScopedTarget::Force(GetParam());
    ASSERT_TRUE(forced.ok()) << forced.status().message();
    scope_.emplace(std::move(forced).value());
  }

 private:
  std::optional<ScopedTarget> scope_;
};

std::string TargetName(const ::testing::TestParamInfo<std::string_view>& info) {
  return std::string(info.param);
}

TEST_P(Exp, ForcedTargetIsTheOneThatRuns) {
  EXPECT_EQ(RunningTarget(), GetParam());
  EXPECT_EQ(ChosenTarget(), GetParam());
}

TEST_P(Exp, StaysWithinItsUlpInEveryBinade) {
  std::vector<float> x;
  std::uint32_t state = 1;
  for (std::uint32_t high = 0; high < 512; ++high) {  // sign and exponent
    for (const std::uint32_t mantissa : {0u, 1u, 0x400000u, 0x7ffffeu, 0x7fffffu}) {
      x.push_back(std::bit_cast<float>(high << 23 | mantissa));
    }
    for (int k = 0; k < 60; ++k) {
      state = state * 1664525u + 1013904223u;
      x.push_back(std::bit_cast<float>(high << 23 | state >> 9));
    }
  }
  for (float t = -105.0f; t < 90.0f; t += 0x1.01p-9f) x.push_back(t);
  const std::vector<float> y = ExpOf(x);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) worst.Add(x[i], UlpError(ExactOf(x[i]), y[i]));
  EXPECT_TRUE(worst.ulp <= kDocumentedUlp) << worst.ulp << " ULP at x = " << worst.x;
  EXPECT_GT(worst.ulp, 0.5);  // a correctly rounded result would be a different function
}

TEST_P(Exp, ReturnsExactSpecialValues) {
  const std::vector<float> x = {0.0f,  -0.0f,   -kInfinity, kInfinity, 89.0f,
                                -kNan, 3.4e38f, -3.4e38f,   -104.0f,   kNan};
  const std::vector<float> expected = {1.0f, 1.0f,      0.0f, kInfinity, kInfinity,
                                       kNan, kInfinity, 0.0f, 0.0f,      kNan};
  const std::vector<float> y = ExpOf(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(y[i])) << "x = " << x[i];
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << "x = " << x[i] << " gives " << y[i];
    }
  }
}

TEST_P(Exp, UnderflowsGradually) {
  const std::vector<float> y = ExpOf({-88.0f, -100.0f, -103.2f, -103.9f, -104.1f});
  EXPECT_LT(y[0], std::numeric_limits<float>::min());
  EXPECT_EQ(y[1], 27 * std::numeric_limits<float>::denorm_min());  // e^-100 = 26.55 * 2^-149
  EXPECT_EQ(y[2], std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(y[3], std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(y[4], 0.0f);
}

TEST_P(Exp, TreatsEveryLengthAndPlaceAlike) {
  for (std::size_t n = 0; n <= 70; ++n) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = -0.37f * static_cast<float>(i);
    std::vector<float> y(n + 1, -1234.5f);
    ExpEach(x.data(), y.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(y[i], ExpOf({x[i]})[0]) << n << ", " << i;
    EXPECT_EQ(y[n], -1234.5f) << "written beyond the end, n = " << n;
    ExpEach(x.data(), x.data(), n);  // in place
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(x[i], y[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Exp, ::testing::ValuesIn(RunnableTargets()), TargetName);

TEST(ScopedTarget, RefusesUnknownNamesAndNests) {
  const std::string_view best = ChosenTarget();
  EXPECT_EQ(best, RunnableTargets().front());
  EXPECT_EQ(RunningTarget(), best);
  EXPECT_EQ(ScopedTarget::Force("AVX9").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RunningTarget(), best);
  const std::string_view worst = RunnableTargets().back();
  {
    const auto outer = ScopedTarget::Force(worst);
    ASSERT_TRUE(outer.ok());
    EXPECT_EQ(RunningTarget(), worst);
    {
      const auto inner = ScopedTarget::Force(best);
      EXPECT_EQ(RunningTarget(), best);
    }
    EXPECT_EQ(RunningTarget(), worst);
    EXPECT_EQ(RunnableTargets().front(), best);
  }
  EXPECT_EQ(RunningTarget(), best);
}

TEST(ExpBits, DependOnlyOnWhetherMulAddIsFused) {
  std::vector<float> x;
  for (float t = -105.0f; t < 90.0f; t += 0x1.01p-8f) x.push_back(t);
  std::vector<float> fused, unfused;
  for (const std::string_view name : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(name);
    const std::vector<float> y = ExpOf(x);
    std::vector<float>& first = name.starts_with("AVX") ? fused : unfused;
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << name;
  }
}

// Every float of both signs, on every target; some minutes. Prints the numbers that the header
// comment of optimized/exp-inl.h quotes.
TEST(Exhaustive, EveryFloat) {
  if (std::getenv("ATTEST_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set ATTEST_EXHAUSTIVE=1";
  constexpr std::uint32_t kChunk = 1u << 16;
  std::vector<float> x(kChunk);
  std::vector<Exact> exact(kChunk);
  const std::vector<std::string_view> names = RunnableTargets();
  for (const std::uint32_t sign : {0x80000000u, 0u}) {
    std::vector<Worst> worst(names.size());
    for (std::uint32_t start = 0; start < 0x80000000u; start += kChunk) {
      for (std::uint32_t i = 0; i < kChunk; ++i) {
        x[i] = std::bit_cast<float>(sign | (start + i));
        exact[i] = ExactOf(x[i]);
      }
      for (std::size_t k = 0; k < names.size(); ++k) {
        const auto scope = ScopedTarget::Force(names[k]);
        const std::vector<float> y = ExpOf(x);
        for (std::uint32_t i = 0; i < kChunk; ++i) worst[k].Add(x[i], UlpError(exact[i], y[i]));
      }
    }
    for (std::size_t k = 0; k < names.size(); ++k) {
      std::printf("exp of %s floats, %-7s: at most %.6f ULP, at x = %a\n",
                  sign != 0 ? "negative" : "positive", std::string(names[k]).c_str(), worst[k].ulp,
                  static_cast<double>(worst[k].x));
      EXPECT_TRUE(worst[k].ulp <= kDocumentedUlp) << names[k];
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace attest
