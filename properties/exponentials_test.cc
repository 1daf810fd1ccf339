// SPDX-License-Identifier: Apache-2.0
// The experiment "exponentials": its exact values, its meter on known numbers and on faults, and
// its verdict.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/exact_function.h"
#include "experiments/experiment.h"
#include "experiments/ulp_scan.h"
#include "optimized/functions.h"
#include "reference/ball.h"
#include "reference/rounding.h"
#if defined(__GLIBC__)
#include <gnu/libc-version.h>

#include <string_view>
#endif

namespace attest {
namespace {

constexpr ExactFunction kFunctions[] = {ExactFunction::kExp, ExactFunction::kExp2,
                                        ExactFunction::kLog, ExactFunction::kTanh};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Ball BallOf(ExactFunction function, double x) {
  switch (function) {
    case ExactFunction::kExp:
      return Exp(Ball(x));
    case ExactFunction::kExp2:
      return Exp2(Ball(x));
    case ExactFunction::kLog:
      return Log(Ball(x));
    case ExactFunction::kTanh:
      return Tanh(Ball(x));
  }
  return Ball();
}

// Ends and inner points of blocks, in every binade where the function is no constant.
TEST(ExactFunction, KeepsItsBound) {
  for (const ExactFunction function : kFunctions) {
    std::vector<float> x;
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      for (std::uint32_t bits = 0; bits < 0x7f800000; bits += 0x1fff8f) {
        for (const std::uint32_t offset : {0u, 1u, 0xfffu, 0x1fffu}) {
          const auto value = std::bit_cast<float>(sign | (bits & ~0x1fffu) | offset);
          const double limit = function == ExactFunction::kTanh ? 20.0 : 88.0;
          if (function == ExactFunction::kLog ? value > 0 : std::fabs(value) <= limit) {
            x.push_back(value);
          }
        }
      }
    }
    for (std::uint32_t i = 0; i < 4096; ++i) {  // around 1, where ln vanishes
      x.push_back(std::bit_cast<float>(0x3f7ff800u + i));
    }
    CloseValues close;
    EvaluateClosely(function, x, &close);
    const PrecisionScope precision(256);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Ball exact = BallOf(function, static_cast<double>(x[i]));
      const double error = std::fabs((Ball(close.value[i]) - exact).Midpoint());
      ASSERT_LE(error, 0x1p-52 * std::fabs(exact.Midpoint())) << NameOf(function) << " " << x[i];
      const auto rounded = RoundedTo(exact, kFormatF32);
      if (rounded) {
        ASSERT_EQ(static_cast<double>(close.wanted[i]), *rounded)
            << NameOf(function) << " " << x[i];
      }
    }
  }
}

TEST(ExactFunction, HasTheSpecialValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CloseValues close;
  EvaluateClosely(ExactFunction::kLog, std::vector<float>{0.0f, 1.0f, kInfinity, -0.0f, -1.0f, nan},
                  &close);
  EXPECT_EQ(close.wanted[0], -kInfinity);
  EXPECT_EQ(close.wanted[1], 0.0f);
  EXPECT_EQ(close.wanted[2], kInfinity);
  EXPECT_EQ(close.wanted[3], -kInfinity);
  EXPECT_TRUE(std::isnan(close.wanted[4]));
  EXPECT_TRUE(std::isnan(close.wanted[5]));
  // 2^-150 is half of the least float, a tie that goes to 0; e^89 and 2^128 overflow.
  EvaluateClosely(ExactFunction::kExp2, std::vector<float>{-149.0f, -150.0f, 127.0f, 128.0f},
                  &close);
  EXPECT_EQ(close.wanted, (std::vector<float>{0x1p-149f, 0.0f, 0x1p127f, kInfinity}));
  EvaluateClosely(ExactFunction::kExp, std::vector<float>{88.7228f, 89.0f, 1e30f, -1e30f, -104.0f},
                  &close);
  EXPECT_TRUE(std::isfinite(close.wanted[0]));
  EXPECT_EQ(close.wanted[1], kInfinity);
  EXPECT_EQ(close.wanted[2], kInfinity);
  EXPECT_EQ(close.wanted[3], 0.0f);
  EXPECT_EQ(close.wanted[4], 0.0f);  // 2^-150.04
}

// e = 2.71828182845904523536, an ulp of its binade is 2^-22.
TEST(ExactFunction, CountsInUlpOfTheExactValue) {
  const CertifiedError right = ErrorOf(ExactFunction::kExp, 1.0f, 0x1.5bf0a8p+1f);
  EXPECT_EQ(right.wanted, 0x1.5bf0a8p+1f);
  EXPECT_NEAR(right.ulp, (2.71828182845904523536 - 0x1.5bf0a8p+1) * 0x1p22, 1e-9);
  EXPECT_NEAR(ErrorOf(ExactFunction::kExp, 1.0f, 0x1.5bf0aap+1f).ulp, 1.0 - right.ulp, 1e-9);
  // 2^-149.5 lies 0.7071 of the least float above 0.
  EXPECT_NEAR(ErrorOf(ExactFunction::kExp2, -149.5f, 0.0f).ulp, std::sqrt(0.5), 1e-9);
  EXPECT_EQ(ErrorOf(ExactFunction::kExp2, 128.0f, kInfinity).ulp, 0.0);
  EXPECT_EQ(ErrorOf(ExactFunction::kExp2, 128.0f, std::numeric_limits<float>::max()).ulp, 1.0);
  EXPECT_TRUE(std::isinf(ErrorOf(ExactFunction::kExp, 1.0f, std::nanf("")).ulp));
}

FunctionSubject Plain(float (*function)(float)) {
  return {"C library", "", "", [function](const float* x, float* y, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) y[i] = function(x[i]);
          }};
}

StatusOr<std::vector<UlpTally>> ScanBinade(const std::vector<FunctionSubject>& subjects,
                                           int threads) {
  return ScanFunction(ExactFunction::kExp, subjects, {{0x3f000000, 1, 1u << 20}}, threads, nullptr);
}

// One float in a million is off by one place: exactly it is found, and on one "target" alone.
TEST(UlpScan, FindsOneWrongFloat) {
  constexpr float kBad = 0x1.0ace13579p-1f;
  FunctionSubject faulty = Plain(std::exp);
  faulty.each = [](const float* x, float* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      y[i] = static_cast<float>(std::exp(static_cast<double>(x[i])));
      if (x[i] == kBad) y[i] = std::nextafter(y[i], kInfinity);
    }
  };
  FunctionSubject right = faulty;
  right.each = [](const float* x, float* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      y[i] = static_cast<float>(std::exp(static_cast<double>(x[i])));
    }
  };
  const StatusOr<std::vector<UlpTally>> tallies = ScanBinade({right, faulty}, 1);
  ASSERT_TRUE(tallies.ok());
  EXPECT_EQ((*tallies)[0].inputs, 1u << 20);
  EXPECT_EQ((*tallies)[0].wrong, 0u);
  EXPECT_LE((*tallies)[0].largest, 0.5);
  EXPECT_EQ((*tallies)[1].wrong, 1u);
  EXPECT_EQ((*tallies)[1].differs, 1u);
  EXPECT_EQ((*tallies)[1].at, kBad);
  EXPECT_EQ((*tallies)[1].got, std::nextafter((*tallies)[1].wanted, kInfinity));
  EXPECT_GT((*tallies)[1].largest, 0.5);
}

TEST(UlpScan, SeesNanAndIsTheSameOnThreeThreads) {
  FunctionSubject faulty = Plain(std::exp);
  faulty.each = [](const float* x, float* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      y[i] = x[i] == 0x1.08p-1f ? std::nanf("") : std::exp(x[i]);
    }
  };
  const StatusOr<std::vector<UlpTally>> one = ScanBinade({Plain(std::exp), faulty}, 1);
  const StatusOr<std::vector<UlpTally>> three = ScanBinade({Plain(std::exp), faulty}, 3);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_TRUE(std::isinf((*one)[1].largest));
  EXPECT_EQ((*one)[1].at, 0x1.08p-1f);
  for (std::size_t s = 0; s < 2; ++s) {
    EXPECT_EQ((*one)[s].wrong, (*three)[s].wrong);
    EXPECT_EQ((*one)[s].largest, (*three)[s].largest);
    EXPECT_EQ((*one)[s].at, (*three)[s].at);
    EXPECT_EQ((*one)[s].by_binade, (*three)[s].by_binade);
  }
}

// Largest errors of glibc 2.36, known to these digits by other means, in a window around each.
TEST(UlpScan, MeasuresGlibcAsItIsKnown) {
#if defined(__GLIBC__)
  if (std::string_view(gnu_get_libc_version()) == "2.36") {
    const auto largest = [](ExactFunction function, float (*each)(float), float x) {
      const auto tallies = ScanFunction(function, {Plain(each)}, {WindowAround(x)}, 1, nullptr);
      return tallies.ok() ? (*tallies)[0] : UlpTally{};
    };
    const UlpTally exp = largest(ExactFunction::kExp, std::exp, -0x1.ce651ep-8f);
    EXPECT_NEAR(exp.largest, 0.5016, 0.00005);
    EXPECT_EQ(exp.at, -0x1.ce651ep-8f);
    const UlpTally log = largest(ExactFunction::kLog, std::log, 0x1.060106p+0f);
    EXPECT_NEAR(log.largest, 0.8177, 0.00005);
    EXPECT_EQ(log.at, 0x1.060106p+0f);
    const UlpTally tanh = largest(ExactFunction::kTanh, std::tanh, 0x1.ddca18p-3f);
    EXPECT_NEAR(tanh.largest, 2.1886, 0.00005);
    EXPECT_EQ(tanh.at, 0x1.ddca18p-3f);
  }
#endif
}

// docs/functions.md and what is known of Highway 1.0.3, to the digits there.
TEST(Exponentials, RefutesTheClaimWithTheKnownWitness) {
  ExperimentOptions options;
  options.threads = 2;
  const StatusOr<nlohmann::ordered_json> record = RunExperiment("exponentials", options);
  ASSERT_TRUE(record.ok()) << record.status().message();
  const nlohmann::ordered_json& rows = (*record)["tables"][0]["rows"];
  const auto row = [&](const std::string& name) {
    for (const auto& candidate : rows) {
      if (candidate[0] == name) return candidate;
    }
    return nlohmann::ordered_json();
  };
  EXPECT_EQ((*record)["verdict"], "refuted");
  EXPECT_EQ(row("exp, accurate")[1], "0.707066");
  EXPECT_EQ(row("exp, accurate")[2], "0x1.e00788p+5");
  EXPECT_EQ(row("exp, accurate")[3], "yes");
  EXPECT_EQ(row("exp, fast")[1], "0.776961");
  EXPECT_EQ(row("exp, fast")[2], "-0x1.5ebab8p+6");
  EXPECT_EQ(row("exp, fast")[3], "no");
  EXPECT_EQ(row("ln, fast")[1], "0.839897");
  EXPECT_EQ(row("tanh, accurate")[1], "1.375596");
  for (const char* function : {"exp", "2^x", "2^x in softmax", "ln", "tanh"}) {
    EXPECT_EQ(row(std::string(function) + ", reproducible")[4], "the same everywhere");
  }
  // Highway 1.0.3 as all floats showed it: with fused multiply-adds, and without.
  const auto highway = [&](const std::string& function, const std::string& target) {
    for (const auto& candidate : (*record)["tables"][1]["rows"]) {
      if (candidate[0] == "Highway" && candidate[1] == function && candidate[2] == target) {
        return candidate[4].get<std::string>() + " at " + candidate[5].get<std::string>();
      }
    }
    return std::string("no such target");
  };
  for (const auto& [function, target, expected] :
       {std::tuple{"exp", "AVX2", "1.031553 at -0x1.787e06p+2"},
        {"exp", "SSE4", "0.987171 at -0x1.78b05ep+2"},
        {"ln", "AVX2", "0.903675 at 0x1.4785cap+0"},
        {"ln", "SSE4", "0.954211 at 0x1.69bdbap-1"},
        {"tanh", "AVX2", "2.859643 at 0x1.65aabep-3"},
        {"tanh", "SSE4", "2.771535 at 0x1.656186p-3"}}) {
    const std::string got = highway(function, target);
    if (got != "no such target") {
      EXPECT_EQ(got, expected) << function << " on " << target;
    }
  }
  options.threads = 1;
  const StatusOr<nlohmann::ordered_json> again = RunExperiment("exponentials", options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*record)["tables"], (*again)["tables"]);
}

}  // namespace
}  // namespace attest
