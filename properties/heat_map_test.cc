// SPDX-License-Identifier: Apache-2.0
// Heat maps of the report: which cell gets which shade, what is left out, what the table says.
#include "reports/heat_map.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reports/plot_data.h"

namespace attest::reports {
namespace {

Json Plot() {
  return Json::parse(R"({"kind": "heatmap", "title": "T",
    "x": {"label": "D_k", "values": [4, 16, 64]}, "y": {"label": "n", "values": ["few", "many"]},
    "z": {"label": "weight", "values": [[0.0, 0.25, 0.5], [0.75, 1.0, null]]}})");
}

// The values of attribute `name` of all cells inside the drawing, in the order of drawing.
std::vector<double> CellValues(const std::string& svg, const std::string& name) {
  std::vector<double> values;
  for (std::size_t at = svg.find("<rect class=\"cell\""); at != std::string::npos;
       at = svg.find("<rect class=\"cell\"", at + 1)) {
    const std::size_t start = svg.find(" " + name + "=\"", at) + name.size() + 3;
    values.push_back(std::stod(svg.substr(start)));
  }
  return values;
}

TEST(HeatMap, ShadesByValueFromTheBottomUp) {
  const Drawing drawing = DrawHeatMap(Plot(), "p");
  const std::vector<double> shades = CellValues(drawing.svg, "fill-opacity");
  ASSERT_EQ(shades.size(), 5u);
  // Equal steps of the value are equal steps of the shade.
  for (std::size_t i = 2; i < shades.size(); ++i) {
    EXPECT_NEAR(shades[i] - shades[i - 1], shades[1] - shades[0], 0.011) << i;
    EXPECT_GT(shades[i], shades[i - 1]) << i;
  }
  const std::vector<double> x = CellValues(drawing.svg, "x");
  const std::vector<double> y = CellValues(drawing.svg, "y");
  EXPECT_LT(x[0], x[1]);
  EXPECT_EQ(x[0], x[3]);
  EXPECT_GT(y[0], y[3]);  // "few" lies below "many"
  EXPECT_NE(drawing.svg.find("<title>D_k = 16, n = many: weight = 1</title>"), std::string::npos);
  ASSERT_EQ(drawing.notes.size(), 1u);
  EXPECT_EQ(drawing.notes[0], "1 cell is blank: not finite.");
}

TEST(HeatMap, LogarithmicScaleLeavesOutZero) {
  Json plot = Plot();
  plot["z"]["scale"] = "log";
  plot["z"]["values"] = {{1e-6, 1e-3, 1.0}, {0.0, -1.0, "NaN"}};
  const Drawing drawing = DrawHeatMap(plot, "p");
  const std::vector<double> shades = CellValues(drawing.svg, "fill-opacity");
  ASSERT_EQ(shades.size(), 3u);
  EXPECT_NEAR(shades[1], (shades[0] + shades[2]) / 2, 0.011);
  EXPECT_EQ(drawing.notes.at(0),
            "3 cells are blank: not finite, or not positive on a logarithmic scale.");
}

TEST(HeatMap, ToleratesWhatIsMissing) {
  for (const char* text :
       {"{}", R"({"x": {"values": [1]}, "y": {"values": []}})",
        R"({"x": {"values": [1]}, "y": {"values": [1]}, "z": {"values": [[null]]}})",
        R"({"x": 3, "y": {"values": [1, 2]}, "z": {"values": 7}})"}) {
    const Drawing drawing = DrawHeatMap(Json::parse(text), "p");
    EXPECT_EQ(drawing.svg, "") << text;
    EXPECT_EQ(drawing.notes.size(), 1u) << text;
  }
  Json plot = Plot();
  plot["z"]["values"] = {{-1.7e308, 1.7e308}};  // too few rows, too short a row, the whole range
  const Drawing drawing = DrawHeatMap(plot, "p");
  EXPECT_EQ(CellValues(drawing.svg, "fill-opacity").size(), 2u);
  EXPECT_EQ(drawing.svg.find("=\"nan"), std::string::npos);
  EXPECT_EQ(drawing.svg.find("=\"inf"), std::string::npos);
}

TEST(HeatMap, TextStaysText) {
  Json plot = Plot();
  const std::string attack = "<script>\"x";
  plot["title"] = plot["x"]["label"] = plot["y"]["label"] = plot["z"]["label"] = attack;
  plot["y"]["values"] = {attack, attack};
  const Drawing drawing = DrawHeatMap(plot, "p");
  EXPECT_EQ((drawing.svg + drawing.legend).find("<script"), std::string::npos);
  EXPECT_EQ(drawing.svg.find("\"x"), drawing.svg.find("\"x\""));
}

TEST(HeatMap, TableHasTheRowsAsDrawn) {
  const Json table = DataTable(Plot());
  EXPECT_EQ(table["columns"], Json::parse(R"(["n \\ D_k", "4", "16", "64"])"));
  EXPECT_EQ(table["rows"], Json::parse(R"([["many", 0.75, 1.0, null], ["few", 0.0, 0.25, 0.5]])"));
}

}  // namespace
}  // namespace attest::reports
