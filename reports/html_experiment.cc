// SPDX-License-Identifier: Apache-2.0
// The article of one experiment: claim, verdict, plots, tables.
#include <fmt/format.h>

#include "reports/csv.h"
#include "reports/heat_map.h"
#include "reports/html.h"
#include "reports/html_parts.h"
#include "reports/plot_data.h"
#include "reports/svg_plot.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

std::string PlotHtml(const Json& plot, const std::string& id) {
  const bool heat_map = TextOf(Field(plot, "kind")) == "heatmap";
  const Drawing drawing = heat_map ? DrawHeatMap(plot, id) : DrawPlot(plot, id);
  const std::string note = TextOf(Field(plot, "note"));
  std::string html = fmt::format(
      "<figure>\n<figcaption>{}{}</figcaption>\n{}{}", EscapeHtml(TextOr(plot, "title")),
      note.empty() ? "" : "<small>" + EscapeHtml(note) + "</small>", drawing.svg, drawing.legend);
  for (const std::string& text : drawing.notes) html += ParagraphHtml(text, "note");
  const Json data = DataTable(plot);
  html += "<details><summary>Data of this plot</summary>\n" + RecordTableHtml(data, "Data");
  if (data["rows"].size() == kMostDataRows) {
    html += ParagraphHtml(
        fmt::format("At most {} rows are shown; report.json holds all.", kMostDataRows), "note");
  }
  return html + "</details>\n</figure>\n";
}

std::string TableHtml(const Json& table, const std::string& id, std::size_t number) {
  const std::string path = CsvPath(id, number);
  std::string html = RecordTableHtml(table, fmt::format("Table {}", number));
  html += ParagraphHtml(TextOf(Field(table, "note")), "note");
  return html + fmt::format("<p class=\"note\">All digits: <a href=\"{0}\">{0}</a></p>\n", path);
}

}  // namespace

std::string ExperimentHtml(const Entry& entry) {
  const Json& experiment = *entry.record;
  std::string html = fmt::format(
      "<article class=\"card\" aria-labelledby=\"{0}\">\n"
      "<div class=\"title\"><h3 id=\"{0}\">{1}</h3>{2}</div>\n",
      entry.id, EscapeHtml(ExperimentTitle(experiment)), BadgeHtml(ExperimentVerdict(experiment)));
  html += ParagraphHtml(TextOr(experiment, "summary"));
  html += FactsHtml({{"Question", EscapeHtml(TextOf(Field(experiment, "question")))},
                     {"Claim", EscapeHtml(TextOr(experiment, "claim"))},
                     {"Source", EscapeHtml(TextOr(experiment, "source"))},
                     {"Rule of the verdict", EscapeHtml(TextOr(experiment, "rule"))}});
  std::size_t number = 0;
  for (const Json& plot : Items(experiment, "plots")) {
    html += PlotHtml(plot, fmt::format("{}:plot-{}", entry.id, ++number));
  }
  number = 0;
  for (const Json& table : Items(experiment, "tables")) {
    html += TableHtml(table, entry.id, ++number);
  }
  return html + ListHtml(Items(experiment, "notes"), "Notes") + "</article>\n";
}

}  // namespace attest::reports
