// SPDX-License-Identifier: Apache-2.0
// Deterministic inputs: golden digests, and the laws of the distributions.
#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <thread>
#include <vector>

#include "core/digest.h"

namespace attest {
namespace {

std::vector<double> Normals(std::size_t count) {
  const RandomStream stream(7, "golden", "q");
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = stream.Normal(i);
  return values;
}

// The bits that every compiler, SIMD target and thread count must reproduce.
TEST(RandomStream, MatchesGoldenDigests) {
  std::vector<std::uint64_t> bits(4096);
  const RandomStream stream(7, "golden", "q");
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = stream.Bits(i);
  EXPECT_EQ(Sha256(std::as_bytes(std::span(bits))),
            "e57022ce4986d7ae421bb79d4d763fb0f9252d44d18e4d895e65438aaf7f1005");
  const std::vector<double> normals = Normals(4096);
  EXPECT_EQ(Sha256(std::as_bytes(std::span(normals))),
            "b0016cadd81b2c7fc3abc1f71f8043ae338a62fff96ee1c850c1c2a53f2a673b");
}

TEST(RandomStream, IsPureInItsIndex) {
  const std::vector<double> forward = Normals(1000);
  const RandomStream stream(7, "golden", "q");
  std::vector<double> backward(1000);
  std::thread half([&] {
    for (std::size_t i = 500; i-- > 0;) backward[i] = stream.Normal(i);
  });
  for (std::size_t i = 1000; i-- > 500;) backward[i] = stream.Normal(i);
  half.join();
  EXPECT_EQ(forward, backward);
}

TEST(RandomStream, DependsOnEveryPartOfItsKey) {
  const std::uint64_t base = RandomStream(1, "case", "q").Bits(0);
  EXPECT_NE(base, RandomStream(2, "case", "q").Bits(0));
  EXPECT_NE(base, RandomStream(1, "other", "q").Bits(0));
  EXPECT_NE(base, RandomStream(1, "case", "k").Bits(0));
  EXPECT_NE(base, RandomStream(1, "case", "q").Bits(1));
}

TEST(RandomStream, UniformStaysInsideTheOpenInterval) {
  const RandomStream stream(1, "case", "q");
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = stream.Uniform(i);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 5 * 0.2887 / std::sqrt(100000.0));  // five standard errors
}

TEST(RandomStream, BelowReachesEveryValue) {
  const RandomStream stream(1, "case", "q");
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < 7000; ++i) ++counts[stream.Below(i, 7)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 5 * std::sqrt(7000.0 * 6 / 49));
}

// P(Z <= x) = erfc(-x / sqrt 2) / 2 undoes the quantile.
TEST(NormalQuantile, InvertsTheDistributionFunction) {
  for (int k = -300; k <= 300; ++k) {
    const double p = k <= 0 ? std::pow(10.0, k) * 0.5 : 1.0 - 0.5 / (1.0 + k);
    const double x = NormalQuantile(p);
    const double back = 0.5 * std::erfc(-x / std::sqrt(2.0));
    // d ln P / d ln x grows like x^2: an error of 1e-15 in x is x^2 times as large in P.
    EXPECT_LE(std::fabs(back - p), 4e-15 * (2.0 + x * x) * p) << "p = " << p;
  }
}

TEST(NormalQuantile, IsAntisymmetric) {
  for (const double p : {0.01, 0.1, 0.25, 0.4}) {
    EXPECT_NEAR(NormalQuantile(p), -NormalQuantile(1.0 - p), 1e-14);
  }
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
}

}  // namespace
}  // namespace attest
