// SPDX-License-Identifier: Apache-2.0
// Shrinking reaches the smallest case of a known condition, and never leaves the failing ones.
#include "audit/shrink.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "audit/case_slice.h"
#include "audit/case_spec.h"
#include "audit/minimal_case.h"
#include "core/digest.h"
#include "properties/combined_case.h"
#include "properties/faults/fault_catalogue.h"
#include "properties/gradient_case.h"

namespace attest {
namespace {

// Key 7 masked for some query, in a batch of two or more.
bool HidesKeySeven(const Case& problem) {
  const Dimensions& s = problem.contract.shape;
  const Tensor* mask = problem.Find("mask");
  if (s.batch < 2 || s.kv_len < 8 || mask == nullptr || mask->shape()[3] != s.kv_len) return false;
  for (Index i = 7; i < mask->size(); i += s.kv_len) {
    if (mask->At(i) == 0.0) return true;
  }
  return false;
}

Case CaseWithEverything() {
  CaseSpec spec{.shape = {3, 4, 2, 5, 20, 6, 6, 4}, .causal = Causal::kBottomRight};
  spec.mask = spec.bias = spec.kv_lengths = spec.q_lengths = spec.sinks = true;
  spec.softcap = 2.0;
  spec.dropout_rate = 0.25;
  spec.window = {9, 3};
  spec.documents = Documents::kBlocks;
  spec.alibi = Alibi::kTensor;
  spec.local = LocalWindow{3.0, true};
  spec.gradients = spec.grad_lse = true;
  return MakeCase(spec, 0);
}

TEST(Shrink, ReachesTheSmallestCaseOfACondition) {
  const Case failing = CaseWithEverything();
  ASSERT_TRUE(HidesKeySeven(failing));
  const Case minimal = Shrink(failing, HidesKeySeven);
  EXPECT_TRUE(HidesKeySeven(minimal));
  const Dimensions& s = minimal.contract.shape;
  EXPECT_EQ(s.batch, 2);
  EXPECT_EQ(s.q_heads, 1);
  EXPECT_EQ(s.kv_heads, 1);
  EXPECT_EQ(s.q_len, 1);
  EXPECT_EQ(s.kv_len, 8);
  EXPECT_EQ(s.qk_dim, 1);
  EXPECT_EQ(s.v_dim, 1);
  EXPECT_EQ(minimal.tensors.size(), 4u);  // q, k, v and the mask
  EXPECT_EQ(minimal.Find("mask")->shape(), (Shape{1, 1, 1, 8}));
  for (Index j = 0; j < 8; ++j) EXPECT_EQ(minimal.Find("mask")->At(j), j == 7 ? 0.0 : 1.0);
  for (const char* name : {"q", "k", "v"}) {
    for (const double x : ToDoubles(*minimal.Find(name))) EXPECT_EQ(x, 0.0) << name;
  }
  const Contract& c = minimal.contract;
  EXPECT_EQ(c.causal, Causal::kNone);
  EXPECT_EQ(c.window.left, -1);
  EXPECT_EQ(c.window.right, -1);
  EXPECT_EQ(c.alibi, Alibi::kUnset);
  EXPECT_EQ(c.softcap, 0.0);
  EXPECT_EQ(c.dropout_rate, 0.0);
  EXPECT_FALSE(c.local.has_value());
  EXPECT_EQ(c.outputs.size(), 1u);
  EXPECT_EQ(minimal.name, failing.name);
  EXPECT_EQ(c.dtype, failing.contract.dtype);
}

// Numbers: what matters is that one score is above 0.7.
TEST(Shrink, SimplifiesNumbers) {
  const auto fails = [](const Case& problem) {
    const std::vector<double> q = ToDoubles(*problem.Find("q"));
    return std::any_of(q.begin(), q.end(), [](double x) { return x > 0.7; });
  };
  const Case failing = MakeCase({.shape = {2, 2, 1, 3, 5, 4, 4, 4}}, 1);
  ASSERT_TRUE(fails(failing));
  const Case minimal = Shrink(failing, fails);
  EXPECT_EQ(ToDoubles(*minimal.Find("q")), (std::vector<double>{1.0}));
  EXPECT_EQ(ToDoubles(*minimal.Find("v")), (std::vector<double>{0.0}));
}

TEST(Shrink, AcceptsOnlyCasesThatFail) {
  const Case failing = CaseWithEverything();
  Index calls = 0;
  const auto fails = [&](const Case& problem) {
    ++calls;
    Case copy = problem;
    EXPECT_TRUE(FinishCase(&copy).ok());
    return problem.contract.shape.kv_len % 3 == 2 && problem.Find("grad_out") != nullptr &&
           problem.contract.Wants("grad_v");
  };
  ASSERT_TRUE(fails(failing));
  EXPECT_TRUE(fails(Shrink(failing, fails)));
  // Nothing simpler fails: the case comes back as it was.
  const auto itself = [&](const Case& problem) {
    return Sha256(problem.tensors) == Sha256(failing.tensors) &&
           ContractToJson(problem.contract) == ContractToJson(failing.contract);
  };
  EXPECT_TRUE(itself(Shrink(failing, itself)));
  // The limit of calls is kept, and what was reached by then is returned.
  calls = 0;
  EXPECT_TRUE(fails(Shrink(failing, fails, {.calls = 10, .seconds = 60.0, .progress = nullptr})));
  EXPECT_LE(calls, 11);
}

TEST(Shrink, IsDeterministic) {
  const Case failing = CaseWithEverything();
  const Case one = Shrink(failing, HidesKeySeven);
  const Case two = Shrink(failing, HidesKeySeven);
  EXPECT_EQ(Sha256(one.tensors), Sha256(two.tensors));
  EXPECT_EQ(ContractToJson(one.contract), ContractToJson(two.contract));
}

// Parts of cases with every feature and score are cases, in every axis.
TEST(KeepEntries, GivesValidCases) {
  for (unsigned features = 0; features < 4096; features += 61) {
    for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
      const Case problem = CombinedWithGradients(features, score);
      for (const CaseAxis axis :
           {CaseAxis::kBatch, CaseAxis::kKvHeads, CaseAxis::kGroupMembers, CaseAxis::kQueries,
            CaseAxis::kKeys, CaseAxis::kQueryDims, CaseAxis::kKeyDims, CaseAxis::kValueDims,
            CaseAxis::kScoreUnits}) {
        const Index extent = Extent(problem, axis);
        if (extent < 2) continue;
        Case part = KeepEntries(problem, axis, {extent - 1});
        EXPECT_EQ(Extent(part, axis), 1);
        const Status status = FinishCase(&part);
        EXPECT_TRUE(status.ok()) << features << ": " << status.message();
      }
    }
  }
}

TEST(KeepEntries, TakesWhatBelongsTogether) {
  CaseSpec spec{.shape = {2, 4, 2, 3, 5, 2, 2, 2}};
  spec.kv_length_list = {5, 2};
  spec.sinks = true;
  const Case problem = MakeCase(spec, 0);
  const Case keys = KeepEntries(problem, CaseAxis::kKeys, {1, 4});
  EXPECT_EQ(ToDoubles(*keys.Find("kv_lengths")), (std::vector<double>{2.0, 1.0}));
  EXPECT_EQ(keys.Find("v")->At(2), problem.Find("v")->At(4 * 2));
  const Case head = KeepEntries(problem, CaseAxis::kKvHeads, {1});
  EXPECT_EQ(head.contract.shape.q_heads, 2);
  EXPECT_EQ(head.Find("sinks")->At(0), problem.Find("sinks")->At(2));
  const Case member = KeepEntries(problem, CaseAxis::kGroupMembers, {1});
  EXPECT_EQ(member.contract.shape.q_heads, 2);
  EXPECT_EQ(member.Find("sinks")->At(1), problem.Find("sinks")->At(3));
}

// A real audit: the minimal case of a fault that sees one key too many has two keys.
TEST(MinimalCase, ShowsTheFindingOfASeededFault) {
  const StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject("causal-sees-next");
  ASSERT_TRUE(subject.ok());
  CaseSpec spec{.shape = {2, 2, 1, 9, 9, 8, 8, 8}, .causal = Causal::kTopLeft};
  spec.mask = spec.bias = spec.kv_lengths = true;
  const Case failing = MakeCase(spec, 0);
  ASSERT_TRUE(HasFinding(**subject, failing, "above-bound", "out"));
  EXPECT_FALSE(HasFinding(**subject, failing, "trespass", ""));
  const std::optional<Case> minimal = MinimalCase(**subject, failing, "above-bound", "out");
  ASSERT_TRUE(minimal.has_value());
  EXPECT_EQ(minimal->name, "above-bound-out");
  EXPECT_TRUE(HasFinding(**subject, *minimal, "above-bound", "out"));
  EXPECT_EQ(minimal->contract.shape.q_len, 1);
  EXPECT_EQ(minimal->contract.shape.kv_len, 2);
  EXPECT_EQ(minimal->tensors.size(), 3u);
  EXPECT_EQ(Describe(*minimal),
            "1 batch entry, 1 query head, 1 query, 2 keys, D_k 1, D_v 1, f32, scale 1, causal "
            "top-left, asks for out; k = [0, 0], q = [0], v = [0, 1]");
  EXPECT_FALSE(MinimalCase(**subject, failing, "trespass", "").has_value());
}

}  // namespace
}  // namespace attest
