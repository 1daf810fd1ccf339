// SPDX-License-Identifier: Apache-2.0
// Plug-ins that misbehave, audited in the host's process: each is a finding of its own code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/case_spec.h"
#include "audit/process_subject.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

std::vector<SuiteCase> Cases() {
  std::vector<SuiteCase> cases;
  for (const Index keys : {1, 4, 6, 16}) {
    CaseSpec spec{.shape = {1, 2, 1, 3, keys, 4, 4, 4}};
    spec.outputs = {"out"};
    cases.push_back({"test", "small", MakeCase(spec, 0)});
  }
  return cases;
}

ordered_json Audit(const std::string& what, const ProcessLimits& limits) {
  const char* const directory = std::getenv("ATTEST_MISBEHAVING");
  EXPECT_NE(directory, nullptr) << "run by ctest, which names the folder";
  const StatusOr<std::unique_ptr<Subject>> subject = MakePluginSubject(
      std::string(directory == nullptr ? "" : directory) + "/misbehaving_" + what + ".so", limits);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  if (!subject.ok()) return {};
  const auto record = Auditor(Cases(), {}).Audit(**subject, "test");
  EXPECT_TRUE(record.ok()) << record.status().message();
  return record.ok() ? *record : ordered_json();
}

struct Misbehaviour {
  const char* what;
  const char* code;
};

class PluginAudit : public ::testing::TestWithParam<Misbehaviour> {};

TEST_P(PluginAudit, FindsIt) {
  const auto& [what, code] = GetParam();
  ProcessLimits limits{.seconds = 20.0, .memory_bytes = std::uint64_t{400} << 20};
  if (std::string(code) == "timeout") limits.seconds = 0.5;
  const ordered_json record = Audit(what, limits);
  ASSERT_EQ(record["verdict"], "findings");
  std::set<std::string> codes;
  for (const ordered_json& finding : record["findings"]) {
    codes.insert(finding["code"]);
    EXPECT_FALSE(finding["case"].get<std::string>().empty());
  }
  EXPECT_TRUE(codes.contains(code)) << record["findings"].dump(2);
}

INSTANTIATE_TEST_SUITE_P(
    Every, PluginAudit,
    ::testing::Values(Misbehaviour{"crash", "crash"}, Misbehaviour{"abort", "crash"},
                      Misbehaviour{"exit", "crash"}, Misbehaviour{"crash_at_load", "crash"},
                      Misbehaviour{"crash_on_odd_lengths", "crash"},
                      Misbehaviour{"loop", "timeout"}, Misbehaviour{"loop_with_child", "timeout"},
                      Misbehaviour{"hog", "memory"}, Misbehaviour{"write_outside", "trespass"},
                      Misbehaviour{"write_input", "trespass"}, Misbehaviour{"print", "printed"},
                      Misbehaviour{"print_at_load", "printed"}, Misbehaviour{"throw", "error"},
                      Misbehaviour{"throw_number", "error"}, Misbehaviour{"ftz", "fp-state"},
                      Misbehaviour{"ftz_at_load", "fp-state"}, Misbehaviour{"rounding", "fp-state"},
                      Misbehaviour{"traps", "fp-state"}, Misbehaviour{"zeros", "above-bound"},
                      Misbehaviour{"copy_input", "above-bound"}, Misbehaviour{"nan", "non-finite"},
                      Misbehaviour{"random", "above-bound"},
                      Misbehaviour{"previous", "above-bound"},
                      Misbehaviour{"unwritten", "non-finite"}),
    [](const auto& parameter) { return std::string(parameter.param.what); });

TEST(PluginAuditOf, WhatIsRightConforms) {
  for (const char* what : {"right", "no_info"}) {
    const ordered_json record = Audit(what, {.seconds = 20.0});
    EXPECT_EQ(record["verdict"], "conforms") << what << record["findings"].dump(2);
    EXPECT_EQ(record["cases"]["passed"], 4) << what;
  }
}

// A crash in one case of four: the others are judged.
TEST(PluginAuditOf, ACrashCostsItsCaseOnly) {
  const ordered_json record = Audit("crash_on_odd_lengths", {.seconds = 20.0});
  EXPECT_EQ(record["cases"]["crashed"], 1);
  EXPECT_GE(record["cases"]["passed"], 1);
}

}  // namespace
}  // namespace attest
