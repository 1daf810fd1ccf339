// SPDX-License-Identifier: Apache-2.0
// The guard of the floating-point state, and that the compiler keeps mul and add apart.
#include "core/fp_environment.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <string>

#include "core/random.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace attest {
namespace {

TEST(FloatingPointEnvironment, IsTheDefaultHere) {
  const Status status = CheckFloatingPointEnvironment();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(FloatingPointEnvironment, RefusesEveryOtherRoundingMode) {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    const Status status = CheckFloatingPointEnvironment();
    std::fesetround(FE_TONEAREST);
    EXPECT_NE(status.message().find("rounding mode"), std::string::npos) << status.message();
  }
}

#if defined(__SSE__)
// Bits of MXCSR: flush to zero, denormals are zero.
TEST(FloatingPointEnvironment, RefusesFlushedSubnormals) {
  const unsigned before = _mm_getcsr();
  for (const auto& [bit, word] : {std::pair{0x8000u, "FTZ"}, std::pair{0x0040u, "DAZ"}}) {
    _mm_setcsr(before | bit);
    const Status status = CheckFloatingPointEnvironment();
    _mm_setcsr(before);
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}
#endif

TEST(FloatingPointState, TellsAndUndoesChanges) {
  const FloatingPointState before = FloatingPointState::Current();
  volatile double zero = 0.0;
  volatile double raised = 1.0 / zero;  // flags are no change
  (void)raised;
  EXPECT_EQ(FloatingPointState::Current().ChangesSince(before), "");
  std::fesetround(FE_DOWNWARD);
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8000u);
  const std::string expected = "rounding mode, FTZ";
#else
  const std::string expected = "rounding mode";
#endif
  const std::string changes = FloatingPointState::Current().ChangesSince(before);
  before.Restore();
  EXPECT_EQ(changes, expected);
  EXPECT_EQ(FloatingPointState::Current().ChangesSince(before), "");
  EXPECT_TRUE(CheckFloatingPointEnvironment().ok());
}

// a * b + c with two roundings and with one differ on most of these; the derived bounds and the
// exact error terms of this project count on two where the source says two.
TEST(Compiler, DoesNotFuseMulAndAdd) {
  const RandomStream stream(1, "contraction", "operands");
  int differs_from_fma = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const double a = stream.Normal(3 * i);
    const double b = stream.Normal(3 * i + 1);
    const double c = stream.Normal(3 * i + 2);
    const double plain = a * b + c;
    const volatile double product = a * b;
    ASSERT_EQ(plain, product + c);
    if (plain != std::fma(a, b, c)) ++differs_from_fma;
  }
  EXPECT_GT(differs_from_fma, 1000);
}

}  // namespace
}  // namespace attest
