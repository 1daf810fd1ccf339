// SPDX-License-Identifier: Apache-2.0
#include "reports/plot_data.h"

#include <algorithm>
#include <string>
#include <utility>

namespace attest::reports {
namespace {

std::string AxisLabel(const Json& plot, const char* axis) {
  const std::string text = TextOf(Field(Field(plot, axis), "label"));
  return text.empty() ? std::string(axis) : text;
}

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

// One column per series, or one row per point.
Json LineTable(const Json& plot) {
  const Json& all_series = Items(plot, "series");
  Json columns = Json::array();
  Json rows = Json::array();
  if (!all_series.empty() && HaveSameAbscissas(all_series)) {
    columns.push_back(AxisLabel(plot, "x"));
    for (const Json& series : all_series) columns.push_back(TextOr(series, "name"));
    const std::size_t count = Items(all_series[0], "points").size();
    for (std::size_t i = 0; i < std::min(count, kMostDataRows); ++i) {
      Json row = Json::array({Items(all_series[0], "points")[i][0]});
      for (const Json& series : all_series) row.push_back(Items(series, "points")[i][1]);
      rows.push_back(std::move(row));
    }
  } else {
    columns = Json::array({"Series", AxisLabel(plot, "x"), AxisLabel(plot, "y")});
    for (const Json& series : all_series) {
      for (const Json& point : Items(series, "points")) {
        if (rows.size() == kMostDataRows) break;
        const bool pair = point.is_array() && point.size() == 2;
        rows.push_back(Json::array(
            {TextOr(series, "name"), pair ? point[0] : Json(), pair ? point[1] : Json()}));
      }
    }
  }
  return Json{{"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

// One row per value of y, from the top of the picture down.
Json GridTable(const Json& plot) {
  Json columns = Json::array({AxisLabel(plot, "y") + " \\ " + AxisLabel(plot, "x")});
  for (const Json& value : Items(Field(plot, "x"), "values")) {
    columns.push_back(ExactTextOf(value));
  }
  const Json& names = Items(Field(plot, "y"), "values");
  const Json& all = Items(Field(plot, "z"), "values");
  Json rows = Json::array();
  for (std::size_t y = names.size(); y-- > 0 && rows.size() < kMostDataRows;) {
    Json row = Json::array({names[y]});
    for (std::size_t x = 0; x + 1 < columns.size(); ++x) {
      const bool held = y < all.size() && all[y].is_array() && x < all[y].size();
      row.push_back(held ? all[y][x] : Json());
    }
    rows.push_back(std::move(row));
  }
  return Json{{"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

}  // namespace

Json DataTable(const Json& plot) {
  Json table = TextOf(Field(plot, "kind")) == "heatmap" ? GridTable(plot) : LineTable(plot);
  table["title"] = "Data of the plot: " + TextOr(plot, "title");
  return table;
}

}  // namespace attest::reports
