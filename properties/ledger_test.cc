// SPDX-License-Identifier: Apache-2.0
// The ledger: its own checks against known numbers, and whose records it takes.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "experiments/ledger_checks.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

TEST(Ledger, GapsFollowTheFormulas) {
  ordered_json rows = ordered_json::array();
  const StatusOr<LedgerEntry> entry = CheckGaps(&rows);
  ASSERT_TRUE(entry.ok()) << entry.status().message();
  EXPECT_EQ(entry->verdict, "reproduced with limits");
  ASSERT_EQ(rows.size(), 15u);
  for (const ordered_json& row : rows) {
    const double difference = row[0];
    EXPECT_DOUBLE_EQ(row[3], std::exp(difference));
    // 1 / (1 + e^-d) - 1 / (1 + e^d)
    EXPECT_NEAR(row[4], std::tanh(difference / 2), 4e-16);
  }
}

TEST(Ledger, OwnChecksHold) {
  ExperimentOptions options;
  options.seed = 3;
  options.threads = 2;
  const StatusOr<LedgerEntry> weights = CheckWeights(options);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->verdict, "reproduced") << weights->number;
  const StatusOr<LedgerEntry> scores = CheckScores();
  ASSERT_TRUE(scores.ok()) << scores.status().message();
  EXPECT_EQ(scores->verdict, "reproduced") << scores->number;
  const StatusOr<LedgerEntry> masking = CheckMasking(options);
  ASSERT_TRUE(masking.ok()) << masking.status().message();
  EXPECT_EQ(masking->verdict, "reproduced") << masking->number;
  // 9 kinds of values, 2 x 2 heads, 5 queries, 16 of 33 keys hidden.
  EXPECT_NE(masking->number.find(" 2880 hidden weights, 0 other"), std::string::npos)
      << masking->number;
  const StatusOr<LedgerEntry> convexity = CheckConvexity(options);
  ASSERT_TRUE(convexity.ok()) << convexity.status().message();
  EXPECT_EQ(convexity->verdict, "reproduced") << convexity->number;
  EXPECT_EQ(CheckEmptyRow().verdict, "reproduced");
}

TEST(Ledger, TakesVerdictsAndNumbersFromRecordsAtHand) {
  ExperimentOptions options;
  const ordered_json given = {
      {"verdict", "refuted"},
      {"summary", "given"},
      {"claims", {{{"claim", "listed"}, {"verdict", "refuted"}, {"number", "given"}}}}};
  std::set<std::string> asked;
  options.finished = [&](const std::string& name) {
    asked.insert(name);
    return &given;
  };
  const StatusOr<ordered_json> record = RunExperiment("ledger", options);
  ASSERT_TRUE(record.ok()) << record.status().message();
  std::set<std::string> linked;
  for (const ordered_json& row : (*record)["tables"][0]["rows"]) {
    const bool own = row[3] == "ledger";
    EXPECT_EQ(row[2] == "given", !own) << row;
    EXPECT_EQ(row[1] == "refuted", !own) << row;
    if (!own) linked.insert(row[3]);
  }
  EXPECT_EQ((*record)["tables"][0]["rows"].back()[0], "listed");
  EXPECT_EQ(linked, asked);
  EXPECT_GE(asked.size(), 5u);
  EXPECT_EQ((*record)["verdict"], "reproduced with limits");
  for (const std::string& name : asked) {
    bool known = false;
    for (const Experiment& experiment : Experiments()) known = known || experiment.name == name;
    EXPECT_TRUE(known) << name;
  }
}

}  // namespace
}  // namespace attest
