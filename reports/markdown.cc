// SPDX-License-Identifier: Apache-2.0
// Verdicts, what to look at first, and the first findings with their reproducers.
#include "reports/markdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"

namespace attest::reports {
namespace {

constexpr std::size_t kMostFindings = 10;
constexpr std::size_t kMostPointers = 6;

std::string Marked(const Verdict& verdict) {
  const char* mark = "\u2013";
  if (verdict.tone == Tone::kGood) mark = "\u2705";
  if (verdict.tone == Tone::kCaution) mark = "\u26A0\uFE0F";
  if (verdict.tone == Tone::kBad) mark = "\u274C";
  return std::string(mark) + " " + EscapeMarkdown(verdict.text);
}

// Cells and items stay short; the page has the full text.
std::string Brief(const std::string& text) { return EscapeMarkdown(Shorten(text, 240)); }

std::string Audits(const Report& report) {
  std::string md =
      "\n## Implementations\n\n"
      "| Implementation | Target | Verdict | Passed / run | Unsupported | Findings | "
      "Largest error / bound |\n|---|---|---|--:|--:|--:|--:|\n";
  for (const Entry& audit : report.audits) {
    const Json& cases = Field(*audit.record, "cases");
    const std::optional<double> worst = WorstRatioOf(*audit.record).ratio;
    md += fmt::format(
        "| {} | {} | {} | {} / {} | {} | {} | {} |\n", Brief(AuditName(*audit.record)),
        Brief(TextOr(Field(*audit.record, "implementation"), "target")),
        Marked(AuditVerdict(*audit.record)), Brief(TextOr(cases, "passed")),
        Brief(TextOr(cases, "run")), Brief(TextOr(cases, "unsupported")),
        FormatCount(FindingCount(*audit.record)), worst ? FormatRatio(*worst) : std::string(kDash));
  }
  return md;
}

std::string Experiments(const Report& report) {
  std::string md = "\n## Experiments\n\n| Claim tested | Verdict | Result |\n|---|---|---|\n";
  for (const Entry& experiment : report.experiments) {
    md += fmt::format("| {} | {} | {} |\n", Brief(ExperimentTitle(*experiment.record)),
                      Marked(ExperimentVerdict(*experiment.record)),
                      Brief(TextOr(*experiment.record, "summary")));
  }
  return md;
}

std::string Finding(const Json& audit, const Json& finding) {
  const Json& worst = Field(finding, "worst");
  const std::optional<double> ratio = NumberOf(Field(worst, "bound_ratio"));
  std::string md = fmt::format(
      "- **{}: {}** ({})  \n  case {}, tensor {}, {} ULP, error / bound {}\n",
      Brief(AuditName(audit)), Brief(TextOr(finding, "title")), Brief(TextOr(finding, "code")),
      Brief(TextOr(finding, "case")), Brief(TextOr(finding, "tensor")), Brief(TextOr(worst, "ulp")),
      ratio ? FormatRatio(*ratio) : std::string(kDash));
  const std::string reproducer = TextOf(Field(finding, "reproducer"));
  if (!reproducer.empty()) md += "\n  " + MarkdownCode(Shorten(reproducer, 400)) + "\n";
  return md;
}

std::string Findings(const Report& report) {
  std::string md;
  std::size_t shown = 0;
  std::size_t all = 0;
  for (const Entry& audit : report.audits) {
    for (const Json& finding : Items(*audit.record, "findings")) {
      ++all;
      if (shown == kMostFindings) continue;
      ++shown;
      md += Finding(*audit.record, finding);
    }
  }
  if (md.empty()) return "";
  if (shown < all) md += fmt::format("\nThe first {} of {} findings.\n", shown, all);
  return "\n## Findings\n\n" + md;
}

}  // namespace

std::string MarkdownOf(const Report& report) {
  std::string md = "# Numerics of attention: " + Marked(Headline(report)) + "\n";
  for (const std::string& sentence : SummarySentences(report)) {
    md += "\n" + EscapeMarkdown(sentence) + "\n";
  }
  const std::vector<Pointer> pointers = LookAtFirst(report, kMostPointers);
  if (!pointers.empty()) md += "\n**What to look at first**\n\n";
  std::size_t number = 0;
  for (const Pointer& pointer : pointers) {
    md += fmt::format("{}. {}: {}\n", ++number, Brief(pointer.subject), Brief(pointer.text));
  }
  if (!report.audits.empty()) md += Audits(report);
  md += Findings(report);
  if (!report.experiments.empty()) md += Experiments(report);
  return md +
         "\nError / bound above 1 is a violation of the bound derived for the declared arithmetic. "
         "ULP: \\|got \u2212 exact\\| / ulp(exact); correct rounding is at most 0.5; subnormals "
         "use "
         "2^(emin\u2212p+1); near zero read the scaled error instead. "
         "The whole report is in report.html, the records in report.json.\n";
}

}  // namespace attest::reports
