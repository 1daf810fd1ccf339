// SPDX-License-Identifier: Apache-2.0
// Seeded faults against the general suite and the laws, which do not know which fault they face;
// the implementation without a fault passes everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "audit/expectation_cache.h"
#include "audit/judge.h"
#include "audit/law.h"
#include "audit/suite.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

std::unique_ptr<Subject> Plain(const std::string& fault) {
  StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject(fault);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  return *std::move(subject);
}

// The suite and its certified values, made once for all tests.
const std::vector<SuiteCase>& QuickCases() {
  static const std::vector<SuiteCase> cases = *MakeSuite("quick", 0);
  return cases;
}
ExpectationCache& Expectations() {
  static ExpectationCache expectations;
  return expectations;
}

// Faults that no case of the suite shows. Their smallest inputs: faults_directed_test.cc.
const std::set<std::string>& Missed() {
  static const std::set<std::string> missed{
      "additive-pads-attended",      // key lengths with the score `additive`
      "exponential-clamped-at-min",  // values near the largest number behind a bias like -1e30
  };
  return missed;
}

std::vector<std::string> CaughtFaults() {
  std::vector<std::string> names;
  for (const FaultInfo& fault : Faults()) {
    if (!Missed().contains(fault.name)) names.push_back(fault.name);
  }
  return names;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

// Whether an output of one case is beyond its bound, or the call fails.
bool FailsByBounds(const Subject& subject, const Case& problem) {
  const Outcome outcome = subject.Run(problem, {});
  if (outcome.kind != Outcome::Kind::kOk) return true;
  const StatusOr<const Expectation*> expected = Expectations().Of(problem);
  EXPECT_TRUE(expected.ok()) << expected.status().message();
  return std::any_of(outcome.outputs.begin(), outcome.outputs.end(), [&](const auto& output) {
    return Judge(**expected, output.first, output.second).violations > 0;
  });
}

TEST(PlainAttention, ConformsWithoutAFault) {
  const std::unique_ptr<Subject> plain = Plain("none");
  for (const SuiteCase& item : QuickCases()) {
    EXPECT_FALSE(FailsByBounds(*plain, item.problem)) << item.problem.name;
  }
}

class SeededFault : public ::testing::TestWithParam<std::string> {};

Index ScoresOf(const Case& problem) {
  const Dimensions& s = problem.contract.shape;
  return s.batch * s.q_heads * s.q_len * s.kv_len;
}

// What an audit does, but no further than the first finding: bounds first, then the laws.
TEST_P(SeededFault, IsCaughtByTheQuickSuite) {
  const std::unique_ptr<Subject> subject = Plain(GetParam());
  for (const SuiteCase& item : QuickCases()) {
    if (FailsByBounds(*subject, item.problem)) return;
  }
  for (const SuiteCase& item : QuickCases()) {
    for (const Law& law : Laws()) {
      if (ScoresOf(item.problem) > law.largest_case) continue;
      if (law.check(*subject, item.problem, Expectations()).violation) return;
    }
  }
  ADD_FAILURE() << "no case of the suite and no law gives the fault away";
}

INSTANTIATE_TEST_SUITE_P(Catalogue, SeededFault, ::testing::ValuesIn(CaughtFaults()), TestName);

}  // namespace
}  // namespace attest
