// SPDX-License-Identifier: Apache-2.0
// Experiments: their verdicts, and the same record on a second run.
#include <gtest/gtest.h>

#include "experiments/experiment.h"

namespace attest {
namespace {

nlohmann::ordered_json RecordOf(const std::string& name) {
  StatusOr<nlohmann::ordered_json> record = RunExperiment(name, {});
  EXPECT_TRUE(record.ok()) << record.status().message();
  return *std::move(record);
}

// e^(1/sqrt 2) / (2 e^(1/sqrt 2) + 1) and e / (2 e + 1), computed to 30 digits by other means.
TEST(WorkedExample, GivesThirtyDigitsWithAndWithoutTheScaling) {
  const nlohmann::ordered_json record = RecordOf("worked-example");
  const nlohmann::ordered_json& rows = record["tables"][0]["rows"];
  EXPECT_EQ(rows[0][1], "0.401112092679785910314010446311");
  EXPECT_EQ(rows[2][1], "0.197775814640428179371979107378");
  EXPECT_EQ(rows[0][2], "0.422318798251518196603290705988");
  EXPECT_EQ(rows[2][2], "0.155362403496963606793418588024");
  EXPECT_EQ(rows[0][1], rows[1][1]);
  EXPECT_EQ(record["verdict"], "refuted");
}

TEST(Saturation, ReproducesAndRepeats) {
  const nlohmann::ordered_json record = RecordOf("saturation");
  EXPECT_EQ(record["verdict"], "reproduced") << record["summary"];
  EXPECT_EQ(record["tables"], RecordOf("saturation")["tables"]);
}

TEST(Experiments, UnknownNamesAreRefused) {
  const StatusOr<nlohmann::ordered_json> record = RunExperiment("nonsense", {});
  ASSERT_FALSE(record.ok());
  EXPECT_TRUE(record.status().message().starts_with("no experiment 'nonsense'"));
}

}  // namespace
}  // namespace attest
