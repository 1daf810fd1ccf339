// SPDX-License-Identifier: Apache-2.0
// The experiment "normalisation": its algorithms and bounds on rows whose results are known, and
// its verdict.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "experiments/experiment.h"
#include "experiments/softmax_methods.h"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

SoftmaxMethod MethodNamed(DType dtype, const std::string& name) {
  for (const SoftmaxMethod& method : SoftmaxMethods(dtype)) {
    if (method.name == name) return method;
  }
  ADD_FAILURE() << name;
  return {};
}

std::vector<double> Weights(DType dtype, const std::string& method, const std::vector<double>& x) {
  StatusOr<std::vector<double>> weights = ComputeSoftmax(MethodNamed(dtype, method), dtype, x);
  EXPECT_TRUE(weights.ok());
  return *std::move(weights);
}

// One after the other in p bits, 2^p + 1 rounds to 2^p (ties to even): the sum of ones stays there.
TEST(PlainSoftmax, SumsOfOnesStagnateAtTwoToTheP) {
  const std::vector<double> equal(4096, 3.0);
  for (const char* method : {"shifted", "online, tiles of 1", "online, tiles of 512"}) {
    EXPECT_EQ(Weights(DType::kBF16, method, equal)[7], 1.0 / 256) << method;
    EXPECT_EQ(Weights(DType::kF16, method, equal)[7], 1.0 / 2048) << method;
    EXPECT_EQ(Weights(DType::kF32, method, equal)[7], 1.0 / 4096) << method;
  }
  EXPECT_EQ(Weights(DType::kBF16, "kernel shifted", equal)[7], 1.0 / 4096);
  EXPECT_EQ(Weights(DType::kBF16, "f32, stored exponentials added", equal)[7], 1.0 / 4096);
}

// All in order of rounding by hand: weights 1/(1 + e^-1) and e^-1/(1 + e^-1) in bf16, where e^-1 is
// 94 2^-8 (0.36788 is 94.18 2^-8), the sum 350 2^-8 rounds to 175 2^-7 = 1.3671875, and the
// quotients 0.7314 and 0.26857 are 187.2 2^-8 and 137.5 2^-9, from 0.3671875/1.3671875.
TEST(PlainSoftmax, RoundsEveryOperation) {
  const std::vector<double> weights = Weights(DType::kBF16, "shifted", {0.0, -1.0});
  EXPECT_EQ(weights[0], 187 * 0x1p-8);
  const double quotient = (94 * 0x1p-8) / (175 * 0x1p-7) * 0x1p9;  // 137.5085...
  EXPECT_EQ(weights[1], std::round(quotient) * 0x1p-9);
  // Added before it is stored: the sum is 1.36788 in f32, the numerator still 94 2^-8.
  const std::vector<double> mixed =
      Weights(DType::kBF16, "f32, exponentials added, then stored", {0.0, -1.0});
  EXPECT_NEAR(mixed[0] + mixed[1], (1.0 + 94 * 0x1p-8) / (1.0 + std::exp(-1.0)), 0x1p-22);
  const std::vector<double> same =
      Weights(DType::kBF16, "f32, stored exponentials added", {0.0, -1.0});
  EXPECT_NEAR(same[0] + same[1], 1.0, 0x1p-23);
}

// exp(x - LSE) in f32 at 1000: LSE = 1000 + ln 2 is a multiple of 2^-14 there, so that the exponent
// errs by up to 2^-15; exp((x - max) - ln sum) by 2^-25 or so.
TEST(PlainSoftmax, DivisionFreeLosesWhatLseLoses) {
  const std::vector<double> x{1000.0, 1000.0};
  const double lse = static_cast<double>(static_cast<float>(1000.0 + std::log(2.0)));
  const double expected = std::exp(1000.0 - lse);
  ASSERT_GT(std::fabs(expected - 0.5), 1e-6);
  EXPECT_NEAR(Weights(DType::kF32, "division-free", x)[0], expected, 0x1p-24);
  EXPECT_NEAR(Weights(DType::kF32, "log-shifted", x)[0], 0.5, 0x1p-24);
}

// 16 e^10 is beyond f16 while e^10 is not: all weights 0. e^200 is beyond f32: NaN.
TEST(PlainSoftmax, UnshiftedOverflowsAsPredicted) {
  using Domain = SoftmaxBound::Domain;
  const SoftmaxMethod unshifted = MethodNamed(DType::kF16, "unshifted");
  const std::vector<double> x(16, 10.0);
  const std::vector<double> exact(16, 1.0 / 16);
  EXPECT_EQ(BoundSoftmax(unshifted, DType::kF16, x, exact, 10.0 + std::log(16.0)).domain,
            Domain::kOverflows);
  EXPECT_EQ(Weights(DType::kF16, "unshifted", x), std::vector<double>(16, 0.0));
  EXPECT_EQ(BoundSoftmax(unshifted, DType::kF32, x, exact, 10.0 + std::log(16.0)).domain,
            Domain::kInside);
  EXPECT_TRUE(std::isnan(Weights(DType::kF32, "unshifted", {200.0, 0.0})[0]));
  EXPECT_EQ(BoundSoftmax(unshifted, DType::kF32, {{200.0, 0.0}}, {{1.0, 0.0}}, 200.0).domain,
            Domain::kOverflows);
  EXPECT_EQ(BoundSoftmax(unshifted, DType::kF32, {{-200.0, -200.0}}, {{0.5, 0.5}}, -199.3).domain,
            Domain::kUnderflows);
}

// The smallest weight of the shifted algorithm: [n + 2 + 2 R] u to first order (Blanchard et al.
// 2021, Thm 4.3); of the unshifted one n + 2 of their n + 3; tiles of 1 whose maximum rises n - 1
// times add two roundings for each rise.
TEST(SoftmaxBounds, AreThoseOfTheSourceToFirstOrder) {
  std::vector<double> x, exact;
  double sum = 0.0;
  for (int j = 0; j < 16; ++j) sum += std::exp(j - 15.0);
  for (int j = 0; j < 16; ++j) {
    x.push_back(j);
    exact.push_back(std::exp(j - 15.0) / sum);
  }
  const double lse = 15.0 + std::log(sum);
  const auto first_order = [&](const char* method, std::size_t j) {
    const SoftmaxBound bound =
        BoundSoftmax(MethodNamed(DType::kF32, method), DType::kF32, x, exact, lse);
    return bound.weight[j] / exact[j] * 0x1p24;
  };
  EXPECT_NEAR(first_order("shifted", 0), 16 + 2 + 2 * 15, 0.01);
  EXPECT_NEAR(first_order("shifted", 15), 16 + 2 + 15, 0.01);
  EXPECT_NEAR(first_order("unshifted", 0), 16 + 2, 0.01);
  EXPECT_NEAR(first_order("online, tiles of 1", 0), 16 + 2 + 2 * 15 + 2 * 15, 0.01);
  EXPECT_NEAR(first_order("online, tiles of 8", 0), 16 + 2 + 2 * 15 + 2, 0.01);
  EXPECT_NEAR(first_order("online, tiles of 512", 0), 16 + 2 + 2 * 15, 0.01);
}

TEST(Normalisation, ReproducesAndRepeatsOnTwoThreads) {
  StatusOr<Json> record = RunExperiment("normalisation", {});
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "reproduced") << (*record)["summary"];
  const Json& rows = (*record)["tables"][0]["rows"];
  EXPECT_EQ(rows.size(), 2U * 12 + 2U * 14);
  for (const Json& row : rows) {
    EXPECT_GT(row[4].get<double>(), 0.0) << row;  // something was rounded
    EXPECT_LE(row[4].get<double>(), 1.0) << row;
    EXPECT_LE(row[5].get<double>(), 1.0) << row;
    EXPECT_EQ(row[10], 0) << row;  // wrongly predicted
  }
  for (const Json& row : (*record)["tables"][2]["rows"]) {  // equal logits
    const double n = row[2];
    const bool plain = row[1] != "kernel shifted";
    const double stop = plain && row[0] == "bf16" ? 256.0 : (plain && row[0] == "f16" ? 2048.0 : n);
    EXPECT_EQ(row[3], std::max(1.0, n / stop)) << row;
  }
  ExperimentOptions options;
  options.threads = 2;
  StatusOr<Json> again = RunExperiment("normalisation", options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*record)["tables"], (*again)["tables"]);
}

}  // namespace
}  // namespace attest
