// SPDX-License-Identifier: Apache-2.0
#include "audit/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "audit/finding.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace attest {
namespace {

using nlohmann::ordered_json;
using std::chrono::year_month_day;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 24;

// "2027-06-30"; nothing for any other text and for days that no month has.
std::optional<year_month_day> DayOf(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  char rest = 0;
  const bool digits = std::all_of(text.begin(), text.end(),
                                  [](char c) { return c == '-' || (c >= '0' && c <= '9'); });
  if (text.size() != 10 || !digits ||
      std::sscanf(text.c_str(), "%4d-%2u-%2u%c", &year, &month, &day, &rest) != 3) {
    return std::nullopt;
  }
  const year_month_day date{std::chrono::year{year}, std::chrono::month{month},
                            std::chrono::day{day}};
  return date.ok() ? std::optional(date) : std::nullopt;
}

std::string TextOf(const year_month_day& date) {
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

bool IsKnown(const std::string& code) {
  return std::any_of(FindingKinds().begin(), FindingKinds().end(),
                     [&](const FindingKind& kind) { return kind.code == code; });
}

StatusOr<AcceptedFinding> ReadEntry(const nlohmann::json& json, const std::string& path) {
  if (!json.is_object()) return InvalidArgument(path + ": expected an object");
  AcceptedFinding entry;
  std::string until;
  ObjectReader reader(json, path);
  reader.ReadText("implementation", &entry.implementation);
  reader.ReadText("code", &entry.code);
  reader.ReadText("tensor", &entry.tensor);
  reader.ReadText("until", &until);
  reader.ReadText("reason", &entry.reason);
  if (entry.implementation.empty()) reader.Fail("implementation", "expected a name");
  if (!IsKnown(entry.code)) {
    reader.Fail("code",
                "expected the code of a finding (docs/findings.md), found " + Quoted(entry.code));
  }
  const std::optional<year_month_day> day = DayOf(until);
  if (!day) reader.Fail("until", "expected a day as 2027-06-30, found " + Quoted(until));
  if (Status s = reader.Finish(); !s.ok()) return s;
  entry.until = *day;
  return entry;
}

bool Matches(const AcceptedFinding& entry, const ordered_json& finding) {
  return finding["code"] == entry.code && finding["tensor"] == entry.tensor;
}

}  // namespace

StatusOr<std::vector<AcceptedFinding>> ReadBaseline(const std::filesystem::path& file) {
  const StatusOr<std::string> text = ReadWholeFile(file, kMostBytes);
  if (!text.ok()) return text.status();
  const auto in_file = [&](const Status& status) {
    return Status(status.code(), Printable(file.native()) + ": " + status.message());
  };
  const StatusOr<nlohmann::json> json = ParseStrictJson(*text);
  if (!json.ok()) return in_file(json.status());
  if (!json->is_object()) return in_file(InvalidArgument("expected an object"));
  ObjectReader reader(*json, "baseline");
  Index version = 0;
  reader.ReadIndex("attest_baseline", &version);
  if (version != 1) reader.Fail("attest_baseline", "expected 1");
  const nlohmann::json* accepted = reader.ReadAny("accepted");
  if (accepted == nullptr || !accepted->is_array()) reader.Fail("accepted", "expected an array");
  if (Status s = reader.Finish(); !s.ok()) return in_file(s);
  std::vector<AcceptedFinding> entries;
  for (const nlohmann::json& element : *accepted) {
    StatusOr<AcceptedFinding> entry =
        ReadEntry(element, fmt::format("accepted[{}]", entries.size()));
    if (!entry.ok()) return in_file(entry.status());
    entries.push_back(*std::move(entry));
  }
  return entries;
}

std::size_t ApplyBaseline(const std::vector<AcceptedFinding>& baseline, const year_month_day& today,
                          ordered_json* record) {
  ordered_json& findings = (*record)["findings"];
  for (const AcceptedFinding& entry : baseline) {
    if ((*record)["implementation"]["name"] != entry.implementation) continue;
    const std::string name = entry.code + (entry.tensor.empty() ? "" : " of " + entry.tensor);
    const auto finding = std::find_if(findings.begin(), findings.end(),
                                      [&](const auto& f) { return Matches(entry, f); });
    if (finding == findings.end()) {
      (*record)["remarks"].push_back("baseline: " + name + " is accepted but was not found");
    } else if (entry.until < today) {
      (*record)["remarks"].push_back(
          fmt::format("baseline: {} was accepted until {}", name, TextOf(entry.until)));
    } else {
      (*finding)["accepted"] = {{"until", TextOf(entry.until)}, {"reason", entry.reason}};
    }
  }
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const ordered_json& finding) { return !finding.contains("accepted"); }));
}

ordered_json BaselineOf(const ordered_json& record, const year_month_day& until) {
  ordered_json accepted = ordered_json::array();
  for (const ordered_json& finding : record["findings"]) {
    accepted.push_back({{"implementation", record["implementation"]["name"]},
                        {"code", finding["code"]},
                        {"tensor", finding["tensor"]},
                        {"until", TextOf(until)},
                        {"reason", ""}});
  }
  return {{"attest_baseline", 1}, {"accepted", std::move(accepted)}};
}

}  // namespace attest
