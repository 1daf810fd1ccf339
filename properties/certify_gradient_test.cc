// SPDX-License-Identifier: Apache-2.0
// Certified gradients, and the scores general and additive: against the textbook formula, closed
// forms, the rules for NaN and infinities, and exact ties.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "properties/gradient_case.h"
#include "reference/certify.h"
#include "reference/textbook.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Certified MustCertify(const Case& problem, int threads = 1) {
  CertifyOptions options;
  options.threads = threads;
  StatusOr<Certified> certified = Certify(problem, options);
  EXPECT_TRUE(certified.ok()) << certified.status().message();
  return *std::move(certified);
}

// Every enclosure holds the witness's value, which has 100 digits of the terms that it sums up.
void ExpectContains(const CertifiedTensor& certified, const TextbookTensor& witness,
                    const std::string& what) {
  ASSERT_EQ(certified.values.size(), witness.hi.size()) << what;
  for (std::size_t i = 0; i < witness.hi.size(); ++i) {
    const CertifiedValue& v = certified.values[i];
    const std::string element = what + " element " + std::to_string(i);
    ASSERT_TRUE(v.decided) << element;
    if (!std::isfinite(v.hi)) {
      ASSERT_EQ(v.hi, witness.hi[i]) << element;
      continue;
    }
    const double difference = (v.hi - witness.hi[i]) + (v.lo - witness.lo[i]);
    const double allowed = v.radius + 1e-29 * std::max(1e-60, std::fabs(v.hi));
    ASSERT_TRUE(std::fabs(difference) <= allowed)
        << element << ": " << v.hi << " against " << witness.hi[i];
    if (v.hi != 0.0 && std::fabs(v.hi) > 1e-80) {
      ASSERT_EQ(v.nearest, RoundToDType(v.hi, certified.dtype)) << element;
    } else {
      ASSERT_EQ(v.nearest, 0.0) << element;
    }
  }
}

class CertifyWholeContract : public ::testing::TestWithParam<std::tuple<ScoreKind, DType>> {};

TEST_P(CertifyWholeContract, EnclosesTheTextbookFormula) {
  const auto [score, dtype] = GetParam();
  const TextbookNumber number = TextbookHas(TextbookNumber::kMpfr100)
                                    ? TextbookNumber::kMpfr100
                                    : TextbookNumber::kCppBinFloat100;
  std::vector<unsigned> combinations;
  for (unsigned features = 0; features < 4096; features += 337) combinations.push_back(features);
  for (unsigned bit = 0; bit < 12; ++bit) combinations.push_back(1u << bit);
  combinations.push_back(3u << 10);  // dropout needs a keep mask, which needs the local window
  for (const unsigned features : combinations) {
    const Case problem = CombinedWithGradients(features, score, dtype);
    const Certified certified = MustCertify(problem);
    const TextbookResult witness = EvaluateTextbook(problem, number);
    EXPECT_EQ(certified.undecided, 0);
    for (const std::string& output : problem.contract.outputs) {
      ExpectContains(certified.outputs.at(output), witness.at(output),
                     "features " + std::to_string(features) + " " + output);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scores, CertifyWholeContract,
                         ::testing::Combine(::testing::Values(ScoreKind::kDot, ScoreKind::kGeneral,
                                                              ScoreKind::kAdditive),
                                            ::testing::Values(DType::kF64, DType::kF32,
                                                              DType::kBF16)));

Tensor Filled(DType dtype, const Shape& shape, std::initializer_list<double> values) {
  Tensor tensor(dtype, shape);
  Index i = 0;
  for (const double value : values) tensor.Set(i++, value);
  return tensor;
}

// One query, D = 1, q = 1, so that the keys are the scores; grad_out = 1.
Case UnitCase(DType dtype, const std::vector<double>& scores, const std::vector<double>& values) {
  Case problem;
  const auto n = static_cast<Index>(scores.size());
  problem.contract.shape = {1, 1, 1, 1, n, 1, 1, 1};
  problem.contract.dtype = problem.contract.out_dtype = dtype;
  problem.contract.outputs = {"grad_q", "grad_k", "grad_v"};
  problem.tensors["q"] = Filled(dtype, {1, 1, 1, 1}, {1.0});
  problem.tensors["k"] = Tensor(dtype, {1, 1, n, 1});
  problem.tensors["v"] = Tensor(dtype, {1, 1, n, 1});
  for (Index j = 0; j < n; ++j) {
    problem.tensors["k"].Set(j, scores[static_cast<std::size_t>(j)]);
    problem.tensors["v"].Set(j, values[static_cast<std::size_t>(j)]);
  }
  problem.tensors["grad_out"] = Filled(dtype, {1, 1, 1, 1}, {1.0});
  EXPECT_TRUE(FinishCase(&problem).ok());
  return problem;
}

void Ask(Case* problem, std::vector<std::string> outputs) {
  problem->contract.outputs = std::move(outputs);
  const Status finished = FinishCase(problem);
  EXPECT_TRUE(finished.ok()) << finished.message();
}

double Nearest(const Case& problem, const char* output, std::size_t element = 0) {
  const Certified certified = MustCertify(problem);
  EXPECT_EQ(certified.undecided, 0);
  return certified.outputs.at(output).values[element].nearest;
}

TEST(CertifyGradient, IsZeroForASingleKey) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const Case problem = UnitCase(dtype, {0.7}, {0.3});
    const Certified certified = MustCertify(problem);
    EXPECT_EQ(certified.outputs.at("grad_q").values[0].hi, 0.0);
    EXPECT_EQ(certified.outputs.at("grad_k").values[0].radius, 0.0);
    EXPECT_EQ(certified.outputs.at("grad_v").values[0].nearest, 1.0);
    EXPECT_LE(certified.largest_precision, 256);  // not found by exhausting the precision
  }
}

// d out / d score_1 = p (1 - p) (v_1 - v_2).
TEST(CertifyGradient, IsTheLogisticDerivativeForTwoKeys) {
  const Case problem = UnitCase(DType::kF64, {0.75, -0.5}, {3.0, 1.0});
  const double p = 1.0 / (1.0 + std::exp(-1.25));
  EXPECT_NEAR(Nearest(problem, "grad_k", 0), 2.0 * p * (1.0 - p), 1e-15);
  EXPECT_NEAR(Nearest(problem, "grad_k", 1), -2.0 * p * (1.0 - p), 1e-15);
  EXPECT_NEAR(Nearest(problem, "grad_q"), 2.0 * p * (1.0 - p) * 1.25, 1e-15);
  EXPECT_NEAR(Nearest(problem, "grad_v", 1), 1.0 - p, 1e-15);
}

TEST(CertifyGradient, ReachesTheSinkOfEmptyRowsThroughTheLseAlone) {
  Case problem = UnitCase(DType::kF32, {0.0, 1.0}, {1.0, 4.0});
  problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, 2});
  problem.tensors["sinks"] = Filled(DType::kF32, {1}, {0.5});
  problem.tensors["grad_lse"] = Filled(DType::kF32, {1, 1, 1}, {-3.0});
  for (const EmptyRow policy : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
    problem.contract.empty_row = policy;
    Ask(&problem, {"grad_q", "grad_k", "grad_v", "grad_sinks"});
    EXPECT_EQ(Nearest(problem, "grad_sinks"), -3.0);
    EXPECT_EQ(Nearest(problem, "grad_q"), 0.0);
    EXPECT_EQ(Nearest(problem, "grad_k", 1), 0.0);
    EXPECT_EQ(Nearest(problem, "grad_v", 1), 0.0);
  }
  problem.tensors["sinks"].Set(0, -kInfinity);
  EXPECT_EQ(Nearest(problem, "grad_sinks"), 0.0);
  // A NaN in grad_out does not reach anything here, one in grad_lse the sink alone.
  problem.tensors["sinks"].Set(0, 0.5);
  problem.tensors["grad_out"].Set(0, kNaN);
  EXPECT_EQ(Nearest(problem, "grad_sinks"), -3.0);
  problem.tensors["grad_lse"].Set(0, kNaN);
  EXPECT_TRUE(std::isnan(Nearest(problem, "grad_sinks")));
  EXPECT_EQ(Nearest(problem, "grad_v", 0), 0.0);
}

// A row with a NaN or an infinity in what takes part makes everything that it reaches NaN.
TEST(CertifyGradient, IsNaNWhereAPoisonedRowReaches) {
  Case problem = UnitCase(DType::kF32, {0.0, 1.0, 2.0}, {1.0, 4.0, 2.0});
  problem.contract.shape.q_len = 2;
  problem.tensors["q"] = Filled(DType::kF32, {1, 1, 2, 1}, {1.0, 2.0});
  problem.tensors["grad_out"] = Filled(DType::kF32, {1, 1, 2, 1}, {1.0, 1.0});
  problem.tensors["mask"] = Filled(DType::kBool, {1, 1, 2, 3}, {1, 1, 0, 0, 1, 1});
  problem.tensors["bias"] = Filled(DType::kF32, {1, 1, 2, 3}, {0, 0, 0, 0, 0, 0});
  Ask(&problem, {"grad_q", "grad_k", "grad_v", "grad_bias"});
  const auto expect_first_row_poisoned = [&](const Case& poisoned) {
    EXPECT_TRUE(std::isnan(Nearest(poisoned, "grad_q", 0)));
    EXPECT_TRUE(std::isfinite(Nearest(poisoned, "grad_q", 1)));
    for (const char* name : {"grad_k", "grad_v"}) {
      EXPECT_TRUE(std::isnan(Nearest(poisoned, name, 0))) << name;
      EXPECT_TRUE(std::isnan(Nearest(poisoned, name, 1))) << name;
      EXPECT_TRUE(std::isfinite(Nearest(poisoned, name, 2))) << name;
    }
    EXPECT_TRUE(std::isnan(Nearest(poisoned, "grad_bias", 1)));
    EXPECT_EQ(Nearest(poisoned, "grad_bias", 2), 0.0);  // a forbidden key
    EXPECT_TRUE(std::isfinite(Nearest(poisoned, "grad_bias", 4)));
  };
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    for (const char* name : {"q", "k", "v", "grad_out"}) {
      Case poisoned = problem;
      poisoned.tensors[name].Set(0, bad);
      expect_first_row_poisoned(poisoned);
    }
  }
  Case bias = problem;
  bias.tensors["bias"].Set(1, kNaN);
  expect_first_row_poisoned(bias);
  // What no row allows touches nothing.
  Case forbidden = problem;
  forbidden.tensors["mask"] = Filled(DType::kBool, {1, 1, 2, 3}, {1, 1, 0, 1, 1, 0});
  forbidden.tensors["k"].Set(2, kNaN);
  forbidden.tensors["v"].Set(2, kInfinity);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(Nearest(forbidden, "grad_v", i)));
  EXPECT_EQ(Nearest(forbidden, "grad_k", 2), 0.0);
}

// Equal scores make gradients rational: midpoints go to even.
TEST(CertifyGradient, DecidesExactTiesToEven) {
  const double ulp = 0x1p-23;
  Case problem = UnitCase(DType::kF32, {0.3, 0.3}, {1.0, 5.0});
  problem.contract.shape.q_len = 2;
  problem.tensors["q"] = Filled(DType::kF32, {1, 1, 2, 1}, {1.0, 1.0});
  // dV_j = (1 + (1 + ulp)) / 2: a midpoint.
  problem.tensors["grad_out"] = Filled(DType::kF32, {1, 1, 2, 1}, {1.0, 1.0 + ulp});
  Ask(&problem, {"grad_v"});
  EXPECT_EQ(Nearest(problem, "grad_v", 0), 1.0);
  problem.tensors["grad_out"].Set(0, 1.0 + 2 * ulp);
  EXPECT_EQ(Nearest(problem, "grad_v", 1), 1.0 + 2 * ulp);
  // Rows of three keys and of two.
  problem.contract.shape.kv_len = 3;
  problem.tensors["k"] = Filled(DType::kF32, {1, 1, 3, 1}, {0.3, 0.3, 0.3});
  problem.tensors["v"] = Filled(DType::kF32, {1, 1, 3, 1}, {1.0, 5.0, 2.0});
  problem.tensors["mask"] = Filled(DType::kBool, {1, 1, 2, 3}, {1, 1, 1, 1, 1, 0});
  problem.tensors["grad_out"] = Filled(DType::kF32, {1, 1, 2, 1}, {1.5, 1.0 + ulp});
  Ask(&problem, {"grad_v"});
  // 1.5 / 3 + (1 + ulp) / 2 = 1 + ulp / 2: a midpoint, of two rows of different counts.
  EXPECT_EQ(Nearest(problem, "grad_v", 0), 1.0);
  // By a score: dS = (1/2) (1/2) (v_1 - v_2), with v_1 - v_2 a midpoint.
  Case score = UnitCase(DType::kF32, {0.5, 0.5}, {1.0, -0x1p-24});
  score.tensors["bias"] = Tensor(DType::kF32, {1, 1, 1, 2});
  Ask(&score, {"grad_bias", "grad_k"});
  EXPECT_EQ(Nearest(score, "grad_bias", 0), 0.25);
  EXPECT_EQ(Nearest(score, "grad_k", 1), -0.25);
  // Dropout divides by 3/4: 9 * 2^-26 / (3 * 3/4) + 1.5 / (2 * 3/4) = 1 + 2^-24.
  problem.tensors["keep"] = Filled(DType::kBool, {1, 1, 1, 3}, {1, 1, 1});
  problem.contract.dropout_rate = 0.25;
  problem.tensors["grad_out"] = Filled(DType::kF32, {1, 1, 2, 1}, {9 * 0x1p-26, 1.5});
  EXPECT_EQ(Nearest(problem, "grad_v", 0), 1.0);
}

// A mask of different lengths: exact sums over rows of 1, 2, .. keys.
TEST(CertifyGradient, DecidesTiesOverManyRowLengths) {
  Case problem;
  problem.contract.shape = {1, 1, 1, 12, 12, 1, 1, 1};
  problem.contract.causal = Causal::kTopLeft;
  problem.tensors["q"] = Tensor(DType::kF32, {1, 1, 12, 1});
  problem.tensors["k"] = Tensor(DType::kF32, {1, 1, 12, 1});
  problem.tensors["v"] = Tensor(DType::kF32, {1, 1, 12, 1});
  problem.tensors["grad_out"] = Tensor(DType::kF32, {1, 1, 12, 1});
  for (Index i = 0; i < 12; ++i) problem.tensors["grad_out"].Set(i, static_cast<double>(i + 1));
  problem.tensors["grad_out"].Set(11, 12.0 * (1.0 + 0x1p-21));
  Ask(&problem, {"grad_v"});
  // Row i adds (i + 1) / (i + 1) = 1 to every key up to i; the last one 2^-21 more: 12 + 2^-21 is
  // a midpoint.
  EXPECT_EQ(Nearest(problem, "grad_v", 0), 12.0);
  EXPECT_EQ(Nearest(problem, "grad_v", 8), 4.0 + 0x1p-21);
  EXPECT_EQ(Nearest(problem, "grad_v", 10), 2.0 + 0x1p-21);
}

TEST(CertifyGradient, DoesNotDependOnThreadsAndGivesDigits) {
  const Case problem = CombinedWithGradients(0x122, ScoreKind::kGeneral, DType::kF32);
  const Certified one = MustCertify(problem);
  const Certified two = MustCertify(problem, 2);
  for (const auto& [name, tensor] : one.outputs) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      ASSERT_EQ(tensor.values[i].hi, two.outputs.at(name).values[i].hi) << name;
    }
  }
  CertifyOptions options;
  options.digits = 20;
  const Case unit = UnitCase(DType::kF64, {0.0, 0.0}, {3.0, 1.0});
  EXPECT_EQ(Certify(unit, options)->outputs.at("grad_k").digits[0], "5.0000000000000000000e-01");
}

// The scores general and additive with NaN and infinities in what they are made of.
TEST(CertifyScores, FollowTheRulesForInfinitiesAndNaN) {
  Case general = UnitCase(DType::kF32, {1.0, 2.0}, {1.0, 5.0});
  general.contract.score = ScoreKind::kGeneral;
  general.contract.scale = {false, 1.0};
  general.tensors["w"] = Filled(DType::kF32, {1, 1}, {0.0});
  Ask(&general, {"out", "lse", "weights"});
  EXPECT_EQ(Nearest(general, "out"), 3.0);  // W = 0: equal scores
  general.tensors["w"].Set(0, kInfinity);
  EXPECT_TRUE(std::isnan(Nearest(general, "out")));
  general.tensors["w"].Set(0, -kInfinity);
  EXPECT_TRUE(std::isnan(Nearest(general, "lse")));  // all scores -infinity
  general.tensors["k"].Set(0, 0.0);
  EXPECT_TRUE(std::isnan(Nearest(general, "weights", 0)));  // 0 * infinity
  // Products of tiny factors are no zeros: 1e-30 * 1e-30 * infinity.
  general.tensors["q"].Set(0, 1e-30);
  general.tensors["w"].Set(0, 1e-30);
  general.tensors["k"] = Filled(DType::kF32, {1, 1, 2, 1}, {-kInfinity, 1.0});
  EXPECT_EQ(Nearest(general, "out"), 5.0);

  Case additive = UnitCase(DType::kF32, {0.0, 0.0}, {1.0, 5.0});
  additive.contract.score = ScoreKind::kAdditive;
  additive.contract.scale = {false, 1.0};
  additive.tensors["w_q"] = Filled(DType::kF32, {1, 1}, {0.0});
  additive.tensors["w_k"] = Filled(DType::kF32, {1, 1}, {1.0});
  additive.tensors["v_a"] = Filled(DType::kF32, {1}, {2.0});
  Ask(&additive, {"out", "lse", "weights"});
  EXPECT_EQ(Nearest(additive, "out"), 3.0);
  // tanh(+-infinity) = +-1: scores 2 and -2.
  additive.tensors["k"] = Filled(DType::kF32, {1, 1, 2, 1}, {kInfinity, -kInfinity});
  EXPECT_NEAR(Nearest(additive, "weights", 0), 1.0 / (1.0 + std::exp(-4.0)), 1e-7);
  additive.tensors["v_a"].Set(0, kInfinity);
  EXPECT_TRUE(std::isnan(Nearest(additive, "out")));
  additive.tensors["v_a"].Set(0, -kInfinity);  // scores -infinity and +infinity
  EXPECT_TRUE(std::isnan(Nearest(additive, "out")));
  additive.tensors["k"] = Filled(DType::kF32, {1, 1, 2, 1}, {0x1p-149, 0.0});
  EXPECT_TRUE(std::isnan(Nearest(additive, "weights", 1)));  // infinity * tanh(0)
  additive.tensors["mask"] = Filled(DType::kBool, {1, 1, 1, 2}, {1, 0});
  EXPECT_TRUE(std::isnan(Nearest(additive, "out")));  // a single score of -infinity
  additive.tensors["sinks"] = Filled(DType::kF32, {1}, {1.0});
  EXPECT_EQ(Nearest(additive, "lse"), 1.0);
  additive.tensors["v_a"].Set(0, kNaN);
  EXPECT_TRUE(std::isnan(Nearest(additive, "lse")));
}

// Ties that the scores show: equal keys, equal projections of different keys.
TEST(CertifyScores, DecideTiesOfEqualScores) {
  const double ulp = 0x1p-23;
  Case additive = UnitCase(DType::kF32, {0.3, 0.3}, {1.0, 1.0 + ulp});
  additive.contract.score = ScoreKind::kAdditive;
  additive.contract.scale = {false, 1.0};
  additive.contract.shape.k_dim = 2;
  additive.tensors["k"] = Filled(DType::kF32, {1, 1, 2, 2}, {0.25, 0.5, 0.5, 0.25});
  additive.tensors["w_q"] = Filled(DType::kF32, {2, 1}, {0.5, 1.0});
  additive.tensors["w_k"] = Filled(DType::kF32, {2, 2}, {0.75, 0.75, -1.5, -1.5});
  additive.tensors["v_a"] = Filled(DType::kF32, {2}, {2.0, 0.5});
  Ask(&additive, {"out"});
  EXPECT_EQ(Nearest(additive, "out"), 1.0);
  Case general = UnitCase(DType::kF32, {0.3, 0.3}, {1.0, 1.0 + ulp});
  general.contract.score = ScoreKind::kGeneral;
  general.contract.scale = {false, 0.1};
  general.contract.shape.k_dim = 2;
  general.tensors["k"] = additive.tensors["k"];
  general.tensors["w"] = Filled(DType::kF32, {1, 2}, {0.7, 0.7});
  Ask(&general, {"out"});
  EXPECT_EQ(Nearest(general, "out"), 1.0);
}

}  // namespace
}  // namespace attest
