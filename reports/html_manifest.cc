// SPDX-License-Identifier: Apache-2.0
// What produced the records: builds and machines once each, then every run with its digests.
#include <fmt/format.h>

#include <algorithm>

#include "reports/html.h"
#include "reports/html_parts.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

bool BelongsToRun(const std::string& key) {
  return key == "command" || key == "seed" || key == "inputs_sha256" || key == "outputs_sha256" ||
         key == "simd_target";
}

std::string Readable(const std::string& key) {
  if (key == "attest_version") return "Attest";
  if (key == "git") return "Git";
  if (key == "cpu") return "CPU";
  std::string text = key;
  std::replace(text.begin(), text.end(), '_', ' ');
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

std::string ValueText(const Json& value) {
  if (!value.is_object()) return ExactTextOf(value);
  std::string text;
  for (const auto& [name, version] : value.items()) {
    text += (text.empty() ? "" : ", ") + name + " " + ExactTextOf(version);
  }
  return text;
}

// What of a manifest is the same for every run of one build on one machine.
std::vector<std::pair<std::string, std::string>> BuildFacts(const Json& manifest) {
  std::vector<std::pair<std::string, std::string>> facts;
  if (!manifest.is_object()) return facts;
  for (const auto& [key, value] : manifest.items()) {
    if (!BelongsToRun(key)) facts.emplace_back(Readable(key), EscapeHtml(ValueText(value)));
  }
  return facts;
}

struct Run {
  std::string name;
  const Json* manifest;
};

std::vector<Run> Runs(const Report& report) {
  std::vector<Run> runs;
  for (const Entry& entry : report.experiments) {
    runs.push_back({ExperimentTitle(*entry.record), &Field(*entry.record, "manifest")});
  }
  for (const Entry& entry : report.audits) {
    runs.push_back({AuditName(*entry.record), &Field(*entry.record, "manifest")});
  }
  return runs;
}

std::string DigestHtml(const Json& manifest, const char* key) {
  const std::string digest = TextOf(Field(manifest, key));
  return digest.empty() ? std::string(kDash) : "<code>" + EscapeHtml(digest) + "</code>";
}

}  // namespace

std::string ManifestHtml(const Report& report) {
  const std::vector<Run> runs = Runs(report);
  std::vector<std::vector<std::pair<std::string, std::string>>> builds;
  std::vector<std::size_t> build_of;
  for (const Run& run : runs) {
    auto facts = BuildFacts(*run.manifest);
    const auto found = std::find(builds.begin(), builds.end(), facts);
    build_of.push_back(static_cast<std::size_t>(found - builds.begin()));
    if (found == builds.end()) builds.push_back(std::move(facts));
  }
  if (runs.empty()) return ParagraphHtml("No run, no manifest.");

  std::string html;
  for (std::size_t i = 0; i < builds.size(); ++i) {
    html += "<div class=\"card\">\n";
    if (builds.size() > 1) html += fmt::format("<h3>Build {}</h3>\n", i + 1);
    const std::string facts = FactsHtml(builds[i]);
    html += (facts.empty() ? ParagraphHtml("The records do not say what produced them.") : facts) +
            "</div>\n";
  }
  HtmlTable table{
      "Runs",
      {{"Run"}, {"SIMD target"}, {"Seed", true}, {"Inputs, SHA-256"}, {"Outputs, SHA-256"}},
      {}};
  if (builds.size() > 1) table.columns.push_back({"Build", true});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Json& manifest = *runs[i].manifest;
    const std::string seed = ExactTextOf(Field(manifest, "seed"));
    table.rows.push_back({EscapeHtml(runs[i].name), EscapeHtml(TextOr(manifest, "simd_target")),
                          EscapeHtml(seed.empty() ? kDash : std::string_view(seed)),
                          DigestHtml(manifest, "inputs_sha256"),
                          DigestHtml(manifest, "outputs_sha256")});
    if (builds.size() > 1) table.rows.back().push_back(fmt::format("{}", build_of[i] + 1));
  }
  return html + ToHtml(table);
}

std::string ReproduceHtml(const Report& report) {
  std::vector<std::string> commands;
  for (const Run& run : Runs(report)) {
    std::string command = TextOf(Field(*run.manifest, "command"));
    if (command.empty()) continue;
    if (std::find(commands.begin(), commands.end(), command) == commands.end()) {
      commands.push_back(std::move(command));
    }
  }
  if (commands.empty()) return ParagraphHtml("The records name no command.");
  std::string html =
      "<p>The same seed gives the same inputs with every compiler, SIMD target and number of "
      "threads. Compare the digests above.</p>\n";
  for (const std::string& command : commands) html += CodeBlockHtml(command);
  return html;
}

}  // namespace attest::reports
