// SPDX-License-Identifier: Apache-2.0
// The card of one audited implementation: findings, errors by case family, laws.
#include <fmt/format.h>

#include <algorithm>

#include "reports/case_family.h"
#include "reports/html.h"
#include "reports/html_parts.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

// Beyond these, the page refers to report.json.
constexpr std::size_t kMostFindings = 40;
constexpr std::size_t kOpenFindings = 8;
constexpr std::size_t kMostNamedCases = 60;

std::string RatioHtml(std::optional<double> ratio) {
  if (!ratio) return std::string(kDash);
  const std::string text = EscapeHtml(FormatRatio(*ratio));
  return *ratio <= 1 ? text : "<strong class=\"over\">" + text + "</strong>";
}

std::string IndexText(const Json& index) {
  std::string text;
  if (!index.is_array()) return TextOf(index);
  for (const Json& at : index) text += (text.empty() ? "" : ", ") + ExactTextOf(at);
  return text.empty() ? "" : "[" + text + "]";
}

std::string FindingHtml(const Json& finding, const std::string& id) {
  const Json& worst = Field(finding, "worst");
  const Json& minimal = Field(finding, "minimal");
  std::string html = fmt::format(
      "<div class=\"finding\" id=\"{}\">\n<div "
      "class=\"title\"><h5>{}</h5><code>{}</code></div>\n{}",
      id, EscapeHtml(TextOr(finding, "title")), EscapeHtml(TextOr(finding, "code")),
      ParagraphHtml(TextOf(Field(finding, "explanation"))));
  const Json& ulp = Field(worst, "ulp");
  const Json& ratio = Field(worst, "bound_ratio");
  const auto code = [](const std::string& text) {
    return text.empty() ? "" : "<code>" + EscapeHtml(text) + "</code>";
  };
  html += FactsHtml({{"Case", code(TextOf(Field(finding, "case")))},
                     {"Tensor", code(TextOf(Field(finding, "tensor")))},
                     {"Worst element", code(IndexText(Field(worst, "index")))},
                     {"Got", code(ExactTextOf(Field(worst, "got")))},
                     {"Exact", code(ExactTextOf(Field(worst, "expected")))},
                     {"Error in ULP", ulp.is_null() ? "" : EscapeHtml(TextOf(ulp))},
                     {"Error / bound", ratio.is_null() ? "" : RatioHtml(NumberOf(ratio))},
                     {"Minimal case", code(TextOf(Field(minimal, "description")))}});
  const std::string replay = TextOf(Field(minimal, "replay"));
  if (!replay.empty()) {
    html += "<p class=\"note\">Replay the minimal case:</p>\n" + CodeBlockHtml(replay);
  }
  const std::string reproducer = TextOf(Field(finding, "reproducer"));
  if (!reproducer.empty()) html += "<p class=\"note\">Reproduce:</p>\n" + CodeBlockHtml(reproducer);
  return html + "</div>\n";
}

std::string FindingsHtml(const Entry& audit) {
  const Json& findings = Items(*audit.record, "findings");
  if (findings.empty()) return "";
  std::string html = "<h4>Findings</h4>\n";
  const std::size_t shown = std::min(findings.size(), kMostFindings);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i == kOpenFindings) {
      html += fmt::format("<details><summary>{} more</summary>\n",
                          Counted(static_cast<std::int64_t>(shown - i), "finding", "findings"));
    }
    html += FindingHtml(findings[i], fmt::format("{}:finding-{}", audit.id, i + 1));
  }
  if (shown > kOpenFindings) html += "</details>\n";
  if (shown < findings.size()) {
    html +=
        ParagraphHtml(fmt::format("The first {} of {} findings are shown; report.json holds all.",
                                  shown, findings.size()),
                      "note");
  }
  return html;
}

std::string ErrorsHtml(const Json& audit) {
  const std::vector<CaseFamily> families = CaseFamilies(Items(audit, "case_results"));
  if (families.empty()) return "";
  HtmlTable table{"Worst errors by suite and case family, largest error / bound first",
                  {{"Case family"},
                   {"Suite"},
                   {"Tensor"},
                   {"Error /&nbsp;bound", true},
                   {"Error in&nbsp;ULP", true},
                   {"Error /&nbsp;(u\u00B7\u03A3p|v|)", true},
                   {"Not correctly rounded", true},
                   {"Elements", true},
                   {"Cases", true},
                   {"Largest logit spread", true},
                   {"Smallest entropy", true}},
                  {}};
  for (const CaseFamily& family : families) {
    const auto text = [](const std::string& name) {
      return EscapeHtml(name.empty() ? kDash : std::string_view(name));
    };
    table.rows.push_back(
        {text(family.family), text(family.suite), "<code>" + text(family.tensor) + "</code>",
         RatioHtml(family.max_bound_ratio), NumberOrDash(family.max_ulp),
         NumberOrDash(family.max_scaled_error), FormatCount(family.not_correctly_rounded),
         FormatCount(family.elements), FormatCount(family.cases),
         NumberOrDash(family.max_logit_spread), NumberOrDash(family.min_entropy)});
  }
  return "<h4>Errors</h4>\n" + ToHtml(table);
}

// The names of the cases with this status, behind a line that counts them.
std::string CasesHtml(const Json& audit, std::string_view status, std::string_view what) {
  std::vector<std::string> names;
  for (const Json& result : Items(audit, "case_results")) {
    if (TextOf(Field(result, "status")) == status) names.push_back(TextOr(result, "case"));
  }
  if (names.empty()) return "";
  std::string html = fmt::format("<details><summary>{} {}</summary>\n<ul>\n",
                                 Counted(static_cast<std::int64_t>(names.size()), "case", "cases"),
                                 EscapeHtml(what));
  const std::size_t shown = std::min(names.size(), kMostNamedCases);
  for (std::size_t i = 0; i < shown; ++i) {
    html += "<li><code>" + EscapeHtml(names[i]) + "</code></li>\n";
  }
  html += "</ul>\n";
  if (shown < names.size()) {
    html +=
        ParagraphHtml(fmt::format("and {} more, see report.json", names.size() - shown), "note");
  }
  return html + "</details>\n";
}

std::string LawsHtml(const Entry& audit) {
  const Json& laws = Items(*audit.record, "laws");
  if (laws.empty()) return "";
  HtmlTable table{"Laws and the draws that broke them",
                  {{"Law"}, {"What it says"}, {"Draws", true}, {"Violations", true}},
                  {}};
  for (const Json& law : laws) {
    std::string violations = EscapeHtml(TextOr(law, "violations"));
    if (CountOf(law, "violations") > 0) {
      violations = "<strong class=\"over\">" + violations + "</strong>";
    }
    table.rows.push_back({EscapeHtml(TextOr(law, "law")), EscapeHtml(TextOr(law, "description")),
                          EscapeHtml(TextOr(law, "draws")), violations});
  }
  return fmt::format("<h4 id=\"{}:laws\">Laws</h4>\n", audit.id) + ToHtml(table);
}

std::string SuitesText(const Json& audit) {
  std::string text;
  for (const Json& suite : Items(audit, "suites")) {
    text += (text.empty() ? "" : ", ") + TextOf(suite);
  }
  return text;
}

std::string CasesText(const Json& audit) {
  const Json& cases = Field(audit, "cases");
  if (!cases.is_object()) return "";
  return fmt::format("{} run: {} passed, {} failed, {} unsupported, {} crashed",
                     TextOr(cases, "run"), TextOr(cases, "passed"), TextOr(cases, "failed"),
                     TextOr(cases, "unsupported"), TextOr(cases, "crashed"));
}

}  // namespace

std::string AuditHtml(const Entry& entry) {
  const Json& audit = *entry.record;
  const Json& implementation = Field(audit, "implementation");
  std::string html = fmt::format(
      "<article class=\"card\" aria-labelledby=\"{0}\">\n"
      "<div class=\"title\"><h3 id=\"{0}\">{1}</h3>{2}</div>\n",
      entry.id, EscapeHtml(AuditName(audit)), BadgeHtml(AuditVerdict(audit)));
  html += ParagraphHtml(TextOf(Field(implementation, "description")));
  html += FactsHtml({{"Version", EscapeHtml(TextOr(implementation, "version"))},
                     {"Target", EscapeHtml(TextOr(implementation, "target"))},
                     {"Suites", EscapeHtml(SuitesText(audit))},
                     {"Cases", EscapeHtml(CasesText(audit))}});
  html += FindingsHtml(entry);
  html += ErrorsHtml(audit);
  html += CasesHtml(audit, "failed", "failed");
  html += CasesHtml(audit, "crashed", "crashed or hung");
  html += CasesHtml(audit, "unsupported", "unsupported");
  html += LawsHtml(entry);
  return html + ListHtml(Items(audit, "remarks"), "Remarks") + "</article>\n";
}

}  // namespace attest::reports
