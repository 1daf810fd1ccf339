// SPDX-License-Identifier: Apache-2.0
// Verdicts and bounds: what must pass passes, and every kind of wrong element fails.
#include "audit/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "audit/audit.h"
#include "audit/builtin.h"
#include "audit/case_spec.h"
#include "core/digest.h"

namespace attest {
namespace {

// Generated inputs are the same bits on every compiler, SIMD target and thread count.
TEST(MakeCase, MatchesGoldenDigest) {
  const Case problem = MakeCase({.shape = {2, 2, 1, 5, 9, 8, 8, 4},
                                 .values = Values::kOutliers,
                                 .mask = true,
                                 .bias = true,
                                 .kv_lengths = true},
                                42);
  EXPECT_EQ(Sha256(problem.tensors),
            "5d99810bd1f3398968e5af40a6a1c0306977e0767e683b6d1a4a63c161d1c831");
}

// The certified values themselves as an output.
Tensor Nearest(const Expectation& expected, const std::string& name) {
  const CertifiedTensor& certified = expected.certified.outputs.at(name);
  Tensor tensor(certified.dtype, certified.shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, certified.values[static_cast<std::size_t>(i)].nearest);
  }
  return tensor;
}

Case Example(DType dtype = DType::kF32) {
  return MakeCase({.shape = {1, 2, 1, 5, 9, 8, 8, 4},
                   .dtype = dtype,
                   .causal = Causal::kBottomRight,
                   .bias = true},
                  11);
}

class JudgeTypes : public ::testing::TestWithParam<DType> {};

TEST_P(JudgeTypes, CorrectlyRoundedOutputsConform) {
  const StatusOr<Expectation> expected = Expect(Example(GetParam()));
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const char* name : {"out", "lse", "weights"}) {
    const TensorVerdict verdict = Judge(*expected, name, Nearest(*expected, name));
    EXPECT_EQ(verdict.violations, 0) << name;
    EXPECT_EQ(verdict.not_correctly_rounded, 0) << name;
    EXPECT_LE(verdict.max_ulp, 0.5) << name;
    EXPECT_LT(verdict.max_bound_ratio, 1.0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, JudgeTypes,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kBF16, DType::kF16));

TEST(Judge, EveryWrongElementFails) {
  const StatusOr<Expectation> expected = Expect(Example());
  ASSERT_TRUE(expected.ok());
  const double wrong[] = {std::numeric_limits<double>::quiet_NaN(),
                          std::numeric_limits<double>::infinity(),
                          -std::numeric_limits<double>::infinity(), 1e30, 0.0};
  for (const char* name : {"out", "lse", "weights"}) {
    const Tensor right = Nearest(*expected, name);
    for (const double value : wrong) {
      for (Index i = 0; i < right.size(); ++i) {
        if (right.At(i) == value) continue;
        Tensor spoilt = right;
        spoilt.Set(i, value);
        const TensorVerdict verdict = Judge(*expected, name, spoilt);
        ASSERT_EQ(verdict.violations, 1) << name << " element " << i << " = " << value;
      }
    }
  }
}

// Half of the bound passes, twice the bound fails: the verdict follows the bound itself.
TEST(Judge, FollowsTheBound) {
  const StatusOr<Expectation> expected = Expect(Example());
  ASSERT_TRUE(expected.ok());
  const Tensor right = Nearest(*expected, "out");
  for (Index i = 0; i < right.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double exact = expected->certified.outputs.at("out").values[at].hi;
    const double bound = expected->bounds.out[at];
    EXPECT_TRUE(Conforms(*expected, "out", at, exact + 0.5 * bound));
    EXPECT_TRUE(Conforms(*expected, "out", at, exact - 0.99 * bound));
    EXPECT_FALSE(Conforms(*expected, "out", at, exact + 1.01 * bound));
    EXPECT_FALSE(Conforms(*expected, "out", at, exact - 2.0 * bound));
  }
}

// The bounds are of the size that theory promises: some tens of u times sum p|v|, so that an error
// of 2^-12 in an exponential or of bf16 in the weights cannot hide.
TEST(Bounds, AreSharpOnSmallRows) {
  const StatusOr<Expectation> expected = Expect(MakeCase({.shape = {1, 1, 1, 4, 4, 4, 4, 4}}, 1));
  ASSERT_TRUE(expected.ok());
  for (std::size_t i = 0; i < expected->bounds.out.size(); ++i) {
    EXPECT_LT(expected->bounds.out[i], 0x1p-13 * expected->bounds.magnitude[i]);
    EXPECT_GT(expected->bounds.out[i], 0x1p-24 * expected->bounds.magnitude[i]);
  }
}

TEST(Bounds, ForbiddenWeightsMustBeExactlyZero) {
  const Case problem = MakeCase({.shape = {1, 1, 1, 3, 3, 2, 2, 2}, .causal = Causal::kTopLeft}, 1);
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok());
  EXPECT_TRUE(Conforms(*expected, "weights", 1, 0.0));
  EXPECT_FALSE(Conforms(*expected, "weights", 1, 1e-45));
}

// Finite scores whose products overflow f32 are out of the profile's range, not findings.
TEST(Bounds, RangeIsARemark) {
  Case problem = MakeCase({.shape = {1, 1, 1, 1, 2, 1, 1, 1}}, 1);
  problem.tensors["q"].Set(0, 1e30);
  problem.tensors["k"].Set(0, 1e10);
  problem.tensors["k"].Set(1, 1e9);
  problem.contract.scale = {false, 1e-39};
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok());
  EXPECT_FALSE(IsJudged(*expected, "out", 0));
  EXPECT_TRUE(Conforms(*expected, "out", 0, std::nan("")));
}

// One query, D = 1: the keys are the scores, plus a bias.
Case Row(const std::vector<double>& keys, const std::vector<double>& values,
         const std::vector<double>& bias, DType dtype = DType::kF32) {
  const auto n = static_cast<Index>(keys.size());
  Case problem = MakeCase({.shape = {1, 1, 1, 1, n, 1, 1, 1}, .dtype = dtype}, 1);
  problem.contract.scale = {false, 1.0};
  problem.tensors["q"].Set(0, 1.0);
  problem.tensors["bias"] = Tensor(problem.contract.wide_dtype(), {1, 1, 1, n});
  for (Index j = 0; j < n; ++j) {
    problem.tensors["k"].Set(j, keys[static_cast<std::size_t>(j)]);
    problem.tensors["v"].Set(j, values[static_cast<std::size_t>(j)]);
    problem.tensors["bias"].Set(j, bias[static_cast<std::size_t>(j)]);
  }
  return problem;
}

// Padding by the lowest float is common; the keys that matter are judged as sharply as without.
TEST(Bounds, LowestFloatPaddingIsJudgedSharply) {
  for (const double padding : {-1e9, -1e30, -3.4028234e38}) {
    const StatusOr<Expectation> expected = Expect(Row({1, 2}, {1, 5}, {0, padding}));
    ASSERT_TRUE(expected.ok());
    EXPECT_TRUE(Conforms(*expected, "out", 0, 1.0));
    EXPECT_FALSE(Conforms(*expected, "out", 0, 1.0 + 1e-4)) << padding;
    EXPECT_FALSE(Conforms(*expected, "lse", 0, 1.0 + 1e-4)) << padding;
  }
}

// Values near the largest float may overflow while an online softmax has seen only the first keys.
// Weights below e^-600, which double-double takes as 0, and e^-708, which double does.
TEST(Bounds, WeightsThatAlmostUnderflowKeepTheirRelativeError) {
  for (const double score : {-590.0, -605.0, -700.0}) {
    Case problem = MakeCase({.shape = {1, 1, 1, 1, 2, 1, 1, 1}, .dtype = DType::kF64}, 0);
    problem.tensors.at("q").Set(0, 1.0);
    problem.tensors.at("k").Set(0, 0.0);
    problem.tensors.at("k").Set(1, score);
    const StatusOr<Expectation> expected = Expect(problem);
    ASSERT_TRUE(expected.ok());
    const double exact = expected->certified.outputs.at("weights").values[1].nearest;
    EXPECT_NEAR(exact / std::exp(score), 1.0, 1e-12);
    EXPECT_TRUE(Conforms(*expected, "weights", 1, exact * (1.0 + 0x1p-49)));
    EXPECT_FALSE(Conforms(*expected, "weights", 1, exact * (1.0 + 0x1p-6)));
  }
}

TEST(Bounds, ValuesNearOverflowAreOutOfRange) {
  const StatusOr<Expectation> expected = Expect(Row({0, 0, 50}, {3e38, 3e38, 0}, {0, 0, 0}));
  ASSERT_TRUE(expected.ok());
  EXPECT_FALSE(IsJudged(*expected, "out", 0));
}

// Infinity is right only from half a last place beyond the largest finite number on.
TEST(Bounds, InfinityNeedsAnOverflow) {
  const StatusOr<Expectation> below = Expect(Row({0}, {65440}, {0}, DType::kF16));
  ASSERT_TRUE(below.ok());
  EXPECT_FALSE(Conforms(*below, "out", 0, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(Conforms(*below, "out", 0, 65440));
}

// A subject that gives one number everywhere.
class Constant : public InProcessSubject {
 public:
  explicit Constant(float value) : value_(value) { info_.name = "constant"; }
  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract&, Buffers&, Buffers& outputs, int) const override {
    for (auto& [name, buffer] : outputs) {
      std::fill_n(buffer.data<float>(), ElementCount(buffer.shape()), value_);
    }
    return Status();
  }

 private:
  float value_;
  SubjectInfo info_;
};

std::string VerdictOf(const Subject& subject, const Case& problem) {
  Auditor auditor({{"test", "test", problem}}, {});
  const StatusOr<nlohmann::ordered_json> record = auditor.Audit(subject, "test");
  return record.ok() ? (*record)["verdict"].get<std::string>() : record.status().message();
}

// Scores of 1e7 are far from overflow; their rounding may change every weight, yet garbage is no
// result. Where nothing at all can be judged there is no green verdict.
TEST(Bounds, HugeScoresDoNotLetGarbagePass) {
  for (const double scale : {1e2, 1e3, 3e3, 1e4, 1e10, 1e19}) {
    Case problem = MakeCase({.shape = {1, 1, 1, 5, 9, 8, 8, 4}}, 3);
    for (const char* name : {"q", "k"}) {
      Tensor& tensor = problem.tensors.at(name);
      for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, tensor.At(i) * scale);
    }
    const std::string garbage = VerdictOf(Constant(std::nanf("")), problem);
    EXPECT_NE(garbage, "conforms") << scale;
    const std::string right = VerdictOf(**MakeBuiltinSubject("materialised"), problem);
    EXPECT_NE(right, "findings") << scale;
  }
}

// Where a key whose weight may underflow has an infinite value, infinity and NaN both conform.
TEST(Bounds, UnderflowingWeightOfAnInfiniteValue) {
  Case problem = MakeCase({.shape = {1, 1, 1, 1, 2, 1, 1, 1}}, 1);
  problem.tensors["q"].Set(0, 1.0);
  problem.tensors["k"].Set(0, 0.0);
  problem.tensors["k"].Set(1, -200.0);
  problem.tensors["v"].Set(1, std::numeric_limits<double>::infinity());
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok());
  EXPECT_TRUE(Conforms(*expected, "out", 0, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(Conforms(*expected, "out", 0, std::nan("")));
  EXPECT_FALSE(Conforms(*expected, "out", 0, -std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(Conforms(*expected, "out", 0, 1.0));
}

// A subject that misbehaves in a way of its own.
class Misbehaving : public InProcessSubject {
 public:
  enum class How { kWritesInputs, kWritesOutside, kFails, kLeavesOutputsAlone, kTakesNothing };
  explicit Misbehaving(How how) : how_(how) { info_.name = "misbehaving"; }
  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract&, Buffers& inputs, Buffers& outputs, int) const override {
    switch (how_) {
      case How::kWritesInputs:
        inputs.at("q").data<float>()[0] += 1.0f;
        break;
      case How::kWritesOutside:
        outputs.at("out").data<float>()[-1] = 0.0f;
        break;
      case How::kFails:
        return Internal("out of luck");
      case How::kTakesNothing:
        return Unsupported("nothing at all");
      case How::kLeavesOutputsAlone:
        break;
    }
    return Status();
  }

 private:
  How how_;
  SubjectInfo info_;
};

std::string FirstCode(Misbehaving::How how) {
  Auditor auditor({{"test", "test", MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 1)}}, {});
  const StatusOr<nlohmann::ordered_json> record = auditor.Audit(Misbehaving(how), "test");
  EXPECT_TRUE(record.ok());
  if ((*record)["findings"].empty()) return (*record)["verdict"];
  return (*record)["findings"][0]["code"];
}

TEST(Audit, TellsMisbehaviourApart) {
  EXPECT_EQ(FirstCode(Misbehaving::How::kWritesInputs), "trespass");
  EXPECT_EQ(FirstCode(Misbehaving::How::kWritesOutside), "trespass");
  EXPECT_EQ(FirstCode(Misbehaving::How::kFails), "error");
  EXPECT_EQ(FirstCode(Misbehaving::How::kLeavesOutputsAlone), "non-finite");
  EXPECT_EQ(FirstCode(Misbehaving::How::kTakesNothing), "nothing audited");
}

// A contract may ask for the LSE alone.
TEST(Audit, RunsEverySubjectWithoutOut) {
  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 1);
  problem.contract.outputs = {"lse"};
  EXPECT_EQ(VerdictOf(**MakeBuiltinSubject("tiled"), problem), "conforms");
  const Outcome outcome = Constant(0.0f).Run(problem, {});
  EXPECT_EQ(outcome.outputs.size(), 1u);
}

// Finite values whose sum overflows: an implementation may add before it divides.
TEST(Judge, LeavesMeansThatOverflowOnTheWayAlone) {
  Case problem = MakeCase({.shape = {1, 1, 1, 1, 3, 2, 2, 2},
                           .dtype = DType::kF64,
                           .empty_row = EmptyRow::kUniform,
                           .mask = true},
                          1);
  Tensor& mask = problem.tensors.at("mask");
  for (Index j = 0; j < mask.size(); ++j) mask.Set(j, 0.0);
  Tensor& v = problem.tensors.at("v");
  for (Index j = 0; j < 3; ++j) v.Set(2 * j, 1.5e308);
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok());
  EXPECT_FALSE(IsJudged(*expected, "out", 0));
  EXPECT_TRUE(IsJudged(*expected, "out", 1));
}

// docs/findings.md explains every code that an audit can give.
TEST(Audit, DocumentsEveryCode) {
  std::ifstream stream(std::string(ATTEST_SOURCE_DIR) + "/docs/findings.md");
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  for (const FindingKind& kind : FindingKinds()) {
    if (kind.code == "law-within-bound") continue;  // told as above-bound or non-finite
    EXPECT_NE(text.find("`" + kind.code + "`"), std::string::npos) << kind.code;
  }
}

}  // namespace
}  // namespace attest
