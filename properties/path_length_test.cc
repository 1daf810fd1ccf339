// SPDX-License-Identifier: Apache-2.0
// The experiment on gradients along paths: its numbers against what is known, and the same again.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "experiments/experiment.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

ordered_json RecordOf(int threads) {
  ExperimentOptions options;
  options.threads = threads;
  StatusOr<ordered_json> record = RunExperiment("path-length", options);
  EXPECT_TRUE(record.ok()) << record.status().message();
  return *std::move(record);
}

TEST(PathLength, OnlyTheFixedContextDecays) {
  const ordered_json record = RecordOf(1);
  EXPECT_NE(record["verdict"], "not reproduced") << record["summary"];
  std::map<std::string, std::map<int, double>> norms;
  for (const ordered_json& row : record["tables"][1]["rows"]) {
    norms[row[0]][row[1]] = row[2];
  }
  // A GRU at small weights is h' = h/2 + ..., its update gate being about 1/2: the gradient halves
  // with every step, give or take what the recurrent weights add.
  const std::map<int, double>& fixed = norms.at("fixed context");
  const double rate = std::pow(fixed.at(50) / fixed.at(10), 1.0 / 40.0);
  EXPECT_GT(rate, 0.4);
  EXPECT_LT(rate, 0.85);
  // In a Transformer at its initial values every input is as near as any other.
  const std::map<int, double>& transformer = norms.at("Transformer");
  for (const auto& [d, norm] : transformer) {
    EXPECT_LT(std::fabs(std::log(norm / transformer.at(31))), std::log(10.0)) << d;
  }
  EXPECT_EQ(record["tables"], RecordOf(3)["tables"]);
}

}  // namespace
}  // namespace attest
