// SPDX-License-Identifier: Apache-2.0
// Conversions to the 16-bit types, proven on every value and every halfway point.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace attest {
namespace {

template <class T>
T RoundTo(double value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return RoundToBFloat16(value);
  } else {
    return RoundToFloat16(value);
  }
}

// The value of a bit pattern by the definition of the format, sharing nothing with core/.
template <class T>
double ByDefinition(unsigned bits) {
  const int fraction_bits = std::is_same_v<T, BFloat16> ? 7 : 10;
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned field = (bits & 0x7fffu) >> fraction_bits;
  const double fraction = static_cast<double>(bits & ((1u << fraction_bits) - 1)) /
                          static_cast<double>(1u << fraction_bits);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (field == (1u << exponent_bits) - 1) {
    return fraction == 0.0 ? sign * HUGE_VAL : std::nan("");
  }
  return field == 0 ? sign * fraction * std::pow(2.0, 1 - bias)
                    : sign * (1.0 + fraction) * std::pow(2.0, static_cast<int>(field) - bias);
}

template <class T>
class SixteenBits : public ::testing::Test {};
using Types = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(SixteenBits, Types);

TYPED_TEST(SixteenBits, WidensEveryPatternByDefinition) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double widened = ToDouble(TypeParam{static_cast<std::uint16_t>(bits)});
    const double expected = ByDefinition<TypeParam>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << bits;
      ASSERT_EQ(std::signbit(widened), (bits & 0x8000u) != 0) << bits;
    } else {
      ASSERT_EQ(widened, expected) << bits;
      ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(SixteenBits, ReturnsEveryValueUnchanged) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double value = ByDefinition<TypeParam>(bits);
    const unsigned rounded = RoundTo<TypeParam>(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(ByDefinition<TypeParam>(rounded))) << bits;
    } else {
      ASSERT_EQ(rounded, bits);
    }
  }
}

// Neighbours of equal sign are consecutive patterns, so the even one of two is the one with last
// bit 0; beyond the largest finite number lies the pattern of infinity, with the halfway point
// where one more binade would have it.
TYPED_TEST(SixteenBits, RoundsEveryHalfwayPointToEvenAndItsNeighboursToNearest) {
  const unsigned infinity = RoundTo<TypeParam>(HUGE_VAL).bits;
  const double top = ByDefinition<TypeParam>(infinity - 1);
  const double last_gap = top - ByDefinition<TypeParam>(infinity - 2);
  for (unsigned sign : {0u, 0x8000u}) {
    for (unsigned low = 0; low < infinity; ++low) {
      const double a = std::fabs(ByDefinition<TypeParam>(low));
      const double b = low + 1 == infinity ? top + last_gap : ByDefinition<TypeParam>(low + 1);
      const double half = a + (b - a) / 2;  // exact: 12 significant bits at most
      const double s = sign == 0 ? 1.0 : -1.0;
      const unsigned even = low % 2 == 0 ? low : low + 1;
      ASSERT_EQ(RoundTo<TypeParam>(s * half).bits, sign | even) << low;
      ASSERT_EQ(RoundTo<TypeParam>(s * std::nextafter(half, 0.0)).bits, sign | low) << low;
      ASSERT_EQ(RoundTo<TypeParam>(s * std::nextafter(half, HUGE_VAL)).bits, sign | (low + 1))
          << low;
    }
  }
}

TYPED_TEST(SixteenBits, RoundsExtremesOfDouble) {
  const unsigned infinity = RoundTo<TypeParam>(HUGE_VAL).bits;
  EXPECT_EQ(RoundTo<TypeParam>(std::numeric_limits<double>::max()).bits, infinity);
  EXPECT_EQ(RoundTo<TypeParam>(-std::numeric_limits<double>::max()).bits, 0x8000u | infinity);
  EXPECT_EQ(RoundTo<TypeParam>(std::numeric_limits<double>::denorm_min()).bits, 0u);
  EXPECT_EQ(RoundTo<TypeParam>(-std::numeric_limits<double>::denorm_min()).bits, 0x8000u);
  EXPECT_EQ(RoundTo<TypeParam>(-0.0).bits, 0x8000u);
}

// 1 + 2^-8 + 2^-40 is above a bf16 halfway point, but its rounding to float is the halfway point.
TEST(RoundToBFloat16, DoesNotRoundTwice) {
  const double value = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(ToDouble(RoundToBFloat16(value)), 1.0 + 0x1p-7);
  EXPECT_EQ(ToDouble(RoundToBFloat16(static_cast<double>(static_cast<float>(value)))), 1.0);
}

TEST(Ulp, FollowsTheHouseConvention) {
  EXPECT_EQ(Ulp(1.0, kFormatF32), 0x1p-23);
  EXPECT_EQ(Ulp(-1.5, kFormatF32), 0x1p-23);
  EXPECT_EQ(Ulp(std::nextafter(2.0, 0.0), kFormatF64), 0x1p-52);
  EXPECT_EQ(Ulp(0.0, kFormatF32), 0x1p-149);
  EXPECT_EQ(Ulp(0x1p-140, kFormatF32), 0x1p-149);
  EXPECT_EQ(Ulp(0x1p-126, kFormatF32), 0x1p-149);
  EXPECT_EQ(Ulp(1.0, kFormatBF16), 0x1p-7);
  EXPECT_EQ(Ulp(1.0, kFormatF16), 0x1p-10);
}

TEST(DType, NamesReadBack) {
  for (const DType dtype :
       {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kBool}) {
    EXPECT_EQ(DTypeFromName(NameOf(dtype)), dtype);
  }
  EXPECT_EQ(DTypeFromName("float"), std::nullopt);
}

}  // namespace
}  // namespace attest
