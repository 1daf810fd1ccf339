// SPDX-License-Identifier: Apache-2.0
// The mutation score: every fault of the catalogue is found by the general suites, and nothing is
// found in controls and built-in kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "experiments/experiment.h"

namespace attest {
namespace {

TEST(Mutation, EveryFaultIsKilledAndNothingRightIsFlagged) {
  ExperimentOptions options;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const StatusOr<nlohmann::ordered_json> record = RunExperiment("mutation", options);
  ASSERT_TRUE(record.ok()) << record.status().message();
  const nlohmann::ordered_json& r = *record;
  EXPECT_GE(r["faults"], 101);
  EXPECT_EQ(r["killed"], r["faults"]) << r["survivors"];
  EXPECT_GE(10 * r["killed_by_quick"].get<int>(), 9 * r["faults"].get<int>());
  EXPECT_GE(r["controls"], 17);
  EXPECT_EQ(r["false_alarms"], 0) << r["alarms"];
  EXPECT_EQ(r["verdict"], "reproduced") << r["summary"];
  EXPECT_EQ(r["matrix"].size(), r["faults"].get<std::size_t>() + r["controls"].get<std::size_t>() +
                                    r["kernels"].get<std::size_t>());
}

}  // namespace
}  // namespace attest
