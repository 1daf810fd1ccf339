// SPDX-License-Identifier: Apache-2.0
#include "reports/sarif.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "reports/text.h"

namespace attest::reports {
namespace {

// The rules that findings name, each once, in the order of their first finding.
class Rules {
 public:
  // The rule's position.
  std::size_t Of(const Json& finding) {
    const std::string code = TextOr(finding, "code");
    const auto [known, added] = positions_.emplace(code, rules_.size());
    if (added) {
      const std::string title = TextOr(finding, "title");
      rules_.push_back(
          {{"id", code},
           {"shortDescription", {{"text", title}}},
           {"help",
            {{"text", title + ". docs/findings.md names the usual causes of " + code + "."},
             {"markdown", EscapeMarkdown(title) + ". The usual causes of " + MarkdownCode(code) +
                              " are in docs/findings.md."}}},
           {"defaultConfiguration", {{"level", "error"}}}});
    }
    return known->second;
  }

  const Json& all() const { return rules_; }

 private:
  Json rules_ = Json::array();
  std::map<std::string, std::size_t> positions_;
};

std::string MessageOf(const Json& audit, const Json& finding) {
  std::string message = fmt::format("{}: {}. {}", AuditName(audit), TextOr(finding, "title"),
                                    TextOr(finding, "explanation"));
  const Json& minimal = Field(finding, "minimal");
  const std::string description = TextOf(Field(minimal, "description"));
  if (!description.empty()) message += ". Smallest: " + description;
  const std::string replay = TextOf(Field(minimal, "replay"));
  const std::string command = replay.empty() ? TextOf(Field(finding, "reproducer")) : replay;
  if (!command.empty()) message += ". Replay: " + command;
  return CleanText(message);
}

Json LocationOf(const Json& audit, const Json& finding) {
  const std::string tensor = TextOf(Field(finding, "tensor"));
  std::string place = AuditName(audit) + "/" + TextOr(finding, "case");
  if (!tensor.empty()) place += "/" + tensor;
  Json location{{"logicalLocations",
                 {{{"name", AuditName(audit)},
                   {"fullyQualifiedName", CleanText(place)},
                   {"kind", "function"}}}}};
  const std::string file = TextOf(Field(Field(finding, "minimal"), "case"));
  if (!file.empty()) {
    location["physicalLocation"] = {{"artifactLocation", {{"uri", CleanText(file)}}}};
  }
  return location;
}

}  // namespace

Json SarifOf(const Report& report) {
  Rules rules;
  Json results = Json::array();
  Json version = "";
  for (const Entry& audit : report.audits) {
    const Json& record = *audit.record;
    version = Field(Field(record, "manifest"), "attest_version");
    for (const Json& finding : Items(record, "findings")) {
      const std::size_t rule = rules.Of(finding);
      const std::string key = fmt::format("{}/{}/{}", AuditName(record), TextOr(finding, "code"),
                                          TextOf(Field(finding, "tensor")));
      Json result{{"ruleId", TextOr(finding, "code")},
                  {"ruleIndex", rule},
                  {"level", "error"},
                  {"message", {{"text", MessageOf(record, finding)}}},
                  {"locations", Json::array({LocationOf(record, finding)})},
                  {"partialFingerprints", {{"attest/v1", CleanText(key)}}}};
      const Json& accepted = Field(finding, "accepted");
      if (accepted.is_object()) {
        result["suppressions"] =
            Json::array({{{"kind", "external"},
                          {"justification", CleanText(TextOf(Field(accepted, "reason")))}}});
      }
      results.push_back(std::move(result));
    }
  }
  Json driver{{"name", "Attest"}};
  if (version.is_string()) driver["version"] = version;
  driver["rules"] = rules.all();
  return {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
          {"version", "2.1.0"},
          {"runs", Json::array({{{"tool", {{"driver", std::move(driver)}}},
                                 {"columnKind", "unicodeCodePoints"},
                                 {"results", std::move(results)}}})}};
}

}  // namespace attest::reports
