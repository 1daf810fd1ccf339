// SPDX-License-Identifier: Apache-2.0
// The certified reference against the textbook formula in two arithmetics, and on exact cases.
#include "reference/certify.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <string>

#include "audit/case_spec.h"
#include "core/random.h"
#include "properties/combined_case.h"
#include "reference/textbook.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Every enclosure must contain the witness's value, which is good to 1e-30 relative.
void ExpectContains(const CertifiedTensor& certified, const TextbookTensor& witness,
                    const std::string& what) {
  ASSERT_EQ(certified.values.size(), witness.hi.size()) << what;
  for (std::size_t i = 0; i < witness.hi.size(); ++i) {
    const CertifiedValue& v = certified.values[i];
    ASSERT_TRUE(v.decided) << what;
    if (!std::isfinite(v.hi)) {
      ASSERT_TRUE(Same(v.hi, witness.hi[i])) << what << " element " << i;
      continue;
    }
    const double difference = (v.hi - witness.hi[i]) + (v.lo - witness.lo[i]);
    // Both are double-doubles: exact to 2^-104 of the value or of the terms that cancel in it.
    const double allowed = v.radius + 1e-29 * std::max(1e-280, std::fabs(v.hi));
    ASSERT_TRUE(std::fabs(difference) <= allowed)
        << what << " element " << i << ": " << v.hi << " against " << witness.hi[i];
    ASSERT_EQ(v.nearest, RoundToDType(v.hi, certified.dtype)) << what << " element " << i;
  }
}

class CertifyCombined : public ::testing::TestWithParam<std::tuple<DType, TextbookNumber>> {};

// All pairs of features and more: a stride through the 4096 combinations.
TEST_P(CertifyCombined, EnclosesTheTextbookFormula) {
  const auto [dtype, number] = GetParam();
  if (!TextbookHas(number)) GTEST_SKIP() << "built without MPFR";
  // The quicker witness takes more combinations.
  const bool thorough =
      number == TextbookNumber::kMpfr100 || !TextbookHas(TextbookNumber::kMpfr100);
  const unsigned stride = thorough ? 31 : 127;
  for (unsigned features = 0; features < 4096; features += stride) {
    const Case problem = Combined(features, dtype);
    const StatusOr<Certified> certified = Certify(problem);
    const TextbookResult witness = EvaluateTextbook(problem, number);
    ASSERT_TRUE(certified.ok()) << certified.status().message();
    const std::string what = "features " + std::to_string(features) + " ";
    ExpectContains(certified->outputs.at("out"), witness.at("out"), what + "out");
    ExpectContains(certified->outputs.at("lse"), witness.at("lse"), what + "lse");
    ExpectContains(certified->outputs.at("weights"), witness.at("weights"), what + "weights");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CertifyCombined,
                         ::testing::Combine(::testing::Values(DType::kF64, DType::kF32,
                                                              DType::kBF16, DType::kF16),
                                            ::testing::Values(TextbookNumber::kMpfr100,
                                                              TextbookNumber::kCppBinFloat100)));

// Input families by the size of their numbers: exponents from 2^-140 to 2^100 in f32, logits to
// 1e12, values next to overflow and of subnormal size, sums that cancel.
enum class Family { kWideExponents, kHugeLogits, kLargeValues, kSubnormalValues, kCancellation };

Case Extreme(Family family, std::uint64_t seed) {
  Case problem =
      MakeCase({.shape = {1, 2, 1, 4, 9, 5, 5, 4}, .bias = family == Family::kHugeLogits}, seed);
  const RandomStream stream(seed, "extreme", "factors");
  for (const char* name : {"q", "k", "v"}) {
    Tensor& tensor = problem.tensors.at(name);
    const bool values = name[0] == 'v';
    for (Index i = 0; i < tensor.size(); ++i) {
      const auto index = static_cast<std::uint64_t>(i) + (values           ? 5000
                                                          : name[0] == 'k' ? 1000
                                                                           : 0);
      double factor = 1.0;
      if (family == Family::kWideExponents) {
        const int exponent = static_cast<int>(stream.Below(index, values ? 240 : 120));
        factor = std::ldexp(1.0, exponent - (values ? 140 : 60));
      }
      if (family == Family::kHugeLogits && !values) factor = 1e6;
      if (family == Family::kLargeValues && values) factor = 1e38;
      if (family == Family::kSubnormalValues && values) factor = 0x1p-140;
      tensor.Set(i, tensor.At(i) * factor);
    }
  }
  if (family == Family::kCancellation) {  // rows of q and values that sum to almost nothing
    for (const char* name : {"q", "k", "v"}) {
      Tensor& tensor = problem.tensors.at(name);
      for (Index i = 0; i + 1 < tensor.size(); i += 2) tensor.Set(i + 1, -tensor.At(i));
    }
  }
  return problem;
}

TEST(Certify, EnclosesTheTextbookFormulaOnExtremeInputs) {
  const TextbookNumber number = TextbookHas(TextbookNumber::kMpfr100)
                                    ? TextbookNumber::kMpfr100
                                    : TextbookNumber::kCppBinFloat100;
  for (const Family family : {Family::kWideExponents, Family::kHugeLogits, Family::kLargeValues,
                              Family::kSubnormalValues, Family::kCancellation}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Case problem = Extreme(family, seed);
      const StatusOr<Certified> certified = Certify(problem);
      const TextbookResult witness = EvaluateTextbook(problem, number);
      ASSERT_TRUE(certified.ok());
      const std::string what = "family " + std::to_string(static_cast<int>(family)) + " ";
      ExpectContains(certified->outputs.at("out"), witness.at("out"), what + "out");
      ExpectContains(certified->outputs.at("lse"), witness.at("lse"), what + "lse");
      ExpectContains(certified->outputs.at("weights"), witness.at("weights"), what + "weights");
    }
  }
}

// A case of one query and D = 1, so that with q = 1 the keys are the scores.
Case UnitCase(DType dtype, const std::vector<double>& scores, const std::vector<double>& values) {
  Case problem;
  const auto n = static_cast<Index>(scores.size());
  problem.contract.shape = {1, 1, 1, 1, n, 1, 1, 1};
  problem.contract.dtype = problem.contract.out_dtype = dtype;
  problem.contract.arithmetic.profile = DefaultProfile(dtype);
  problem.contract.outputs = {"out", "lse", "weights"};
  problem.tensors["q"] = Tensor(dtype, {1, 1, 1, 1});
  problem.tensors["q"].Set(0, 1.0);
  problem.tensors["k"] = Tensor(dtype, {1, 1, n, 1});
  problem.tensors["v"] = Tensor(dtype, {1, 1, n, 1});
  for (Index j = 0; j < n; ++j) {
    problem.tensors["k"].Set(j, scores[static_cast<std::size_t>(j)]);
    problem.tensors["v"].Set(j, values[static_cast<std::size_t>(j)]);
  }
  EXPECT_TRUE(FinishCase(&problem).ok());
  return problem;
}

CertifiedValue OutOf(const Case& problem) {
  const StatusOr<Certified> certified = Certify(problem);
  EXPECT_TRUE(certified.ok()) << certified.status().message();
  return certified->outputs.at("out").values[0];
}
double LseOf(const Case& problem) { return Certify(problem)->outputs.at("lse").values[0].nearest; }
double WeightOf(const Case& problem, std::size_t j) {
  return Certify(problem)->outputs.at("weights").values[j].nearest;
}

// Exact midpoints: the mean of two neighbours of odd and even last bit goes to the even one, also
// where the scores are equal only in exact arithmetic, or differ while every group has the mean.
TEST(Certify, DecidesExactTiesToEven) {
  const double ulp = 0x1p-23;
  EXPECT_EQ(OutOf(UnitCase(DType::kF32, {0.3, 0.3}, {1.0, 1.0 + ulp})).nearest, 1.0);
  EXPECT_EQ(OutOf(UnitCase(DType::kF32, {0.3, 0.3}, {1.0 + ulp, 1.0 + 2 * ulp})).nearest,
            1.0 + 2 * ulp);
  Case groups = UnitCase(DType::kF32, {0.25, 0.25, -1.5, -1.5}, {1.0, 1.0 + ulp, 1.0 + ulp, 1.0});
  const CertifiedValue tie = OutOf(groups);
  EXPECT_TRUE(tie.decided);
  EXPECT_EQ(tie.nearest, 1.0);
  // With a scale of 1/sqrt(2) the equal scores are irrational.
  groups.contract.shape.qk_dim = groups.contract.shape.k_dim = 2;
  groups.tensors["q"] = Tensor(DType::kF32, {1, 1, 1, 2});
  groups.tensors["k"] = Tensor(DType::kF32, {1, 1, 4, 2});
  for (Index i = 0; i < 2; ++i) groups.tensors["q"].Set(i, 1.0);
  const double keys[] = {0.25, 0.5, 0.5, 0.25, -1.5, 1.0, 1.0, -1.5};
  for (Index i = 0; i < 8; ++i) groups.tensors["k"].Set(i, keys[i]);
  const CertifiedValue irrational = OutOf(groups);
  EXPECT_TRUE(irrational.decided);
  EXPECT_EQ(irrational.nearest, 1.0);
  // The slightest asymmetry is no tie any more: both neighbours of the midpoint are reached.
  Case above = UnitCase(DType::kF64, {0x1p-60, 0.0}, {1.0 + 0x1p-52, 1.0});
  EXPECT_EQ(OutOf(above).nearest, 1.0 + 0x1p-52);
  Case below = UnitCase(DType::kF64, {0.0, 0x1p-60}, {1.0 + 0x1p-52, 1.0});
  EXPECT_EQ(OutOf(below).nearest, 1.0);
}

// Next to a midpoint by e^-1e9: the side is decided without that many bits.
TEST(Certify, DecidesTheSideOfAMidpointWithFarKeys) {
  const auto far = [](DType out, std::vector<double> values, double bias) {
    Case problem = UnitCase(DType::kF32, std::vector<double>(values.size(), 0.0), values);
    problem.contract.out_dtype = out;
    const auto n = static_cast<Index>(values.size());
    problem.tensors["bias"] = Tensor(DType::kF32, {1, 1, 1, n});
    problem.tensors["bias"].Set(n - 1, bias);
    return problem;
  };
  for (const double bias : {-1e4, -1e9, -3e38}) {
    const CertifiedValue above = OutOf(far(DType::kF32, {1.0, 1.0 + 0x1p-23, 5.0}, bias));
    EXPECT_TRUE(above.decided);
    EXPECT_EQ(above.nearest, 1.0 + 0x1p-23);
    const CertifiedValue below =
        OutOf(far(DType::kF32, {1.0 + 0x1p-23, 1.0 + 0x1p-22, -5.0}, bias));
    EXPECT_TRUE(below.decided);
    EXPECT_EQ(below.nearest, 1.0 + 0x1p-23);
    EXPECT_EQ(OutOf(far(DType::kBF16, {1.0 + 0x1p-8, 3.0}, bias)).nearest, 1.0 + 0x1p-7);
  }
  // An LSE that is a midpoint but for a far key.
  Case lse = UnitCase(DType::kF32, {1.0, 0.0}, {0.0, 0.0});
  lse.contract.scale = {false, 1.0};
  lse.contract.shape.qk_dim = lse.contract.shape.k_dim = 2;
  lse.tensors["q"] = Tensor(DType::kF32, {1, 1, 1, 2});
  lse.tensors["q"].Set(0, 1.0);
  lse.tensors["q"].Set(1, 0x1p-24);
  lse.tensors["k"] = Tensor(DType::kF32, {1, 1, 2, 2});
  lse.tensors["k"].Set(0, 1.0);
  lse.tensors["k"].Set(1, 1.0);
  lse.tensors["bias"] = Tensor(DType::kF32, {1, 1, 1, 2});
  lse.tensors["bias"].Set(1, -1e5);
  EXPECT_EQ(LseOf(lse), 1.0 + 0x1p-23);
}

// Half of the smallest subnormal ties to 0, whichever scores the keys have.
TEST(Certify, DecidesTheTieBelowTheSmallestSubnormal) {
  for (const double sign : {1.0, -1.0}) {
    const CertifiedValue tie =
        OutOf(UnitCase(DType::kF32, {0, 0, 1, 1}, {sign * 0x1p-149, 0, sign * 0x1p-149, 0}));
    EXPECT_TRUE(tie.decided);
    EXPECT_EQ(tie.nearest, 0.0);
    EXPECT_FALSE(std::signbit(tie.nearest));
  }
}

// Scores that 128 bits cannot hold: the enclosure is useless at first, never wrong.
TEST(Certify, SurvivesScoresBeyondTheFirstPrecision) {
  Case problem = UnitCase(DType::kF32, {0, 0}, {1.0, 3.0});
  problem.contract.scale = {false, 1.0};
  problem.contract.shape.qk_dim = problem.contract.shape.k_dim = 3;
  problem.tensors["q"] = Tensor(DType::kF32, {1, 1, 1, 3});
  problem.tensors["k"] = Tensor(DType::kF32, {1, 1, 2, 3});
  const double q[] = {1.0, 0x1p100, 0x1p100};
  const double k[] = {1.0, 0x1p100, -0x1p100, 2.0, 0x1p100, -0x1p100};
  for (Index i = 0; i < 3; ++i) problem.tensors["q"].Set(i, q[i]);
  for (Index i = 0; i < 6; ++i) problem.tensors["k"].Set(i, k[i]);
  CertifyOptions options;
  options.conditions = true;
  const StatusOr<Certified> certified = Certify(problem, options);
  ASSERT_TRUE(certified.ok());
  EXPECT_NEAR(certified->outputs.at("out").values[0].nearest, 2.4621172, 1e-7);  // 1 + 2/(1 + 1/e)
  EXPECT_NEAR(certified->conditions.weight[1], 0.7310586, 1e-7);
  EXPECT_NEAR(certified->conditions.log_weight[1], -0.3132617, 1e-7);
  EXPECT_NEAR(certified->conditions.logit_spread[0], 1.0, 1e-7);
  EXPECT_NEAR(certified->conditions.magnitude[0], 2.4621172, 1e-7);
}

// 0.25 of the weight each, half of it kept and doubled: |v| counts, and so does dropout.
TEST(Certify, SumsTheMagnitudesOfWhatIsKept) {
  Case problem = UnitCase(DType::kF32, {0, 0, 0, 0}, {1.0, -3.0, 5.0, -7.0});
  problem.contract.dropout_rate = 0.5;
  Tensor& keep = problem.tensors.emplace("keep", Tensor(DType::kBool, {1, 1, 1, 4})).first->second;
  keep.Set(1, 1.0);
  keep.Set(2, 1.0);
  CertifyOptions options;
  options.conditions = true;
  const StatusOr<Certified> certified = Certify(problem, options);
  ASSERT_TRUE(certified.ok());
  EXPECT_DOUBLE_EQ(certified->conditions.magnitude[0], 0.25 * 2.0 * (3.0 + 5.0));
  EXPECT_EQ(certified->conditions.logit_spread[0], 0.0);
}

TEST(Certify, CertifiesTheDigitsOfExactValues) {
  CertifyOptions options;
  options.digits = 5;
  const auto digits = [&](const Case& problem, const char* output) {
    const StatusOr<Certified> certified = Certify(problem, options);
    EXPECT_EQ(certified->undecided, 0);
    return certified->outputs.at(output).digits[0];
  };
  EXPECT_EQ(digits(UnitCase(DType::kF32, {0, 1}, {1.125, 1.125}), "out"), "1.1250e+00");
  EXPECT_EQ(digits(UnitCase(DType::kF32, {0, 0, 1, 1}, {1, -1, 2, -2}), "out"), "0.0000e+00");
  EXPECT_EQ(digits(UnitCase(DType::kF32, {0}, {1}), "lse"), "0.0000e+00");
}

TEST(Certify, DecidesTiesWithASinkAndWithDropout) {
  Case sink = UnitCase(DType::kF32, {0.5}, {2.0 + 0x1p-22});
  sink.tensors["sinks"] = Tensor(DType::kF32, {1});
  sink.tensors["sinks"].Set(0, 0.5);
  EXPECT_EQ(OutOf(sink).nearest, 1.0 + 0x1p-23);
  EXPECT_EQ(WeightOf(sink, 0), 0.5);
  Case dropped = UnitCase(DType::kF32, {1.0, 1.0}, {1.0, 5.0});
  dropped.contract.dropout_rate = 0.5;
  dropped.tensors["keep"] = Tensor(DType::kBool, {1, 1, 1, 2});
  dropped.tensors["keep"].Set(0, 1.0);
  EXPECT_EQ(OutOf(dropped).nearest, 1.0);  // 1/2 * 1 / (1 - 1/2)
  EXPECT_EQ(WeightOf(dropped, 1), 0.5);    // weights are before dropout
}

TEST(Certify, RoundsSubnormalsAndOverflowOnce) {
  EXPECT_EQ(OutOf(UnitCase(DType::kF32, {0.0, 0.0}, {0x1p-149, 0.0})).nearest, 0.0);
  EXPECT_EQ(OutOf(UnitCase(DType::kF32, {0.0, 0.0}, {0x1p-148, 0x1p-149})).nearest, 0x1p-148);
  Case narrow = UnitCase(DType::kF32, {0.0}, {65520.0});
  narrow.contract.out_dtype = DType::kF16;
  EXPECT_EQ(OutOf(narrow).nearest, kInfinity);
  narrow.tensors["v"].Set(0, 65519.0);
  EXPECT_EQ(OutOf(narrow).nearest, 65504.0);
}

// A bf16 output is rounded from the exact value: through f32 it would be a tie, and go the other
// way.
TEST(Certify, NeverRoundsTwice) {
  Case problem = UnitCase(DType::kF32, {0.0, -20.0}, {1.0 + 0x1p-8, 2.0});
  problem.contract.out_dtype = DType::kBF16;
  // 1 + 2^-8 + 2e-9: just above the bf16 midpoint, and 1 + 2^-8 when rounded to f32.
  EXPECT_EQ(OutOf(problem).nearest, 1.0 + 0x1p-7);
}

TEST(Certify, FollowsTheEmptyRowPolicies) {
  Case problem = UnitCase(DType::kF32, {0.0, 1.0}, {1.0, 4.0});
  problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, 2});
  EXPECT_EQ(OutOf(problem).nearest, 0.0);
  EXPECT_EQ(LseOf(problem), -kInfinity);
  problem.contract.empty_row = EmptyRow::kNan;
  EXPECT_TRUE(std::isnan(OutOf(problem).nearest));
  EXPECT_TRUE(std::isnan(LseOf(problem)));
  EXPECT_TRUE(std::isnan(WeightOf(problem, 0)));
  problem.contract.empty_row = EmptyRow::kUniform;
  EXPECT_EQ(OutOf(problem).nearest, 2.5);
  EXPECT_EQ(LseOf(problem), -kInfinity);
  EXPECT_EQ(WeightOf(problem, 0), 0.5);
  problem.tensors["v"].Set(0, kInfinity);
  EXPECT_EQ(OutOf(problem).nearest, kInfinity);
  problem.tensors["sinks"] = Tensor(DType::kF32, {1});
  problem.tensors["sinks"].Set(0, 3.0);
  EXPECT_EQ(OutOf(problem).nearest, 0.0);
  EXPECT_EQ(LseOf(problem), 3.0);
}

TEST(Certify, FollowsTheRulesForInfinitiesAndNaN) {
  // A NaN or +infinity among the allowed scores.
  for (const double bad : {kNaN, kInfinity}) {
    const Case problem = UnitCase(DType::kF32, {0.0, bad}, {1.0, 2.0});
    EXPECT_TRUE(std::isnan(OutOf(problem).nearest));
    EXPECT_TRUE(std::isnan(LseOf(problem)));
    EXPECT_TRUE(std::isnan(WeightOf(problem, 0)));
  }
  // A score of -infinity has weight 0, but 0 times a NaN or infinite value is NaN.
  Case minus = UnitCase(DType::kF32, {0.0, -kInfinity}, {1.0, 2.0});
  EXPECT_EQ(OutOf(minus).nearest, 1.0);
  EXPECT_EQ(WeightOf(minus, 1), 0.0);
  minus.tensors["v"].Set(1, kInfinity);
  EXPECT_TRUE(std::isnan(OutOf(minus).nearest));
  // All allowed scores -infinity: NaN, or the sink's.
  Case all = UnitCase(DType::kF32, {-kInfinity, -kInfinity}, {1.0, 2.0});
  EXPECT_TRUE(std::isnan(OutOf(all).nearest));
  EXPECT_TRUE(std::isnan(LseOf(all)));
  all.tensors["sinks"] = Tensor(DType::kF32, {1});
  EXPECT_EQ(OutOf(all).nearest, 0.0);
  EXPECT_EQ(LseOf(all), 0.0);
  // Positive weights times infinities follow IEEE sums.
  EXPECT_EQ(OutOf(UnitCase(DType::kF32, {0.0, 1.0}, {1.0, -kInfinity})).nearest, -kInfinity);
  EXPECT_TRUE(
      std::isnan(OutOf(UnitCase(DType::kF32, {0.0, 1.0}, {kInfinity, -kInfinity})).nearest));
  // What a mask excludes contributes nothing.
  Case masked = UnitCase(DType::kF32, {kNaN, 1.0}, {kNaN, 7.0});
  masked.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, 2});
  masked.tensors["mask"].Set(1, 1.0);
  EXPECT_EQ(OutOf(masked).nearest, 7.0);
  // A soft cap makes an infinite score finite: +c.
  Case capped = UnitCase(DType::kF32, {kInfinity, 0.0}, {1.0, 0.0});
  capped.contract.softcap = 1.0;
  EXPECT_NEAR(OutOf(capped).nearest, 1.0 / (1.0 + std::exp(-1.0)), 1e-7);
}

// The chapter's worked example: with 1/sqrt(2), and without.
TEST(Certify, GivesTheWorkedExamplesDigits) {
  Case problem;
  problem.contract.shape = {1, 1, 1, 1, 3, 2, 2, 1};
  problem.contract.dtype = problem.contract.out_dtype = DType::kF64;
  problem.contract.outputs = {"weights"};
  problem.tensors["q"] = Tensor(DType::kF64, {1, 1, 1, 2});
  problem.tensors["q"].Set(0, 1.0);
  problem.tensors["k"] = Tensor(DType::kF64, {1, 1, 3, 2});
  for (const Index i : {0, 2, 3, 5}) problem.tensors["k"].Set(i, 1.0);
  problem.tensors["v"] = Tensor(DType::kF64, {1, 1, 3, 1});
  CertifyOptions options;
  options.digits = 30;
  const auto digits = [&](std::size_t j) {
    return Certify(problem, options)->outputs.at("weights").digits[j];
  };
  // e^(1/sqrt 2) / (2 e^(1/sqrt 2) + 1), and 1 / (2 e + 1) with e.
  EXPECT_EQ(digits(0).substr(0, 7), "4.01112");
  EXPECT_EQ(digits(2).substr(0, 7), "1.97775");
  problem.contract.scale = {false, 1.0};
  EXPECT_EQ(digits(0).substr(0, 7), "4.22318");
  EXPECT_EQ(digits(2).substr(0, 7), "1.55362");
  EXPECT_EQ(digits(0).size(), 30u + 1 + 4);
}

TEST(Certify, DoesNotDependOnThreads) {
  const Case problem = MakeCase({.shape = {2, 4, 2, 9, 17, 8, 8, 8}, .bias = true}, 3);
  CertifyOptions two;
  two.threads = 2;
  const StatusOr<Certified> a = Certify(problem);
  const StatusOr<Certified> b = Certify(problem, two);
  for (const auto& [name, tensor] : a->outputs) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const CertifiedValue& x = tensor.values[i];
      const CertifiedValue& y = b->outputs.at(name).values[i];
      ASSERT_TRUE(Same(x.nearest, y.nearest) && Same(x.hi, y.hi) && x.lo == y.lo &&
                  x.radius == y.radius);
    }
  }
}

TEST(Certify, CanBeCancelled) {
  const Case problem = MakeCase({.shape = {1, 1, 1, 9, 3, 2, 2, 2}}, 0);
  CertifyOptions options;
  options.progress = [](Index done, Index all) {
    EXPECT_EQ(all, 9);
    return done < 4;
  };
  const StatusOr<Certified> certified = Certify(problem, options);
  ASSERT_FALSE(certified.ok());
  EXPECT_EQ(certified.status().message(), "cancelled");
}

TEST(Certify, RefusesAnotherRoundingMode) {
  const Case problem = MakeCase({.shape = {1, 1, 1, 1, 3, 2, 2, 2}}, 0);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const StatusOr<Certified> certified = Certify(problem);
  std::fesetround(FE_TONEAREST);
  ASSERT_FALSE(certified.ok());
  EXPECT_NE(certified.status().message().find("rounding mode"), std::string::npos);
}

}  // namespace
}  // namespace attest
