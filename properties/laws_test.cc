// SPDX-License-Identifier: Apache-2.0
// The laws themselves: none flags a right implementation, wherever it rounds, and each is broken by
// a broken one.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/case_spec.h"
#include "audit/law.h"
#include "properties/broken_subjects.h"
#include "properties/combined_case.h"
#include "properties/gradient_case.h"
#include "properties/profile_case.h"
#include "properties/right_gradient.h"
#include "properties/right_variant.h"
#include "reference/certify.h"

namespace attest {
namespace {

// The certified values themselves as a subject: nothing may ever be wrong with them.
class Oracle : public Subject {
 public:
  Oracle() {
    info_.name = "oracle";
    info_.deterministic = info_.batch_invariant = info_.strided = info_.threaded = true;
  }
  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions&) const override {
    const StatusOr<Certified> certified = Certify(problem);
    if (!certified.ok()) return Outcome::Failed("error", certified.status().message());
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

// Checks every law but those named; which of them applied is counted.
void ExpectLawful(const Subject& subject, const Case& problem, const std::string& what,
                  const std::set<std::string>& without, ExpectationCache& expectations,
                  std::map<std::string, int>* applied) {
  for (const Law& law : Laws()) {
    if (without.contains(law.name)) continue;
    const LawResult result = law.check(subject, problem, expectations);
    (*applied)[law.name] += result.applied ? 1 : 0;
    if (!result.violation) continue;
    const Violation& v = *result.violation;
    ADD_FAILURE() << law.name << ", " << subject.info().name << ", " << what << ": "
                  << v.explanation << "; " << v.tensor << " got " << v.got << ", expected "
                  << v.expected;
  }
}

// Laws that said something.
std::size_t Applied(const std::map<std::string, int>& applied) {
  return static_cast<std::size_t>(std::count_if(applied.begin(), applied.end(),
                                                [](const auto& law) { return law.second > 0; }));
}

// Numbers that are not finite, or subnormal, among q, k and v.
void Strain(unsigned which, Case* problem) {
  const FloatFormat& format = FormatOf(problem->contract.dtype);
  const double infinity = std::numeric_limits<double>::infinity();
  const double strange[] = {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity,
                            3.0 * format.smallest_subnormal(), format.largest_finite() / 8.0};
  if (which % 3 == 0) return;
  const char* const names[] = {"q", "k", "v"};
  Tensor& tensor = problem->tensors.at(names[which % 5 % 3]);
  if (tensor.size() == 0) return;
  tensor.Set(static_cast<Index>(which) % tensor.size(), strange[which % 5]);
  tensor.Set(static_cast<Index>(which / 7) % tensor.size(), strange[which / 5 % 5]);
}

// Laws that must have said something: some need what not every profile or subject has.
constexpr std::size_t kMost = 40;
constexpr std::size_t kMostForward = 36;

class RightLaws : public ::testing::TestWithParam<ProfileCase> {};

TEST_P(RightLaws, NeverFlagTheCertifiedValuesThemselves) {
  const Oracle oracle;
  std::map<std::string, int> applied;
  for (unsigned features = 0; features < 4096; features += 149) {
    Case problem = Combined(features, GetParam().dtype);
    problem.contract.arithmetic.profile = GetParam().profile;
    Strain(features, &problem);
    ExpectationCache expectations;
    ExpectLawful(oracle, problem, "features " + std::to_string(features), {}, expectations,
                 &applied);
  }
  for (unsigned features = 0; features < 4096; features += 1301) {
    for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
      Case problem = CombinedWithGradients(features, score, GetParam().dtype);
      problem.contract.arithmetic.profile = GetParam().profile;
      ExpectationCache expectations;
      ExpectLawful(oracle, problem, "gradients, features " + std::to_string(features), {},
                   expectations, &applied);
    }
  }
  EXPECT_GE(Applied(applied), kMost);
}

// Forward, with masks, lengths and biases; the variants know nothing else.
class RightForwardLaws : public RightLaws {};

TEST_P(RightForwardLaws, NeverFlagARightVariant) {
  std::map<std::string, int> applied;
  for (unsigned features = 0; features < 16 * 37; features += 37) {
    CaseSpec spec{.shape = {2, 4, 2, 4, 9, 16, 16, 3}, .dtype = GetParam().dtype};
    spec.causal = static_cast<Causal>(features % 3);
    spec.values = static_cast<Values>(features % 9);
    spec.mask = features % 4 == 1;
    spec.bias = features % 5 == 1;
    spec.kv_lengths = features % 4 == 2;
    spec.q_lengths = features % 7 == 3;
    Case problem = MakeCase(spec, features);
    problem.contract.arithmetic.profile = GetParam().profile;
    ExpectationCache expectations;
    for (const Variant variant : AllVariants()) {
      // A score that is NaN stays NaN with a finite sentinel, whatever the mask.
      std::set<std::string> without;
      if (variant == Variant::kFiniteSentinel) without = {"masked-junk", "partly-masked-junk"};
      ExpectLawful(*MakeRightVariant(variant), problem, problem.name, without, expectations,
                   &applied);
    }
  }
  EXPECT_GE(Applied(applied), kMostForward);
}

TEST_P(RightLaws, NeverFlagARightGradient) {
  std::map<std::string, int> applied;
  for (unsigned features = 0; features < 4096; features += 1367) {
    for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
      Case problem = CombinedWithGradients(features, score, GetParam().dtype);
      problem.contract.arithmetic.profile = GetParam().profile;
      problem.contract.outputs.push_back("weights");
      ExpectationCache expectations;
      for (const BackwardVariant variant : AllBackwardVariants()) {
        ExpectLawful(*MakeRightGradient(variant), problem, "features " + std::to_string(features),
                     {}, expectations, &applied);
      }
    }
  }
  EXPECT_GE(Applied(applied), kMostForward);
}

// The variants compute in f32.
INSTANTIATE_TEST_SUITE_P(Profiles, RightForwardLaws,
                         ::testing::Values(kF32, kBF16Flash, kF16Flash, kBF16Math, kF16Math),
                         [](const auto& param) { return NameOf(param.param); });
INSTANTIATE_TEST_SUITE_P(Profiles, RightLaws,
                         ::testing::Values(kF32, kF64, kBF16Flash, kF16Flash, kBF16Math, kF16Math),
                         [](const auto& param) { return NameOf(param.param); });

// A law that nothing breaks would check nothing.
class BrokenLaws : public ::testing::TestWithParam<BrokenSubject> {
 protected:
  // One cache for all tests: the certified values of a case are made once.
  static ExpectationCache& Expectations() {
    static ExpectationCache cache;
    return cache;
  }
};

TEST_P(BrokenLaws, AreSeen) {
  static const std::vector<SuiteCase> cases = *MakeSuite("quick", 0);
  const std::unique_ptr<Subject> broken = MakeBrokenSubject(GetParam());
  const Law* law = nullptr;
  for (const Law& candidate : Laws()) {
    if (candidate.name == GetParam().law) law = &candidate;
  }
  ASSERT_NE(law, nullptr) << GetParam().law;
  const bool seen = std::any_of(cases.begin(), cases.end(), [&](const SuiteCase& item) {
    return law->check(*broken, item.problem, Expectations()).violation.has_value();
  });
  EXPECT_TRUE(seen) << GetParam().mistake << " does not break " << law->name;
}

INSTANTIATE_TEST_SUITE_P(Every, BrokenLaws, ::testing::ValuesIn(BrokenSubjects()),
                         [](const auto& param) {
                           std::string name = param.param.law;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Laws, EachHasASubjectThatBreaksIt) {
  for (const Law& law : Laws()) {
    EXPECT_TRUE(std::any_of(BrokenSubjects().begin(), BrokenSubjects().end(),
                            [&](const BrokenSubject& broken) { return broken.law == law.name; }))
        << law.name;
  }
}

}  // namespace
}  // namespace attest
