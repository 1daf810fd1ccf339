// SPDX-License-Identifier: Apache-2.0
// Bounds of gradients and of the scores general and additive: no right implementation is flagged,
// wherever and in whatever order it rounds, every seeded fault is, and small cases are judged
// sharply.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.h"
#include "audit/judge.h"
#include "audit/suite.h"
#include "properties/gradient_case.h"
#include "properties/profile_case.h"
#include "properties/right_gradient.h"

namespace attest {
namespace {

// The bias of a case broadcast over some of its axes, which axes depending on `which`.
void BroadcastBias(unsigned which, Case* problem) {
  if (problem->Find("bias") == nullptr) return;
  Shape shape = problem->Find("bias")->shape();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if ((which >> axis & 1u) != 0) shape[axis] = 1;
  }
  problem->tensors["bias"] = NormalTensor(problem->contract.wide_dtype(), shape, "bias");
}

void Multiply(const char* name, double factor, Case* problem) {
  const auto found = problem->tensors.find(name);
  if (found == problem->tensors.end()) return;
  for (Index i = 0; i < found->second.size(); ++i) {
    found->second.Set(i, factor * found->second.At(i));
  }
}

// Sizes that strain the bounds: spread scores, values and gradients among the subnormal numbers of
// the format, queries that vanish when they are scaled.
void Strain(unsigned which, Case* problem) {
  const FloatFormat& format = FormatOf(problem->contract.dtype);
  const double tiny = 64.0 * format.smallest_subnormal();
  switch (which) {
    case 0:
      Multiply("q", 4.0, problem);
      Multiply("v_a", 4.0, problem);
      break;
    case 1:
      Multiply("k", 25.0, problem);
      break;
    case 2:
      Multiply("v", tiny, problem);
      break;
    case 3:
      Multiply("grad_out", tiny, problem);
      Multiply("grad_lse", tiny, problem);
      break;
    case 4:
      Multiply("q", tiny, problem);
      break;
    case 5:
      for (const char* name : {"w", "w_q", "w_k", "k"}) Multiply(name, std::sqrt(tiny), problem);
      break;
    default:
      break;
  }
}

Case DrawnCase(unsigned features, ScoreKind score, const ProfileCase& profile) {
  Dimensions shape{2, 4, 2, 5, 7, 6, 6, 3};
  if (score == ScoreKind::kDot && features % 4 == 3) shape = {1, 4, 2, 9, 33, 16, 16, 8};
  Case problem = CombinedWithGradients(features, score, profile.dtype, shape);
  problem.contract.arithmetic.profile = profile.profile;
  problem.contract.outputs.push_back("weights");
  if (features % 3 != 0) BroadcastBias(features / 3, &problem);
  Strain(features % 11, &problem);
  return problem;
}

class RightGradients : public ::testing::TestWithParam<std::tuple<ScoreKind, ProfileCase>> {};

TEST_P(RightGradients, AreNeverFlagged) {
  const auto [score, profile] = GetParam();
  std::map<std::string, double> worst;  // by tensor
  std::map<std::string, double> worst_variant;
  Index elements = 0;
  Index not_judged = 0;
  const unsigned stride = score == ScoreKind::kDot ? 37 : 97;
  for (unsigned features = 0; features < 4096; features += stride) {
    const Case problem = DrawnCase(features, score, profile);
    const StatusOr<Expectation> expected = Expect(problem);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    for (const BackwardVariant variant : AllBackwardVariants()) {
      const std::unique_ptr<Subject> subject = MakeRightGradient(variant);
      const Outcome outcome = subject->Run(problem, {});
      ASSERT_EQ(outcome.kind, Outcome::Kind::kOk) << outcome.message;
      for (const auto& [name, tensor] : outcome.outputs) {
        const TensorVerdict verdict = Judge(*expected, name, tensor);
        ASSERT_EQ(verdict.violations, 0)
            << subject->info().name << ", features " << features << ", " << name << ": got "
            << verdict.worst.got << ", expected " << verdict.worst.expected << ", error / bound "
            << verdict.worst.bound_ratio;
        worst[name] = std::max(worst[name], verdict.max_bound_ratio);
        double& of_variant = worst_variant[NameOf(variant)];
        if (name.starts_with("grad_")) of_variant = std::max(of_variant, verdict.max_bound_ratio);
        elements += verdict.elements;
        not_judged += verdict.not_judged;
      }
    }
  }
  for (const auto& [name, ratio] : worst) std::printf("  %-20s %.3g\n", name.c_str(), ratio);
  for (const auto& [name, ratio] : worst_variant) {
    std::printf("  gradients, %-20s %.3g\n", name.c_str(), ratio);
  }
  std::printf("  not judged: %lld of %lld\n", static_cast<long long>(not_judged),
              static_cast<long long>(elements));
  // In bf16-math, scores of some tens are beyond any bound.
  EXPECT_LE(not_judged * 5, elements);
  // A bound a thousand times the worst error would say little.
  for (const auto& [name, ratio] : worst) EXPECT_GT(ratio, 1e-3) << name;
}

std::string NameOfPair(const ::testing::TestParamInfo<std::tuple<ScoreKind, ProfileCase>>& pair) {
  const char* const scores[] = {"dot", "general", "additive"};
  return std::string(scores[static_cast<int>(std::get<0>(pair.param))]) + "_" +
         NameOf(std::get<1>(pair.param));
}

INSTANTIATE_TEST_SUITE_P(All, RightGradients,
                         ::testing::Combine(::testing::Values(ScoreKind::kDot, ScoreKind::kGeneral,
                                                              ScoreKind::kAdditive),
                                            ::testing::Values(kF32, kF64, kBF16Flash, kF16Flash,
                                                              kBF16Math, kF16Math)),
                         NameOfPair);

// The certified values themselves.
TEST(GradientBounds, CertifiedValuesConform) {
  for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    const Case problem = DrawnCase(0x1c8, score, kF32);
    const StatusOr<Expectation> expected = Expect(problem);
    ASSERT_TRUE(expected.ok());
    for (const auto& [name, certified] : expected->certified.outputs) {
      Tensor tensor(certified.dtype, certified.shape);
      for (Index i = 0; i < tensor.size(); ++i) {
        tensor.Set(i, certified.values[static_cast<std::size_t>(i)].nearest);
      }
      const TensorVerdict verdict = Judge(*expected, name, tensor);
      EXPECT_EQ(verdict.violations, 0) << name;
      EXPECT_EQ(verdict.not_judged, 0) << name;
      EXPECT_EQ(verdict.not_correctly_rounded, 0) << name;
    }
  }
}

// The cases of the quick suite, or of the standard one, with gradients or other scores than `dot`.
std::vector<SuiteCase> GradientCases(const std::string& suite, Index longest) {
  std::vector<SuiteCase> cases = *MakeSuite(suite, 0);
  std::erase_if(cases, [&](const SuiteCase& item) {
    const bool ours = item.family.starts_with("gradients") || item.family.starts_with("scores");
    return !ours || item.problem.contract.shape.kv_len > longest;
  });
  return cases;
}

// By every law as well.
TEST(GradientAudit, TakesRightImplementationsForConforming) {
  Auditor auditor(GradientCases("standard", 50), {});
  EXPECT_GT(auditor.cases().size(), 40u);
  for (const BackwardVariant variant : {BackwardVariant::kTextbook, BackwardVariant::kFlat}) {
    const StatusOr<nlohmann::ordered_json> record =
        auditor.Audit(*MakeRightGradient(variant), "test");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
    EXPECT_EQ((*record)["elements"]["not_judged"], 0);
  }
}

// The quick suite has a case for every fault.
TEST(GradientAudit, FindsEveryFault) {
  Auditor auditor(GradientCases("quick", 50), {});
  for (const GradientFault fault : AllGradientFaults()) {
    const StatusOr<nlohmann::ordered_json> record =
        auditor.Audit(*MakeRightGradient(BackwardVariant::kTextbook, fault), "test");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ((*record)["verdict"], "findings") << NameOf(fault);
  }
}

// A small case of every feature that a seeded fault needs. With `extras` off: no dropout, sinks,
// LSE or bias, so that what is left is sharp.
Case SmallCase(ScoreKind score, bool extras, const ProfileCase& profile = kF32) {
  Case problem;
  Contract& contract = problem.contract;
  contract.dtype = contract.out_dtype = profile.dtype;
  contract.arithmetic.profile = profile.profile;
  contract.score = score;
  contract.shape = {2, 2, 1, 4, 4, 4, 4, 4};
  const Dimensions s = contract.shape;
  if (score != ScoreKind::kDot) contract.scale = {false, 0.5};
  const auto add = [&](const char* name, const Shape& shape, double factor = 1.0) {
    problem.tensors[name] = NormalTensor(profile.dtype, shape, name, factor);
  };
  add("q", {s.batch, s.q_heads, s.q_len, s.qk_dim});
  add("k", {s.batch, s.kv_heads, s.kv_len, s.k_dim});
  add("v", {s.batch, s.kv_heads, s.kv_len, s.v_dim});
  add("grad_out", {s.batch, s.q_heads, s.q_len, s.v_dim});
  contract.outputs = {"out", "lse", "grad_q", "grad_k", "grad_v"};
  if (score == ScoreKind::kGeneral) {
    add("w", {s.qk_dim, s.k_dim}, 0.5);
    contract.outputs.push_back("grad_w");
  }
  if (score == ScoreKind::kAdditive) {
    add("w_q", {3, s.qk_dim}, 0.5);
    add("w_k", {3, s.k_dim}, 0.5);
    add("v_a", {3});
    add("b", {3});
    for (const char* name : {"grad_w_q", "grad_w_k", "grad_v_a", "grad_b"}) {
      contract.outputs.emplace_back(name);
    }
  }
  if (extras) {
    contract.softcap = 2.0;
    contract.dropout_rate = 0.25;
    add("grad_lse", {s.batch, s.q_heads, s.q_len});
    add("sinks", {s.q_heads});
    add("bias", {1, s.q_heads, 1, s.kv_len});
    problem.tensors["keep"] = Tensor(DType::kBool, {s.batch, 1, s.q_len, s.kv_len});
    for (Index i = 0; i < problem.tensors["keep"].size(); ++i) {
      problem.tensors["keep"].Set(i, i % 4 == 0 ? 0.0 : 1.0);
    }
    contract.outputs.emplace_back("grad_bias");
    contract.outputs.emplace_back("grad_sinks");
  }
  const Status finished = FinishCase(&problem);
  EXPECT_TRUE(finished.ok()) << finished.message();
  return problem;
}

class GradientFaults : public ::testing::TestWithParam<std::tuple<GradientFault, ProfileCase>> {};

TEST_P(GradientFaults, AreFlagged) {
  const auto [fault, profile] = GetParam();
  ScoreKind score = ScoreKind::kDot;
  if (fault == GradientFault::kTanhDerivativeMissing) score = ScoreKind::kAdditive;
  if (fault == GradientFault::kParameterTransposed) score = ScoreKind::kGeneral;
  const Case problem = SmallCase(score, true, profile);
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok());
  Index violations = 0;
  double worst = 0.0;
  const Outcome right = MakeRightGradient(BackwardVariant::kTextbook)->Run(problem, {});
  const Outcome wrong = MakeRightGradient(BackwardVariant::kTextbook, fault)->Run(problem, {});
  for (const auto& [name, tensor] : wrong.outputs) {
    EXPECT_EQ(Judge(*expected, name, right.outputs.at(name)).violations, 0) << name;
    const TensorVerdict verdict = Judge(*expected, name, tensor);
    violations += verdict.violations;
    worst = std::max(worst, verdict.max_bound_ratio);
    if (verdict.violations > 0) {
      std::printf("  %s: %lld of %lld, error / bound %.3g\n", name.c_str(),
                  static_cast<long long>(verdict.violations),
                  static_cast<long long>(verdict.elements), verdict.max_bound_ratio);
    }
  }
  EXPECT_GT(violations, 0);
  EXPECT_GT(worst, 2.0);  // not by a hair
}

std::string NameOfFault(
    const ::testing::TestParamInfo<std::tuple<GradientFault, ProfileCase>>& pair) {
  return NameOf(std::get<0>(pair.param)) + "_" + NameOf(std::get<1>(pair.param));
}

INSTANTIATE_TEST_SUITE_P(Exact, GradientFaults,
                         ::testing::Combine(::testing::ValuesIn(AllGradientFaults()),
                                            ::testing::Values(kF32, kF64)),
                         NameOfFault);

// All but the last fault, which is what these profiles do.
std::vector<GradientFault> CoarseFaults() {
  std::vector<GradientFault> faults = AllGradientFaults();
  faults.pop_back();
  return faults;
}
INSTANTIATE_TEST_SUITE_P(Rounded, GradientFaults,
                         ::testing::Combine(::testing::ValuesIn(CoarseFaults()),
                                            ::testing::Values(kBF16Flash, kF16Flash)),
                         NameOfFault);

// The bounds are of the size that theory promises: below 2^-13, and some u at least, of the sum of
// the magnitudes of what a gradient sums up.
TEST(GradientBounds, AreSharpOnSmallRows) {
  for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    const StatusOr<Expectation> expected = Expect(SmallCase(score, false));
    ASSERT_TRUE(expected.ok());
    for (const auto& [name, bounds] : expected->gradient_bounds) {
      double total = 0.0;
      double bound = 0.0;
      for (std::size_t i = 0; i < bounds.bound.size(); ++i) {
        total += bounds.magnitude[i];
        bound += bounds.bound[i];
        EXPECT_GT(bounds.bound[i], 0x1p-24 * bounds.magnitude[i]) << name;
      }
      std::printf("  %-10s %4.0f u\n", name.c_str(), bound / total * 0x1p24);
      EXPECT_LT(bound, 0x1p-13 * total) << name;
    }
  }
}

// Gradients that no row reaches are exactly 0.
TEST(GradientBounds, ForbiddenKeysAndEmptyRowsAreExactlyZero) {
  Case problem = SmallCase(ScoreKind::kDot, false);
  problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 4, 4});
  for (Index i = 4; i < 16; ++i) problem.tensors["mask"].Set(i, i % 4 == 3 ? 0.0 : 1.0);
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok());
  for (std::size_t d = 0; d < 4; ++d) {
    EXPECT_TRUE(Conforms(*expected, "grad_q", d, 0.0));
    EXPECT_FALSE(Conforms(*expected, "grad_q", d, 1e-45));
    EXPECT_FALSE(Conforms(*expected, "grad_k", 12 + d, 1e-45));
    EXPECT_FALSE(Conforms(*expected, "grad_v", 12 + d, std::nan("")));
    EXPECT_FALSE(Conforms(*expected, "grad_v", d, std::nan("")));
  }
}

// What may overflow inside is not judged, and neither is a gradient that is NaN.
TEST(GradientBounds, RangeIsARemark) {
  Case problem = SmallCase(ScoreKind::kDot, false);
  problem.tensors["grad_out"].Set(0, 3e38);
  const StatusOr<Expectation> large = Expect(problem);
  ASSERT_TRUE(large.ok());
  EXPECT_FALSE(IsJudged(*large, "grad_q", 0));
  EXPECT_TRUE(IsJudged(*large, "grad_q", 4));   // another row
  EXPECT_FALSE(IsJudged(*large, "grad_k", 0));  // the row reaches it
  EXPECT_TRUE(IsJudged(*large, "out", 0));
  problem.tensors["grad_out"].Set(0, std::numeric_limits<double>::infinity());
  const StatusOr<Expectation> infinite = Expect(problem);
  ASSERT_TRUE(infinite.ok());
  EXPECT_FALSE(IsJudged(*infinite, "grad_q", 0));
  EXPECT_TRUE(IsJudged(*infinite, "grad_q", 4));
}

}  // namespace
}  // namespace attest
