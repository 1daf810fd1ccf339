// SPDX-License-Identifier: Apache-2.0
// The implementation that the seeded faults change is right without one, over the whole contract;
// so are the controls, on the cases that they do not refuse.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "audit/case_spec.h"
#include "audit/expectation_cache.h"
#include "audit/judge.h"
#include "properties/case_families/families.h"
#include "properties/combined_case.h"
#include "properties/faults/fault_catalogue.h"
#include "properties/gradient_case.h"

namespace attest {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

std::unique_ptr<Subject> Plain(const std::string& name) {
  StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject(name);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  return *std::move(subject);
}

void EveryOutput(Case* problem) {
  EXPECT_TRUE(SelectOutputs(AllowedOutputs(*problem), problem).ok());
}

// Cases with every feature of the contract, and a few of each family of drawn ones.
std::vector<Case> SomeCases() {
  std::vector<Case> cases;
  for (unsigned features = 0; features < 4096; features += 37) {
    const DType dtype = kTypes[features % 4];
    cases.push_back(Combined(features, dtype));
    const auto score = static_cast<ScoreKind>(features / 4 % 3);
    cases.push_back(CombinedWithGradients(features, score, dtype));
    EveryOutput(&cases.back());
  }
  for (const Family& family : Families()) {
    for (const Index index : {1, 2, 3}) {
      StatusOr<Case> drawn = DrawCase(family, 0, index);
      EXPECT_TRUE(drawn.ok()) << drawn.status().message();
      cases.push_back(*std::move(drawn));
      cases.back().name = family.name + std::string(" ") + std::to_string(index);
    }
  }
  return cases;
}

TEST(PlainAttention, IsRightOnTheWholeContract) {
  std::map<std::string, int> refused;
  std::map<std::string, int> run;
  std::vector<std::unique_ptr<Subject>> subjects;
  subjects.push_back(Plain("none"));
  for (const ControlInfo& control : Controls()) subjects.push_back(Plain(control.name));
  for (Case& problem : SomeCases()) {
    const Contract asked = problem.contract;
    ExpectationCache expectations;
    for (const std::unique_ptr<Subject>& subject : subjects) {
      const SubjectInfo& info = subject->info();
      problem.contract = asked;
      problem.contract.empty_row = info.empty_row.value_or(asked.empty_row);
      const Outcome outcome = subject->Run(problem, {});
      ++(outcome.kind == Outcome::Kind::kUnsupported ? refused : run)[info.name];
      if (outcome.kind == Outcome::Kind::kUnsupported) continue;
      ASSERT_EQ(outcome.kind, Outcome::Kind::kOk) << outcome.message;
      const StatusOr<const Expectation*> expected = expectations.Of(problem);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      for (const auto& [name, tensor] : outcome.outputs) {
        if (name == "lse" && !info.outputs.empty() && !info.outputs.contains(name)) continue;
        const TensorVerdict verdict = Judge(**expected, name, tensor);
        EXPECT_EQ(verdict.violations, 0)
            << info.name << " on " << problem.name << ", " << name << ": "
            << ::testing::PrintToString(verdict.worst.index) << " got " << verdict.worst.got
            << ", expected " << verdict.worst.expected << ", " << verdict.worst.bound_ratio
            << " bounds";
      }
    }
  }
  EXPECT_EQ(refused["fault:none"], 0);
  // A control that refused most of what it is asked would be tested by nothing.
  for (const ControlInfo& control : Controls()) EXPECT_GT(run["fault:" + control.name], 50);
}

// What a control does by its own convention, it must not be judged by.
TEST(Controls, RefuseWhatTheirConventionExcludes) {
  const CaseSpec corner{.shape = {1, 3, 3, 2, 5, 2, 2, 2}, .causal = Causal::kBottomRight};
  Case causal = MakeCase(corner, 0);
  Case slopes = causal;
  slopes.contract.alibi = Alibi::kDefault;
  Case two_sided = slopes;
  two_sided.contract.causal = Causal::kNone;
  Case dropout = causal;
  dropout.contract.dropout_rate = 0.5;
  Case sinks = slopes;
  sinks.tensors["sinks"] = Tensor(DType::kF32, {3});
  Case hidden = causal;  // every key
  hidden.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, 1});
  Case far = causal;  // a masked score above the others by far more than e^20
  far.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, 5});
  for (Index j = 0; j < 4; ++j) far.tensors["mask"].Set(j, 1.0);
  for (Index h = 0; h < 3; ++h) {
    far.tensors["k"].Set(h * 10 + 8, 1e4 * far.tensors["q"].At(h * 4 + 2));
    far.tensors["k"].Set(h * 10 + 9, 1e4 * far.tensors["q"].At(h * 4 + 3));
  }
  const std::pair<const char*, const Case*> refused[] = {
      {"alibi-by-column", &two_sided},           {"alibi-by-column", &sinks},
      {"alibi-uniform-offset", &sinks},          {"row-constant-shift", &sinks},
      {"causal-corner-convention", &causal},     {"slope-table-convention", &slopes},
      {"functional-dropout", &dropout},          {"moderate-sentinel", &hidden},
      {"mask-after-softmax-renormalised", &far},
  };
  for (const auto& [control, problem] : refused) {
    Case finished = *problem;
    EXPECT_TRUE(FinishCase(&finished).ok()) << control;
    EXPECT_EQ(Plain(control)->Run(finished, {}).kind, Outcome::Kind::kUnsupported) << control;
    EXPECT_EQ(Plain("none")->Run(finished, {}).kind, Outcome::Kind::kOk) << control;
  }
  EXPECT_FALSE(Plain("atomic-order-declared")->info().deterministic);
  EXPECT_EQ(Plain("empty-row-convention")->info().empty_row, EmptyRow::kUniform);
  EXPECT_FALSE(Plain("lse-base-convention")->info().outputs.contains("lse"));
}

TEST(PlainAttention, TakesAContractWithoutOut) {
  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 1);
  problem.contract.outputs = {"lse"};
  const Outcome outcome = Plain("none")->Run(problem, {});
  EXPECT_EQ(outcome.kind, Outcome::Kind::kOk);
  EXPECT_TRUE(outcome.outputs.contains("lse"));
}

// The same bits in every layout and by any number of threads.
TEST(PlainAttention, TakesEveryLayout) {
  const std::unique_ptr<Subject> subject = Plain("none");
  for (unsigned features = 0; features < 4096; features += 141) {
    const Case problem = CombinedWithGradients(features, ScoreKind::kDot, DType::kF32);
    const Outcome dense = subject->Run(problem, {});
    for (const Layout layout : kLayouts) {
      const Outcome other = subject->Run(problem, {Junk::kHuge, layout, 3});
      if (other.kind == Outcome::Kind::kUnsupported) continue;  // no address space
      ASSERT_EQ(other.kind, Outcome::Kind::kOk) << other.message;
      for (const auto& [name, tensor] : dense.outputs) {
        const Tensor& same = other.outputs.at(name);
        for (Index i = 0; i < tensor.size(); ++i) {
          ASSERT_FALSE(tensor.At(i) != same.At(i) && tensor.At(i) == tensor.At(i))
              << NameOf(layout) << ", " << name << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace attest
