// SPDX-License-Identifier: Apache-2.0
// Seeded faults: the general suite and the laws catch each, the smallest input exposes each, and
// the implementation without a fault passes everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/case_spec.h"
#include "audit/law.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLn3 = 1.0986123f;
constexpr float kLn2 = 0.69314718f;

std::unique_ptr<Subject> Plain(const std::string& fault) {
  StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject(fault);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  return *std::move(subject);
}

// One auditor for all tests: the certified values of the suite are made once.
Auditor& QuickAuditor() {
  static Auditor auditor(*MakeSuite("quick", 0), {});
  return auditor;
}

std::vector<std::string> FaultNames() {
  std::vector<std::string> names;
  for (const FaultInfo& fault : Faults()) names.push_back(fault.name);
  return names;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

TEST(PlainAttention, ConformsWithoutAFault) {
  const StatusOr<nlohmann::ordered_json> record = QuickAuditor().Audit(*Plain("none"), "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
  // It computes the output of scores `dot` in f32 and no gradients.
  int others = 0;
  for (const SuiteCase& item : QuickAuditor().cases()) {
    const Contract& contract = item.problem.contract;
    const bool gradients = std::any_of(contract.outputs.begin(), contract.outputs.end(),
                                       [](const auto& name) { return name.starts_with("grad_"); });
    others += gradients || contract.score != ScoreKind::kDot ? 1 : 0;
  }
  EXPECT_EQ((*record)["cases"]["unsupported"], others);
}

TEST(PlainAttention, TakesAContractWithoutOut) {
  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 1);
  problem.contract.outputs = {"lse"};
  const Outcome outcome = Plain("none")->Run(problem, {});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kOk);
  EXPECT_TRUE(outcome.outputs.contains("lse"));
}

class SeededFault : public ::testing::TestWithParam<std::string> {};

// The audit does not know which fault it faces.
TEST_P(SeededFault, IsCaughtByTheQuickSuite) {
  const StatusOr<nlohmann::ordered_json> record = QuickAuditor().Audit(*Plain(GetParam()), "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "findings");
}

INSTANTIATE_TEST_SUITE_P(Catalogue, SeededFault, ::testing::ValuesIn(FaultNames()), TestName);

// The smallest input that exposes a fault: scores are given directly (q = 1, D = 1, scale 1).
struct Directed {
  std::string fault;
  Case problem;
  std::vector<float> right;  // the right output
};

Case Unit(const std::vector<float>& keys, const std::vector<float>& values, Index queries = 1) {
  Case problem;
  const auto n = static_cast<Index>(keys.size());
  problem.contract.shape = {1, 1, 1, queries, n, 1, 1, 1};
  problem.contract.scale = {false, 1.0};
  problem.tensors["q"] = Tensor(DType::kF32, {1, 1, queries, 1});
  for (Index i = 0; i < queries; ++i) problem.tensors["q"].Set(i, 1.0);
  problem.tensors["k"] = Tensor(DType::kF32, {1, 1, n, 1});
  problem.tensors["v"] = Tensor(DType::kF32, {1, 1, n, 1});
  std::copy(keys.begin(), keys.end(), problem.tensors["k"].data<float>());
  std::copy(values.begin(), values.end(), problem.tensors["v"].data<float>());
  return problem;
}

void Mask(Case* problem, const std::vector<int>& allowed) {
  const Dimensions& s = problem->contract.shape;
  Tensor mask(DType::kBool, {1, 1, s.q_len, s.kv_len});
  for (Index i = 0; i < mask.size(); ++i) mask.Set(i, allowed[static_cast<std::size_t>(i)]);
  problem->tensors["mask"] = std::move(mask);
}

std::vector<Directed> DirectedCases() {
  std::vector<Directed> list;
  Case half_masked = Unit({0, kLn3}, {0, 4}, 2);
  Mask(&half_masked, {1, 1, 0, 0});
  list.push_back({"full-row-nan", half_masked, {3, 0}});
  list.push_back({"full-row-mean-of-v", half_masked, {3, 0}});
  Case polarity = Unit({0, 0}, {0, 4});
  Mask(&polarity, {1, 0});
  list.push_back({"mask-polarity-inverted", polarity, {0}});
  Case causal = Unit({0, 0}, {0, 4}, 2);
  causal.contract.causal = Causal::kTopLeft;
  list.push_back({"causal-sees-next", causal, {0, 2}});
  Case past = Unit({0, 0}, {0, 4});
  past.contract.causal = Causal::kBottomRight;
  list.push_back({"causal-ignores-past", past, {2}});
  list.push_back({"zero-filled-tail-keys", Unit({kLn2, kLn2, kLn2}, {1, 1, 1}), {1}});
  Case scale = Unit({0, 0}, {0, 4});
  scale.contract.shape.qk_dim = scale.contract.shape.k_dim = 4;
  scale.contract.scale = {true, 1.0};
  scale.tensors["q"] = Tensor(DType::kF32, {1, 1, 1, 4});
  scale.tensors["q"].Set(0, 2.0);
  scale.tensors["k"] = Tensor(DType::kF32, {1, 1, 2, 4});
  scale.tensors["k"].Set(4, static_cast<double>(kLn3));
  list.push_back({"scale-missing", scale, {3}});
  Case heads = Unit({0}, {0});
  heads.contract.shape.q_heads = 4;
  heads.contract.shape.kv_heads = 2;
  heads.tensors["q"] = Tensor(DType::kF32, {1, 4, 1, 1});
  heads.tensors["k"] = Tensor(DType::kF32, {1, 2, 1, 1});
  heads.tensors["v"] = Tensor(DType::kF32, {1, 2, 1, 1});
  heads.tensors["v"].Set(1, 4.0);
  list.push_back({"gqa-tiled-heads", heads, {0, 0, 4, 4}});
  list.push_back({"no-max-subtraction", Unit({100, 100}, {0, 4}), {2}});
  list.push_back({"correction-aliased", Unit({0, kLn3}, {0, 4}), {3}});
  list.push_back({"probs-rounded-before-pv", Unit({0, kLn2}, {1, 1}), {1}});
  Case unused = Unit({0, 0, 0, 0}, {0, 4, kNaN, kNaN});
  unused.tensors["kv_lengths"] = Tensor(DType::kI32, {1});
  unused.tensors["kv_lengths"].Set(0, 2);
  list.push_back({"nan-in-unused-value-slot", unused, {2}});
  Case short_queries = Unit({0, 0}, {0, 4}, 2);
  short_queries.tensors["q_lengths"] = Tensor(DType::kI32, {1});
  short_queries.tensors["q_lengths"].Set(0, 1);
  list.push_back({"padded-query-rows-garbage", short_queries, {2, 0}});
  causal.contract.outputs = {"out", "weights"};
  list.push_back({"causal-lost-when-weights-requested", causal, {0, 2}});
  for (Directed& d : list) EXPECT_TRUE(FinishCase(&d.problem).ok());
  return list;
}

bool Gives(const Subject& subject, const Directed& directed) {
  const Outcome outcome = subject.Run(directed.problem, {});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kOk) << outcome.message;
  const Tensor& out = outcome.outputs.at("out");
  for (std::size_t i = 0; i < directed.right.size(); ++i) {
    const auto right = static_cast<double>(directed.right[i]);
    // The inputs ln 2 and ln 3 are rounded to f32: 4 units in the last place of 4.
    if (!(std::fabs(out.At(static_cast<Index>(i)) - right) <= 4 * 0x1p-21)) return false;
  }
  return true;
}

TEST(SeededFaults, EachIsExposedByItsSmallestInput) {
  const std::vector<Directed> list = DirectedCases();
  // split-count-from-batch is exposed by two calls, below.
  ASSERT_EQ(list.size() + 1, Faults().size());
  const std::unique_ptr<Subject> right = Plain("none");
  for (const Directed& directed : list) {
    EXPECT_TRUE(Gives(*right, directed)) << directed.fault;
    EXPECT_FALSE(Gives(*Plain(directed.fault), directed)) << directed.fault;
  }
}

// A row of 1024 keys alone and in a batch of two: other partial sums, other bits.
TEST(SeededFaults, SplitCountIsExposedByABatch) {
  const Case problem = MakeCase({.shape = {2, 1, 1, 1, 1024, 4, 4, 4}}, 0);
  ExpectationCache expectations;
  for (const Law& law : Laws()) {
    if (law.name != "batch-entry-alone") continue;
    EXPECT_TRUE(law.check(*Plain("split-count-from-batch"), problem, expectations).violation);
    const LawResult right = law.check(*Plain("none"), problem, expectations);
    EXPECT_TRUE(right.applied && !right.violation);
  }
}

}  // namespace
}  // namespace attest
