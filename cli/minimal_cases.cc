// SPDX-License-Identifier: Apache-2.0
#include "cli/minimal_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "audit/minimal_case.h"
#include "audit/process_subject.h"
#include "cli/command.h"
#include "core/case.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr double kSecondsPerFinding = 5.0;
constexpr Index kCallsPerFinding = 1500;

}  // namespace

Status AddMinimalCases(const Subject& subject, const std::vector<SuiteCase>& cases,
                       const std::string& subject_argument, const std::string& out,
                       std::size_t most, ordered_json* record) {
  ordered_json& findings = (*record)["findings"];
  const std::size_t count = std::min(findings.size(), most);
  const std::filesystem::path directory = std::filesystem::path(out) / "minimal";
  if (count > 0 && !out.empty()) {
    if (Status s = PrepareDirectory(directory.string()); !s.ok()) return s;
  }
  for (std::size_t i = 0; i < count; ++i) {
    ordered_json& finding = findings[i];
    const auto worst = std::find_if(cases.begin(), cases.end(), [&](const SuiteCase& item) {
      return item.problem.name == finding["case"].get<std::string>();
    });
    if (worst == cases.end()) continue;
    ShrinkLimits limits;
    limits.calls = kCallsPerFinding;
    limits.seconds = kSecondsPerFinding;
    limits.progress = [&](Index calls) {
      ShowProgress(fmt::format("minimal case of finding {} of {}, run", i + 1, count),
                   static_cast<std::size_t>(calls), static_cast<std::size_t>(kCallsPerFinding));
    };
    const std::optional<Case> minimal =
        MinimalCase(subject, worst->problem, finding["code"], finding["tensor"], limits);
    if (!minimal) continue;
    ordered_json field{{"description", Describe(*minimal)}};
    if (!out.empty()) {
      const std::filesystem::path file = directory / (minimal->name + ".safetensors");
      if (Status s = WriteCase(file, *minimal); !s.ok()) return s;
      field["case"] = file.string();
      field["replay"] =
          fmt::format("attest audit {} --cases {}", subject_argument, ShellQuoted(file.string()));
    }
    finding["minimal"] = std::move(field);
  }
  if (count > 0) ShowProgress("minimal cases of findings,", count, count);
  return Status();
}

void PrintMinimal(const ordered_json& minimal) {
  fmt::print("  minimal case: {}\n", minimal["description"].get<std::string>());
  if (minimal.contains("replay")) {
    fmt::print("  replay: {}\n", minimal["replay"].get<std::string>());
  } else {
    fmt::print("  --out DIR writes it to DIR/minimal and says how to replay it\n");
  }
}

}  // namespace attest
