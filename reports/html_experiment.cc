// SPDX-License-Identifier: Apache-2.0
// The article of one experiment: claim, verdict, plots, tables.
#include <fmt/format.h>

#include "reports/csv.h"
#include "reports/html.h"
#include "reports/html_parts.h"
#include "reports/svg_plot.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

// More rows than this of a plot's data are left to report.json.
constexpr std::size_t kMostDataRows = 400;

// Whether all series have the same number of points with the same abscissas.
bool HaveSameAbscissas(const Json& all_series) {
  const Json& first = Items(all_series[0], "points");
  for (const Json& series : all_series) {
    const Json& points = Items(series, "points");
    if (points.size() != first.size()) return false;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!points[i].is_array() || points[i].size() != 2 || !first[i].is_array() ||
          first[i].size() != 2 || points[i][0] != first[i][0]) {
        return false;
      }
    }
  }
  return true;
}

// A plot's data as a record's table: one column per series, or one row per point.
Json DataTable(const Json& plot) {
  const Json& all_series = Items(plot, "series");
  const auto label = [&](const char* axis) {
    const std::string text = TextOf(Field(Field(plot, axis), "label"));
    return text.empty() ? std::string(axis) : text;
  };
  Json columns = Json::array();
  Json rows = Json::array();
  if (!all_series.empty() && HaveSameAbscissas(all_series)) {
    columns.push_back(label("x"));
    for (const Json& series : all_series) columns.push_back(TextOr(series, "name"));
    const std::size_t count = Items(all_series[0], "points").size();
    for (std::size_t i = 0; i < std::min(count, kMostDataRows); ++i) {
      Json row = Json::array({Items(all_series[0], "points")[i][0]});
      for (const Json& series : all_series) row.push_back(Items(series, "points")[i][1]);
      rows.push_back(std::move(row));
    }
  } else {
    columns = Json::array({"Series", label("x"), label("y")});
    for (const Json& series : all_series) {
      for (const Json& point : Items(series, "points")) {
        if (rows.size() == kMostDataRows) break;
        const bool pair = point.is_array() && point.size() == 2;
        rows.push_back(Json::array(
            {TextOr(series, "name"), pair ? point[0] : Json(), pair ? point[1] : Json()}));
      }
    }
  }
  return Json{{"title", "Data of the plot: " + TextOr(plot, "title")},
              {"columns", std::move(columns)},
              {"rows", std::move(rows)}};
}

std::string PlotHtml(const Json& plot, const std::string& id) {
  const Drawing drawing = DrawPlot(plot, id);
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
