// SPDX-License-Identifier: Apache-2.0
#include "reports/junit.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "reports/text.h"

namespace attest::reports {
namespace {

// What kept a case from passing, as far as its result says.
std::string ReasonOf(const Json& result) {
  std::vector<std::string> reasons;
  for (const Json& output : Items(result, "outputs")) {
    const std::int64_t violations = CountOf(output, "violations");
    if (violations == 0) continue;
    const std::optional<double> ratio = NumberOf(Field(output, "max_bound_ratio"));
    reasons.push_back(fmt::format("{}: {} of {} above the bound{}", TextOr(output, "tensor"),
                                  violations, CountOf(output, "elements"),
                                  ratio ? ", error / bound " + FormatRatio(*ratio) : ""));
  }
  const std::string reason = TextOf(Field(result, "reason"));
  if (!reason.empty()) reasons.push_back(reason);
  for (const Json& law : Items(result, "broken_laws")) {
    reasons.push_back("law " + TextOf(law) + " does not hold");
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

std::string CaseOf(const Json& result, const std::string& status) {
  std::string xml = fmt::format(
      "    <testcase classname=\"{}.{}\" name=\"{}\"", EscapeHtml(TextOr(result, "suite")),
      EscapeHtml(TextOr(result, "family")), EscapeHtml(TextOr(result, "case")));
  if (status == "passed") return xml + "/>\n";
  std::string message = ReasonOf(result);
  if (message.empty()) message = status;
  // <error> is what kept the case from an end, <failure> a result that is wrong.
  const char* element = status == "failed" ? "failure" : status == "crashed" ? "error" : "skipped";
  return xml + fmt::format(">\n      <{0} message=\"{1}\"/>\n    </testcase>\n", element,
                           EscapeHtml(message));
}

std::string SuiteOf(const Json& audit, std::int64_t counts[4]) {
  std::string cases;
  std::int64_t tests = 0;
  std::int64_t failures = 0;
  std::int64_t errors = 0;
  std::int64_t skipped = 0;
  for (const Json& result : Items(audit, "case_results")) {
    const std::string status = TextOf(Field(result, "status"));
    ++tests;
    failures += status == "failed" ? 1 : 0;
    errors += status == "crashed" ? 1 : 0;
    skipped += status != "failed" && status != "crashed" && status != "passed" ? 1 : 0;
    cases += CaseOf(result, status);
  }
  counts[0] += tests;
  counts[1] += failures;
  counts[2] += errors;
  counts[3] += skipped;
  const Json& manifest = Field(audit, "manifest");
  return fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n"
      "    <properties>\n      <property name=\"verdict\" value=\"{}\"/>\n"
      "      <property name=\"command\" value=\"{}\"/>\n    </properties>\n{}  </testsuite>\n",
      EscapeHtml(AuditName(audit)), tests, failures, errors, skipped,
      EscapeHtml(AuditVerdict(audit).text), EscapeHtml(TextOr(manifest, "command")), cases);
}

}  // namespace

std::string JunitOf(const Report& report) {
  std::int64_t counts[4] = {};  // tests, failures, errors, skipped
  std::string suites;
  for (const Entry& audit : report.audits) suites += SuiteOf(*audit.record, counts);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites name=\"Attest\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">\n"
      "{}</testsuites>\n",
      counts[0], counts[1], counts[2], counts[3], suites);
}

}  // namespace attest::reports
