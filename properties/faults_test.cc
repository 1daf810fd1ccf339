// SPDX-License-Identifier: Apache-2.0
// Seeded faults against the general suite and the laws, which do not know which fault they face;
// the implementation without a fault passes everything.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/law.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

std::unique_ptr<Subject> Plain(const std::string& fault) {
  StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject(fault);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  return *std::move(subject);
}

// One auditor for all tests: the certified values of the suite are made once.
Auditor& QuickAuditor() {
  static Auditor auditor(*MakeSuite("quick", 0), {});
  return auditor;
}

// Faults for which the suite has no input yet. Their smallest inputs: faults_directed_test.cc.
const std::set<std::string>& Missed() {
  static const std::set<std::string> missed{"additive-pads-attended",
                                            "alibi-lost-in-decode",
                                            "alibi-sign",
                                            "alibi-slope-exponent",
                                            "bias-only-gradient",
                                            "dropout-in-inference",
                                            "exponential-clamped-at-min",
                                            "finfo-min-overflow-half",
                                            "half-scores-before-scale",
                                            "int32-batch-offset",
                                            "int32-mask-offset",
                                            "int32-row-offset",
                                            "masked-tile-poisons-max",
                                            "max-seed-5e4",
                                            "max-seed-smallest-positive",
                                            "sink-with-placeholder-max",
                                            "softcap-after-mask",
                                            "split-count-from-threads",
                                            "strides-ignored",
                                            "tanh-by-exponentials",
                                            "window-from-padded-end",
                                            "window-future-leak",
                                            "window-needs-a-mask",
                                            "window-negative-means-all",
                                            "window-plus-one"};
  return missed;
}

std::vector<std::string> CaughtFaults() {
  std::vector<std::string> names;
  for (const FaultInfo& fault : Faults()) {
    if (!Missed().contains(fault.name)) names.push_back(fault.name);
  }
  return names;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

TEST(PlainAttention, ConformsWithoutAFault) {
  const StatusOr<nlohmann::ordered_json> record = QuickAuditor().Audit(*Plain("none"), "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
  EXPECT_EQ((*record)["cases"]["unsupported"], 0);
}

class SeededFault : public ::testing::TestWithParam<std::string> {};

// The audit does not know which fault it faces.
TEST_P(SeededFault, IsCaughtByTheQuickSuite) {
  const StatusOr<nlohmann::ordered_json> record = QuickAuditor().Audit(*Plain(GetParam()), "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "findings");
}

INSTANTIATE_TEST_SUITE_P(Catalogue, SeededFault, ::testing::ValuesIn(CaughtFaults()), TestName);

}  // namespace
}  // namespace attest
