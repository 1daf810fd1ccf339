// SPDX-License-Identifier: Apache-2.0
// Every law of the audit over drawn cases: for every built-in kernel on the best SIMD target, and
// for one kernel of each algorithm on all. (The suite `quick` goes to all of them:
// kernels_audit_test. That laws are right and can be broken: laws_test.)
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sstream>
#include <string>
#include <vector>

#include "audit/builtin.h"
#include "audit/law.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"
#include "properties/law_case.h"

namespace attest {
namespace {

struct LawOnKernel {
  std::string law;
  std::string kernel;  // with "@TARGET"
  // At least so many draws on which the law says something: others are not counted. One kernel of
  // each algorithm on the best target has most; modes and targets share their code.
  int draws;
};

std::vector<LawOnKernel> AllPairs() {
  std::vector<LawOnKernel> pairs;
  const std::vector<std::string_view> targets = RunnableTargets();
  for (const KernelInfo& kernel : Kernels()) {
    if (kernel.specimen) continue;
    const bool plain = kernel.name.find('-') == std::string::npos;
    for (const std::string_view target : targets) {
      if (!plain && target != targets.front()) continue;
      for (const Law& law : Laws()) {
        const bool of_gradients = law.name.find("gradient") != std::string::npos;
        if (of_gradients && !kernel.gradients) continue;
        pairs.push_back({law.name, std::string(kernel.name) + "@" + std::string(target),
                         plain && target == targets.front() ? 100 : 10});
      }
    }
  }
  return pairs;
}

class LawsOfKernels : public ::testing::TestWithParam<LawOnKernel> {};

TEST_P(LawsOfKernels, HoldOnDrawnCases) {
  const StatusOr<std::unique_ptr<Subject>> subject = MakeBuiltinSubject(GetParam().kernel);
  ASSERT_TRUE(subject.ok()) << subject.status().message();
  const Law* law = nullptr;
  for (const Law& candidate : Laws()) {
    if (candidate.name == GetParam().law) law = &candidate;
  }
  ASSERT_NE(law, nullptr);
  int applied = 0;
  const bool holds = rc::check(law->name + " for " + GetParam().kernel, [&] {
    if (applied >= GetParam().draws) return;
    const DrawnLawCase draw = *ArbitraryLawCase(law->name);
    const Case problem = MakeLawCase(draw);
    ExpectationCache expectations;
    const LawResult result = law->check(**subject, problem, expectations);
    RC_PRE(result.applied);
    ++applied;
    Classify(draw.drawn.spec);
    if (!result.violation) return;
    const Violation& v = *result.violation;
    std::ostringstream message;
    message << draw << ": " << v.explanation << "; " << v.tensor << " got " << v.got
            << ", expected " << v.expected;
    RC_FAIL(message.str());
  });
  EXPECT_TRUE(holds);
  EXPECT_GE(applied, GetParam().draws);
}

INSTANTIATE_TEST_SUITE_P(All, LawsOfKernels, ::testing::ValuesIn(AllPairs()), [](const auto& pair) {
  std::string name = pair.param.law + "_" + pair.param.kernel;
  for (char& c : name) {
    if (c == '-' || c == '@') c = '_';
  }
  return name;
});

}  // namespace
}  // namespace attest
