// SPDX-License-Identifier: Apache-2.0
// JUnit XML and SARIF from records: counts, reasons, rules and places.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reports/junit.h"
#include "reports/model.h"
#include "reports/sarif.h"

namespace attest::reports {
namespace {

// Four cases of every end; one finding with a minimal case, and one without.
Json Records() {
  return Json::parse(R"([{"attest_result": 1, "verdict": "findings",
    "implementation": {"name": "<script>a&b"},
    "case_results": [
      {"case": "one", "suite": "quick", "family": "causal", "status": "passed", "outputs": []},
      {"case": "two", "suite": "quick", "family": "causal", "status": "failed", "outputs": [
        {"tensor": "out", "elements": 10, "violations": 3, "max_bound_ratio": 2.5},
        {"tensor": "lse", "elements": 2, "violations": 0, "max_bound_ratio": 0.5}],
        "broken_laws": ["key-order"]},
      {"case": "three", "suite": "quick", "family": "lengths", "status": "crashed",
        "reason": "crash: signal 11 \"x\""},
      {"case": "four", "suite": "quick", "family": "lengths", "status": "unsupported",
        "reason": "no sinks"}],
    "findings": [
      {"code": "above-bound", "title": "an element is too far", "case": "two", "tensor": "out",
       "explanation": "3 of 10", "reproducer": "attest audit",
       "minimal": {"description": "1 query", "case": "m/above.safetensors", "replay": "attest r"}},
      {"code": "crash", "title": "the process ended", "case": "three", "tensor": "",
       "explanation": "signal 11", "reproducer": "attest audit"},
      {"code": "above-bound", "title": "an element is too far", "case": "two", "tensor": "lse",
       "explanation": "1 of 2", "reproducer": "attest audit"}],
    "manifest": {"attest_version": "0.1.0", "command": "attest audit --exec 'a <b>'"}}])");
}

std::int64_t Occurrences(const std::string& text, const std::string& part) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Junit, CountsAndReasons) {
  const Json records = Records();
  const StatusOr<Report> report = ReadRecords(records);
  ASSERT_TRUE(report.ok());
  const std::string xml = JunitOf(*report);
  EXPECT_NE(xml.find("<testsuites name=\"Attest\" tests=\"4\" failures=\"1\" errors=\"1\" "
                     "skipped=\"1\">"),
            std::string::npos);
  EXPECT_NE(xml.find("<testcase classname=\"quick.causal\" name=\"one\"/>"), std::string::npos);
  EXPECT_NE(xml.find("<failure message=\"out: 3 of 10 above the bound, error / bound 2.5; law "
                     "key-order does not hold\"/>"),
            std::string::npos)
      << xml;
  EXPECT_NE(xml.find("<error message=\"crash: signal 11 &quot;x&quot;\"/>"), std::string::npos);
  EXPECT_NE(xml.find("<skipped message=\"no sinks\"/>"), std::string::npos);
  EXPECT_EQ(Occurrences(xml, "<testcase "), 4);
  EXPECT_EQ(Occurrences(xml, "</testcase>"), 3);
  EXPECT_EQ(xml.find("<script"), std::string::npos);
  EXPECT_EQ(xml.find("a <b>"), std::string::npos);
}

TEST(Sarif, RulesResultsAndPlaces) {
  const Json records = Records();
  const StatusOr<Report> report = ReadRecords(records);
  ASSERT_TRUE(report.ok());
  const Json sarif = SarifOf(*report);
  EXPECT_EQ(sarif["version"], "2.1.0");
  ASSERT_EQ(sarif["runs"].size(), 1u);
  const Json& run = sarif["runs"][0];
  const Json& driver = run["tool"]["driver"];
  EXPECT_EQ(driver["version"], "0.1.0");
  ASSERT_EQ(driver["rules"].size(), 2u);  // each kind once
  ASSERT_EQ(run["results"].size(), 3u);
  std::vector<std::string> fingerprints;
  for (const Json& result : run["results"]) {
    const std::size_t rule = result["ruleIndex"];
    ASSERT_LT(rule, driver["rules"].size());
    EXPECT_EQ(driver["rules"][rule]["id"], result["ruleId"]);
    EXPECT_FALSE(driver["rules"][rule]["help"]["text"].get<std::string>().empty());
    EXPECT_EQ(result["level"], "error");
    fingerprints.push_back(result["partialFingerprints"]["attest/v1"]);
  }
  std::sort(fingerprints.begin(), fingerprints.end());
  EXPECT_EQ(std::adjacent_find(fingerprints.begin(), fingerprints.end()), fingerprints.end());
  const Json& first = run["results"][0]["locations"][0];
  EXPECT_EQ(first["physicalLocation"]["artifactLocation"]["uri"], "m/above.safetensors");
  EXPECT_EQ(first["logicalLocations"][0]["fullyQualifiedName"], "<script>a&b/two/out");
  EXPECT_FALSE(run["results"][1]["locations"][0].contains("physicalLocation"));
  const std::string message = run["results"][0]["message"]["text"];
  EXPECT_NE(message.find("Replay: attest r"), std::string::npos);
}

TEST(MachineFormats, TolerateWhatIsMissing) {
  const Json records = Json::parse(
      R"([{"attest_result": 1}, {"attest_result": 1, "case_results": [{}, 3], "findings": [{}]}])");
  const StatusOr<Report> report = ReadRecords(records);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(Occurrences(JunitOf(*report), "<testsuite "), 2);
  EXPECT_EQ(SarifOf(*report)["runs"][0]["results"].size(), 1u);
  // No audit: an empty list, not null.
  const Json none = Json::array();
  EXPECT_TRUE(SarifOf(*ReadRecords(none))["runs"][0]["results"].is_array());
  EXPECT_TRUE(SarifOf(*ReadRecords(none))["runs"][0]["tool"]["driver"]["rules"].is_array());
}

}  // namespace
}  // namespace attest::reports
