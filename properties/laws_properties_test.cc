// SPDX-License-Identifier: Apache-2.0
// Every law of the audit over drawn cases: for every built-in kernel on the best SIMD target, and
// for one kernel of each algorithm on all. (The suite `quick` goes to all of them:
// kernels_audit_test.)
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sstream>
#include <string>
#include <vector>

#include "audit/builtin.h"
#include "audit/law.h"
#include "optimized/targets.h"
#include "properties/case_generator.h"
#include "properties/combined_case.h"
#include "reference/certify.h"

namespace attest {
namespace {

struct LawOnKernel {
  std::string law;
  std::string kernel;  // with "@TARGET"
};

std::vector<LawOnKernel> AllPairs() {
  std::vector<LawOnKernel> pairs;
  const std::vector<std::string_view> targets = RunnableTargets();
  for (const BuiltinKernel& kernel : BuiltinKernels()) {
    if (kernel.specimen) continue;
    const bool plain = kernel.name.find('-') == std::string::npos;
    for (const std::string_view target : targets) {
      if (!plain && target != targets.front()) continue;
      for (const Law& law : Laws()) {
        pairs.push_back({law.name, kernel.name + "@" + std::string(target)});
      }
    }
  }
  return pairs;
}

class LawsOfKernels : public ::testing::TestWithParam<LawOnKernel> {};

// At least this many draws on which the law says something: those on which it does not are not
// counted.
constexpr int kDraws = 100;

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
    const DrawnCase drawn = *ArbitraryCase();
    const Case problem = MakeCase(drawn.spec, drawn.seed);
    ExpectationCache expectations;
    const LawResult result = law->check(**subject, problem, expectations);
    RC_PRE(result.applied);
    ++applied;
    Classify(drawn.spec);
    if (!result.violation) return;
    const Violation& v = *result.violation;
    std::ostringstream message;
    message << NameOf(drawn.spec) << ", seed " << drawn.seed << ": " << v.explanation << "; "
            << v.tensor << " got " << v.got << ", expected " << v.expected;
    RC_FAIL(message.str());
  });
  EXPECT_TRUE(holds);
  EXPECT_GE(applied, kDraws);
}

INSTANTIATE_TEST_SUITE_P(All, LawsOfKernels, ::testing::ValuesIn(AllPairs()), [](const auto& pair) {
  std::string name = pair.param.law + "_" + pair.param.kernel;
  for (char& c : name) {
    if (c == '-' || c == '@') c = '_';
  }
  return name;
});

// The certified values themselves as a subject: nothing may ever be wrong with them.
class Oracle : public Subject {
 public:
  Oracle() {
    info_.name = "oracle";
    info_.deterministic = info_.batch_invariant = true;
  }
  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions&) const override {
    const StatusOr<Certified> certified = Certify(problem);
    if (!certified.ok()) return {Outcome::Kind::kError, certified.status().message(), {}};
    Outcome outcome;
    for (const auto& [name, tensor] : certified->outputs) {
      Tensor values(tensor.dtype, tensor.shape);
      for (Index i = 0; i < values.size(); ++i) {
        values.Set(i, tensor.values[static_cast<std::size_t>(i)].nearest);
      }
      outcome.outputs.emplace(name, std::move(values));
    }
    return outcome;
  }

 private:
  SubjectInfo info_;
};

TEST(Laws, NeverFlagTheCertifiedValuesThemselves) {
  const Oracle oracle;
  for (unsigned features = 0; features < 4096; features += 37) {
    const Case problem = Combined(features, DType::kF32);
    ExpectationCache expectations;
    for (const Law& law : Laws()) {
      const LawResult result = law.check(oracle, problem, expectations);
      EXPECT_FALSE(result.violation)
          << law.name << ", features " << features << ": " << result.violation->explanation << ", "
          << result.violation->tensor << " got " << result.violation->got << ", expected "
          << result.violation->expected;
    }
  }
}

}  // namespace
}  // namespace attest
