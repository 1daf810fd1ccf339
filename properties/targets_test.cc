// SPDX-License-Identifier: Apache-2.0
// The targets that can be forced are the ones that really run.
#include "optimized/targets.h"

#include <gtest/gtest.h>

#include <string_view>

namespace attest {
namespace {

TEST(ScopedTarget, ForcedTargetIsTheOneThatRuns) {
  for (const std::string_view name : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(name);
    ASSERT_TRUE(scope.ok()) << scope.status().message();
    EXPECT_EQ(RunningTarget(), name);
    EXPECT_EQ(ChosenTarget(), name);
  }
}

TEST(ScopedTarget, RefusesUnknownNamesAndNests) {
  const std::string_view best = ChosenTarget();
  EXPECT_EQ(best, RunnableTargets().front());
  EXPECT_EQ(RunningTarget(), best);
  EXPECT_EQ(ScopedTarget::Force("AVX9").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RunningTarget(), best);
  const std::string_view worst = RunnableTargets().back();
  {
    const auto outer = ScopedTarget::Force(worst);
    ASSERT_TRUE(outer.ok());
    EXPECT_EQ(RunningTarget(), worst);
    {
      const auto inner = ScopedTarget::Force(best);
      EXPECT_EQ(RunningTarget(), best);
    }
    EXPECT_EQ(RunningTarget(), worst);
    EXPECT_EQ(RunnableTargets().front(), best);
  }
  EXPECT_EQ(RunningTarget(), best);
}

}  // namespace
}  // namespace attest
