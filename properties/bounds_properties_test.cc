// SPDX-License-Identifier: Apache-2.0
// The bounds hold: no right implementation is ever flagged, wherever it rounds, in any profile.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>

#include "audit/judge.h"
#include "properties/case_generator.h"
#include "properties/right_variant.h"

namespace attest {
namespace {

struct ProfileCase {
  DType dtype;
  const char* profile;
};

class RightVariants : public ::testing::TestWithParam<std::tuple<Variant, ProfileCase>> {};

TEST_P(RightVariants, AreNeverFlagged) {
  const std::unique_ptr<Subject> subject = MakeRightVariant(std::get<0>(GetParam()));
  const ProfileCase profile = std::get<1>(GetParam());
  double worst = 0.0;
  EXPECT_TRUE(rc::check(subject->info().name + " in " + profile.profile, [&] {
    DrawnCase drawn = *ArbitraryCase();
    drawn.spec.dtype = profile.dtype;
    drawn.spec.empty_row = EmptyRow::kZero;
    Case problem = MakeCase(drawn.spec, drawn.seed);
    problem.contract.arithmetic.profile = profile.profile;
    const Outcome outcome = subject->Run(problem, {});
    RC_ASSERT(outcome.kind == Outcome::Kind::kOk);
    Classify(drawn.spec);
    const StatusOr<Expectation> expected = Expect(problem);
    RC_ASSERT(expected.ok());
    for (const auto& [name, tensor] : outcome.outputs) {
      const TensorVerdict verdict = Judge(*expected, name, tensor);
      if (verdict.violations > 0) RC_FAIL(NameOf(drawn.spec) + ", tensor " + name);
      worst = std::max(worst, verdict.max_bound_ratio);
    }
  }));
  RecordProperty("worst_error_over_bound", std::to_string(worst));
  EXPECT_GT(worst, 1e-3);  // a bound a thousand times the worst error would say little
  EXPECT_LE(worst, 1.0);
}

INSTANTIATE_TEST_SUITE_P(
    All, RightVariants,
    ::testing::Combine(::testing::ValuesIn(AllVariants()),
                       ::testing::Values(ProfileCase{DType::kF32, "f32"},
                                         ProfileCase{DType::kBF16, "bf16-flash"},
                                         ProfileCase{DType::kF16, "f16-flash"},
                                         ProfileCase{DType::kBF16, "bf16-math"},
                                         ProfileCase{DType::kF16, "f16-math"})),
    [](const auto& pair) {
      std::string name = NameOf(std::get<0>(pair.param)) + "_" + std::get<1>(pair.param).profile;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace attest
