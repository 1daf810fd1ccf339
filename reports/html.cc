// SPDX-License-Identifier: Apache-2.0
// The page from its head to its foot; the cards are made elsewhere.
#include "reports/html.h"

#include <fmt/format.h>

#include "reports/html_parts.h"
#include "reports/style.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

constexpr std::size_t kMostPointers = 6;

// How a reader who knows rounding errors should read the figures.
constexpr std::string_view kReading = R"html(<div class="card">
<dl class="facts">
<div><dt>What is compared</dt><dd>Every element of an output with the value that attention has in exact
arithmetic, known from a certified arbitrary-precision computation.</dd></div>
<div><dt>Error / bound</dt><dd>The error divided by a bound that was derived for the arithmetic which
the implementation declares. At most 1: the element conforms. Above 1: a violation, however small the
error may be in absolute terms. A value near 1 is no defect; it says that the bound is sharp
there.</dd></div>
<div><dt>ULP</dt><dd>|got &minus; exact| / ulp(exact), with the spacing of the output&rsquo;s format at
the exact value. A correctly rounded result has at most 0.5. For subnormal values one ULP is
2<sup>emin&minus;p+1</sup>, the spacing of the subnormals.</dd></div>
<div><dt>Near zero</dt><dd>A ULP count means nothing where an output is close to zero because large
terms cancel: the spacing shrinks and the error does not. There, read the scaled error.</dd></div>
<div><dt>Scaled error</dt><dd>The error divided by u&middot;&Sigma;p|v|, the unit roundoff times the sum
of weights times magnitudes of the values. It does not grow when terms cancel, so it can be compared
between elements and between implementations. Given for the output of attention only.</dd></div>
<div><dt>Not correctly rounded</dt><dd>How many elements differ from the exact value rounded once. This
measures quality; conformance does not require zero.</dd></div>
<div><dt>Unsupported</dt><dd>The implementation declined the case. That is no finding, and nothing is
known about its numerics there.</dd></div>
<div><dt>Laws</dt><dd>Relations between two runs that hold without knowing the exact result, such as
invariance under a permutation of the keys; counted are the draws that break them.</dd></div>
<div><dt>Numbers</dt><dd>Four significant digits. Tables of experiments exist in full as CSV, all
records in <a href="report.json">report.json</a>.</dd></div>
</dl></div>
)html";

std::string_view ToneClass(Tone tone) {
  if (tone == Tone::kGood) return "good";
  if (tone == Tone::kCaution) return "caution";
  return tone == Tone::kBad ? "bad" : "neutral";
}

// Attest's version, as the first record that has one tells it.
std::string Version(const Report& report) {
  for (const std::vector<Entry>* entries : {&report.audits, &report.experiments}) {
    for (const Entry& entry : *entries) {
      const Json& manifest = Field(*entry.record, "manifest");
      const std::string version = TextOf(Field(manifest, "attest_version"));
      if (version.empty()) continue;
      const std::string git = TextOf(Field(manifest, "git"));
      return "Attest " + version + (git.empty() ? "" : ", " + git);
    }
  }
  return "";
}

std::string Navigation(const Report& report) {
  std::string html = "<nav aria-label=\"Sections\"><ul><li><a href=\"#summary\">Summary</a></li>";
  const auto add = [&](const char* id, const char* title) {
    html += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, title);
  };
  if (!report.experiments.empty()) add("experiments", "Experiments");
  if (!report.audits.empty()) add("implementations", "Implementations");
  add("reading", "How to read");
  add("manifest", "Manifest");
  add("reproduce", "Reproduce");
  return html + "</ul></nav>\n";
}

std::string AuditsTable(const Report& report) {
  HtmlTable table{"Implementations",
                  {{"Implementation"},
                   {"Target"},
                   {"Verdict"},
                   {"Passed / run", true},
                   {"Unsupported", true},
                   {"Findings", true},
                   {"Largest error / bound", true}},
                  {}};
  for (const Entry& audit : report.audits) {
    const Json& cases = Field(*audit.record, "cases");
    const std::optional<double> worst = WorstRatioOf(*audit.record).ratio;
    std::string ratio(kDash);
    if (worst) {
      ratio = EscapeHtml(FormatRatio(*worst));
      if (!(*worst <= 1)) ratio = "<strong class=\"over\">" + ratio + "</strong>";
    }
    table.rows.push_back(
        {fmt::format("<a href=\"#{}\">{}</a>", audit.id, EscapeHtml(AuditName(*audit.record))),
         EscapeHtml(TextOr(Field(*audit.record, "implementation"), "target")),
         BadgeHtml(AuditVerdict(*audit.record)),
         EscapeHtml(TextOr(cases, "passed") + " / " + TextOr(cases, "run")),
         EscapeHtml(TextOr(cases, "unsupported")), FormatCount(FindingCount(*audit.record)),
         ratio});
  }
  return ToHtml(table);
}

std::string ExperimentsTable(const Report& report) {
  HtmlTable table{"Experiments", {{"Claim tested"}, {"Verdict"}, {"Result"}}, {}};
  for (const Entry& experiment : report.experiments) {
    table.rows.push_back({fmt::format("<a href=\"#{}\">{}</a>", experiment.id,
                                      EscapeHtml(ExperimentTitle(*experiment.record))),
                          BadgeHtml(ExperimentVerdict(*experiment.record)),
                          EscapeHtml(TextOr(*experiment.record, "summary"))});
  }
  return ToHtml(table);
}

std::string Summary(const Report& report) {
  const Verdict headline = Headline(report);
  std::string html = fmt::format(
      "<section id=\"summary\" aria-labelledby=\"summary:title\">\n"
      "<div class=\"headline {}\"><h2 id=\"summary:title\">{}</h2>\n",
      ToneClass(headline.tone), EscapeHtml(headline.text));
  for (const std::string& sentence : SummarySentences(report)) html += ParagraphHtml(sentence);
  html += "</div>\n";
  if (!report.audits.empty()) {
    html +=
        "<p>Each element of each output was compared with the exact value, from a certified "
        "arbitrary-precision computation. It conforms when its error stays within a bound derived "
        "for the arithmetic which the implementation declares; no tolerance was tuned.</p>\n";
  }
  const std::vector<Pointer> pointers = LookAtFirst(report, kMostPointers);
  if (!pointers.empty()) {
    html += "<h3>What to look at first</h3>\n<ol>\n";
    for (const Pointer& pointer : pointers) {
      html += fmt::format("<li><a href=\"#{}\">{}</a>: {}</li>\n", pointer.id,
                          EscapeHtml(pointer.subject), EscapeHtml(pointer.text));
    }
    html += "</ol>\n";
  }
  if (!report.audits.empty()) html += AuditsTable(report);
  if (!report.experiments.empty()) html += ExperimentsTable(report);
  return html + "</section>\n";
}

std::string Section(const char* id, const char* title, const std::string& content) {
  return fmt::format("<section aria-labelledby=\"{0}\">\n<h2 id=\"{0}\">{1}</h2>\n{2}</section>\n",
                     id, title, content);
}

}  // namespace

std::string HtmlOf(const Report& report) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{} \u2013 Attest report</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the "
      "report</a>\n"
      "<header><div class=\"wrap\">\n<h1>Numerics of attention: report</h1>\n{}{}</div></header>\n"
      "<main id=\"main\">\n",
      EscapeHtml(Headline(report).text), StyleSheet(), ParagraphHtml(Version(report), "meta"),
      Navigation(report));
  html += Summary(report);
  if (!report.experiments.empty()) {
    std::string cards;
    for (const Entry& experiment : report.experiments) cards += ExperimentHtml(experiment);
    html += Section("experiments", "Experiments", cards);
  }
  if (!report.audits.empty()) {
    std::string cards;
    for (const Entry& audit : report.audits) cards += AuditHtml(audit);
    html += Section("implementations", "Implementations", cards);
  }
  html += Section("reading", "How to read the figures", std::string(kReading));
  html += Section("manifest", "Manifest", ManifestHtml(report));
  html += Section("reproduce", "Reproduce this page", ReproduceHtml(report));
  return html +
         "</main>\n<footer><div class=\"wrap meta\">This page holds all of its content: no script, "
         "no request to any server. The same records give the same bytes.</div></footer>\n"
         "</body>\n</html>\n";
}

}  // namespace attest::reports
