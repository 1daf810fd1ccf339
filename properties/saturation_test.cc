// SPDX-License-Identifier: Apache-2.0
// The experiment "saturation": its quantities where they are known, and its kernels against the
// exact values.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "audit/builtin.h"
#include "experiments/experiment.h"
#include "experiments/row_theorems.h"
#include "experiments/saturation_draw.h"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

// q = 0: uniform weights, so that grad_q = scale / n sum_j (v_j - mean v) k_j, and grad_k = 0.
TEST(SaturationValues, OfUniformWeightsAreClosedForms) {
  constexpr Index kDim = 4, kKeys = 6;
  Case problem = DrawSaturation(kDim, kKeys, 0, 0);
  problem.tensors["q"] = Tensor(DType::kF32, {1, 1, 1, kDim});
  problem = Variant(problem, DType::kF32, true);
  const std::vector<double> k = ToDoubles(problem.tensors["k"]);
  const std::vector<double> v = ToDoubles(problem.tensors["v"]);
  const double mean = std::accumulate(v.begin(), v.end(), 0.0) / kKeys;
  double squares = 0.0;
  for (std::size_t c = 0; c < kDim; ++c) {
    double sum = 0.0;
    for (std::size_t j = 0; j < kKeys; ++j) sum += (v[j] - mean) * k[j * kDim + c] / kKeys;
    squares += 0.25 * sum * sum;
  }
  const StatusOr<std::unique_ptr<Subject>> forward =
      MakeBuiltinSubject("materialised-reproducible");
  const StatusOr<std::unique_ptr<Subject>> backward = MakeBuiltinSubject("tiled-reproducible");
  const StatusOr<SaturationValues> exact = ExactSaturation(problem);
  const StatusOr<SaturationValues> computed = ComputedSaturation(problem, **forward, **backward);
  for (const auto* values : {&exact, &computed}) {
    ASSERT_TRUE(values->ok()) << values->status().message();
    const SaturationValues& is = **values;
    EXPECT_NEAR(is[0], 1.0 / 6, 1e-7);
    EXPECT_NEAR(is[1], 1.0 / 6, 1e-7);
    EXPECT_NEAR(is[2], std::log(6.0), 1e-6);
    EXPECT_NEAR(is[3], 2.0 / 6 * (5.0 / 6), 1e-7);
    EXPECT_NEAR(is[4], std::sqrt(squares), 1e-6);
    EXPECT_EQ(is[5], 0.0);
    EXPECT_EQ(is[6], 0.0);
    EXPECT_EQ(is[7], 1.0);
  }
}

// Logits ln 2, 0, 0 give the weights 1/2, 1/4, 1/4: entropy 3/2 ln 2, and the least that logits of
// their distance ln 2 sqrt(2/3) to the mean can have.
TEST(RowTheorems, TheEntropyBoundIsAttainedByOneLargerLogit) {
  const double ln2 = std::log(2.0);
  EXPECT_NEAR(EntropyBound(ln2 * std::sqrt(2.0 / 3), 3), 1.5 * ln2, 1e-14);
  EXPECT_NEAR(EntropyBound(0.0, 7), std::log(7.0), 1e-14);
  EXPECT_EQ(EntropyBound(2.0, 1), 0.0);
  const RowTheorems row = TheoremsOf(std::vector<double>{-ln2, -2 * ln2, -2 * ln2});
  EXPECT_NEAR(row.spread, ln2, 1e-14);
  EXPECT_NEAR(row.log_largest, std::log(1.5), 1e-14);
  EXPECT_NEAR(row.log_smallest, std::log(0.75), 1e-14);
  EXPECT_NEAR(row.radius, ln2 * std::sqrt(2.0 / 3), 1e-14);
  EXPECT_NEAR(row.entropy, row.entropy_bound, 1e-14);
  EXPECT_TRUE(Hold(row));
}

// Weights that do not sum to 1 break the first theorem, an entropy below its bound the second.
TEST(RowTheorems, WrongWeightsViolateThem) {
  EXPECT_FALSE(Hold(TheoremsOf(std::vector<double>(4, -std::log(4.0) + 0.01))));
  EXPECT_FALSE(Hold(TheoremsOf(std::vector<double>(4, -std::log(4.0) - 0.01))));
  RowTheorems row = TheoremsOf(std::vector<double>(4, -std::log(4.0)));
  EXPECT_TRUE(Hold(row));
  row.entropy -= 1e-6;
  EXPECT_FALSE(Hold(row));
  TheoremSummary summary;
  summary.Add(row);
  EXPECT_EQ(summary.violations, 1);
  row.entropy = std::nan("");
  EXPECT_FALSE(Hold(row));
}

// With one query, sum p^2 of the draws is no more than 1 and no less than 1/n, and so on; what the
// f32 kernels compute differs from the exact means by roundings alone.
TEST(Saturation, KernelsInF32GiveTheExactMeans) {
  ExperimentOptions options;
  options.threads = 2;
  StatusOr<Json> record = RunExperiment("saturation", options);
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "reproduced") << (*record)["summary"];
  const Json& rows = (*record)["tables"][1]["rows"];
  ASSERT_EQ(rows.size(), 2U * 3 * 5 * 4);
  for (std::size_t i = 0; i < rows.size(); i += 4) {
    ASSERT_EQ(rows[i][3], "exact");
    const double n = rows[i][1];
    EXPECT_GE(rows[i][5].get<double>(), 1.0 / n);
    EXPECT_LE(rows[i][6].get<double>(), std::log(n));
    EXPECT_LE(rows[i][7].get<double>(), 0.5);
    for (std::size_t column = 4; column < 10; ++column) {
      const double exact = rows[i][column];
      EXPECT_NEAR(rows[i + 1][column], exact, 1e-4 * exact) << rows[i + 1];  // f32
      EXPECT_NEAR(rows[i + 2][column], exact, 0.02 * exact) << rows[i + 2];  // bf16
      EXPECT_NEAR(rows[i + 3][column], exact, 0.01 * exact) << rows[i + 3];  // f16
    }
    // f16 keeps nothing below 2^-25: ln 2^-25 is -17.3, a common gap where s = sqrt(D_k) = 16.
    const double zeros = rows[i + 3][10];
    if (rows[i][0] == "without" && rows[i][2] == 256) {
      EXPECT_GT(zeros, 0.5) << rows[i + 3];
    }
    if (rows[i][0] == "with") {
      EXPECT_EQ(zeros, 0.0) << rows[i + 3];
    }
  }
  // No theorem is violated; the mean entropy is that of the first table.
  const Json& theorems = (*record)["tables"][2]["rows"];
  ASSERT_EQ(theorems.size(), 2U * 3 * 5);
  for (std::size_t i = 0; i < theorems.size(); ++i) {
    EXPECT_EQ(theorems[i].back(), 0) << theorems[i];
    EXPECT_GE(theorems[i][6].get<double>(), 0.0) << theorems[i];
    const double entropy = (*record)["tables"][0]["rows"][i][8];
    EXPECT_NEAR(theorems[i][7], entropy, 1e-6 * entropy) << theorems[i];
  }
  // Heat maps: one list for each n, one value for each D_k, those of the first table.
  const Json& map = (*record)["plots"][3];
  EXPECT_EQ(map["kind"], "heatmap");
  EXPECT_EQ(map["x"]["values"], Json({1, 4, 16, 64, 256}));
  EXPECT_EQ(map["y"]["values"], Json({16, 64, 512}));
  for (std::size_t n = 0; n < 3; ++n) {
    for (std::size_t d = 0; d < 5; ++d) {
      EXPECT_EQ(map["z"]["values"][n][d], (*record)["tables"][0]["rows"][5 * n + d][3]);
    }
  }
  // (1 - 2/16)^-8 / 512 and the e/512 that it tends to.
  for (const Json& row : (*record)["tables"][0]["rows"]) {
    if (row[0] != "with" || row[1] != 512) continue;
    if (row[2] == 16) {
      EXPECT_NEAR(row[7], 0.00568415, 1e-8);
    }
    if (row[2] == 256) {
      EXPECT_NEAR(row[7], std::exp(1.0) / 512, 3e-5);
      EXPECT_NEAR(row[5], row[7].get<double>(), 0.05 * row[7].get<double>());
    }
  }
}

}  // namespace
}  // namespace attest
