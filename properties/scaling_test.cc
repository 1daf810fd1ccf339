// SPDX-License-Identifier: Apache-2.0
// The experiment "scaling": its sums against closed forms, its bands against the central limit.
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/experiment.h"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

const Json& Record() {
  static const Json record = [] {
    StatusOr<Json> made = RunExperiment("scaling", {});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }();
  return record;
}

// Sums over all pairs of sign vectors: 4^D (0, D, 3 D^2 - 2 D). Components of mean 1 and variance
// 1, each 0 or 2, have E (q_1 k_1)^2 = 4 and so the variance 3 D; one draw for all gives D^2.
TEST(Scaling, EnumeratedSumsAreTheClosedForms) {
  int rows = 0;
  for (const Json& row : Record()["tables"][0]["rows"]) {
    const auto dim = row[1].get<std::int64_t>();
    const auto pairs = row[2].get<std::int64_t>();
    const std::string law = row[0];
    if (law == "+1 or -1") {
      EXPECT_EQ(pairs, std::int64_t{1} << (2 * dim));
      EXPECT_EQ(row[3], 0);
      EXPECT_EQ(row[4], pairs * dim);
      EXPECT_EQ(row[5], pairs * (3 * dim * dim - 2 * dim));
      EXPECT_EQ(row[6], static_cast<double>(dim));
      EXPECT_EQ(row[7], 1.0);
      EXPECT_EQ(row[8], "yes");
    } else if (law == "0 or 2 (mean 1)") {
      EXPECT_EQ(row[3], pairs * dim);
      EXPECT_EQ(row[4], pairs * (dim * dim + 3 * dim));
      EXPECT_EQ(row[6], 3.0 * static_cast<double>(dim));
      EXPECT_EQ(row[8], "no");
    } else {
      EXPECT_EQ(row[6], static_cast<double>(dim * dim));
      EXPECT_EQ(row[8], dim == 1 ? "yes" : "no");
    }
    ++rows;
  }
  EXPECT_EQ(rows, 30);
}

// The variance of a square over D^2 is 2 + 6/D for normal components and 2 - 2/D for signs.
TEST(Scaling, EstimatesLieWhereTheCentralLimitPutsThem) {
  int rows = 0;
  for (const Json& row : Record()["tables"][1]["rows"]) {
    const double dim = row[1];
    const double draws = row[2];
    const double spread = row[0] == "normal" ? 2.0 + 6.0 / dim : 2.0 - 2.0 / dim;
    const double deviation = std::sqrt(spread / draws);
    EXPECT_NEAR(row[4], 1.0, 4.5 * deviation + 1e-12) << row;
    EXPECT_NEAR(row[3], dim * row[4].get<double>(), 1e-9 * dim) << row;
    // 1 - 0.001/26 two-sided is 4.116533 standard deviations; the skewness bends it up, not away.
    const double low = row[5], high = row[6];
    EXPECT_NEAR(high - low, 2.0 * 4.116533 * deviation, 1e-5 * deviation) << row;
    EXPECT_GE(high - 1.0, 1.0 - low) << row;
    EXPECT_EQ(row[7], "yes") << row;
    ++rows;
  }
  EXPECT_EQ(rows, 26);
}

TEST(Scaling, ReproducesAndRepeatsOnTwoThreads) {
  EXPECT_EQ(Record()["verdict"], "reproduced") << Record()["summary"];
  ExperimentOptions options;
  options.threads = 2;
  StatusOr<Json> again = RunExperiment("scaling", options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Record()["tables"], (*again)["tables"]);
}

}  // namespace
}  // namespace attest
