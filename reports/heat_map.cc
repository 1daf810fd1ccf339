// SPDX-License-Identifier: Apache-2.0
#include "reports/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "reports/axis.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

constexpr double kWidth = 560;
constexpr double kLeft = 70;
constexpr double kRight = 18;
constexpr double kTop = 30;
constexpr double kBottom = 50;
constexpr double kMostCellHeight = 34;
constexpr double kMostHeight = 420;
// Cells narrower than this hold no number, and of their labels only some are written.
constexpr double kNumberWidth = 44;
constexpr double kLabelWidth = 40;
constexpr double kLabelHeight = 15;
// Shades from the weakest to the strongest, as opacity of the ink.
constexpr double kWeakest = 0.06;
constexpr double kStrongest = 0.94;
// Numbers in cells stronger than this take the colour of the card. Between the two colours of
// text there is none at which both are hard to read.
constexpr double kDarkCell = 0.5;

// The values of a grid, and where they lie between the least and the greatest.
class Grid {
 public:
  explicit Grid(const Json& plot)
      : columns_(Labels(Field(plot, "x"))), rows_(Labels(Field(plot, "y"))) {
    const Json& z = Field(plot, "z");
    log_ = TextOf(Field(z, "scale")) == "log";
    const Json& all = Items(z, "values");
    for (std::size_t y = 0; y < rows_.size(); ++y) {
      for (std::size_t x = 0; x < columns_.size(); ++x) {
        const bool held = y < all.size() && all[y].is_array() && x < all[y].size();
        std::optional<double> value = held ? NumberOf(all[y][x]) : std::nullopt;
        if (value && !Axis::Accepts(*value, log_ ? Scale::kLog : Scale::kLinear)) value.reset();
        if (value) {
          low_ = std::min(low_, *value);
          high_ = std::max(high_, *value);
        } else {
          ++blank_;
        }
        values_.push_back(value);
      }
    }
  }

  const std::vector<std::string>& columns() const { return columns_; }
  const std::vector<std::string>& rows() const { return rows_; }
  const std::optional<double>& At(std::size_t x, std::size_t y) const {
    return values_[y * columns_.size() + x];
  }
  std::int64_t blank() const { return blank_; }
  bool empty() const { return blank_ == static_cast<std::int64_t>(values_.size()); }
  bool log() const { return log_; }
  double low() const { return low_; }
  double high() const { return high_; }

  // From 0 to 1; in the middle where all values are the same. Halves keep the range finite.
  double Strength(double value) const {
    const auto coordinate = [&](double v) { return log_ ? std::log(v) : v / 2; };
    const double range = coordinate(high_) - coordinate(low_);
    return range > 0 ? (coordinate(value) - coordinate(low_)) / range : 0.5;
  }

 private:
  static std::vector<std::string> Labels(const Json& axis) {
    std::vector<std::string> labels;
    for (const Json& value : Items(axis, "values")) {
      const std::optional<double> number = NumberOf(value);
      labels.push_back(number ? FormatNumber(*number) : TextOf(value));
    }
    return labels;
  }

  std::vector<std::string> columns_;
  std::vector<std::string> rows_;
  bool log_ = false;
  std::vector<std::optional<double>> values_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  std::int64_t blank_ = 0;
};

double OpacityOf(double strength) { return kWeakest + (kStrongest - kWeakest) * strength; }

struct Layout {
  double cell_width;
  double cell_height;
  double bottom;

  explicit Layout(const Grid& grid)
      : cell_width((kWidth - kLeft - kRight) / static_cast<double>(grid.columns().size())),
        cell_height(
            std::min(kMostCellHeight, kMostHeight / static_cast<double>(grid.rows().size()))),
        bottom(kTop + cell_height * static_cast<double>(grid.rows().size())) {}

  double X(std::size_t column) const { return kLeft + cell_width * static_cast<double>(column); }
  double Y(std::size_t row) const { return bottom - cell_height * static_cast<double>(row + 1); }
};

void DrawCells(const Grid& grid, const Layout& layout, const std::string& x_name,
               const std::string& y_name, const std::string& z_name, std::string& svg) {
  for (std::size_t y = 0; y < grid.rows().size(); ++y) {
    for (std::size_t x = 0; x < grid.columns().size(); ++x) {
      const std::optional<double>& value = grid.At(x, y);
      if (!value) continue;
      const double opacity = OpacityOf(grid.Strength(*value));
      svg += fmt::format(
          "<rect class=\"cell\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "fill-opacity=\"{:.2f}\"><title>{} = {}, {} = {}: {} = {}</title></rect>\n",
          layout.X(x), layout.Y(y), layout.cell_width, layout.cell_height, opacity,
          EscapeHtml(x_name), EscapeHtml(grid.columns()[x]), EscapeHtml(y_name),
          EscapeHtml(grid.rows()[y]), EscapeHtml(z_name), FormatNumber(*value));
      if (layout.cell_width < kNumberWidth || layout.cell_height < kLabelHeight) continue;
      svg += fmt::format(
          "<text class=\"value{}\" x=\"{:.1f}\" y=\"{:.1f}\" dy=\"0.35em\" "
          "text-anchor=\"middle\">{}</text>\n",
          opacity > kDarkCell ? " dark" : "", layout.X(x) + layout.cell_width / 2,
          layout.Y(y) + layout.cell_height / 2, FormatDigits(*value, 2));
    }
  }
}

// Every label, or every second, third ... where cells are small.
void DrawLabels(const Grid& grid, const Layout& layout, std::string& svg) {
  const auto stride = [](double wanted, double cell) {
    return static_cast<std::size_t>(std::ceil(wanted / cell));
  };
  for (std::size_t x = 0; x < grid.columns().size(); x += stride(kLabelWidth, layout.cell_width)) {
    svg += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        layout.X(x) + layout.cell_width / 2, layout.bottom + 18,
        EscapeHtml(Shorten(grid.columns()[x], 16)));
  }
  for (std::size_t y = 0; y < grid.rows().size(); y += stride(kLabelHeight, layout.cell_height)) {
    svg += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" dy=\"0.35em\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft - 8, layout.Y(y) + layout.cell_height / 2, EscapeHtml(Shorten(grid.rows()[y], 10)));
  }
}

// The shades of five strengths, with the values at both ends.
std::string LegendOf(const Grid& grid, const std::string& name) {
  std::string swatches;
  constexpr int kSwatches = 5;
  for (int i = 0; i < kSwatches; ++i) {
    swatches += fmt::format(
        "<rect class=\"cell\" x=\"{}\" y=\"0\" width=\"20\" height=\"14\" "
        "fill-opacity=\"{:.2f}\"/>",
        20 * i, OpacityOf(i / (kSwatches - 1.0)));
  }
  return fmt::format(
      "<ul class=\"legend\"><li>{}{}: {} <svg class=\"swatch\" viewBox=\"0 0 100 14\" "
      "width=\"100\" height=\"14\" aria-hidden=\"true\" focusable=\"false\">{}</svg> "
      "{}</li></ul>\n",
      EscapeHtml(name), grid.log() ? " (logarithmic)" : "", FormatNumber(grid.low()), swatches,
      FormatNumber(grid.high()));
}

}  // namespace

Drawing DrawHeatMap(const Json& plot, const std::string& id) {
  Drawing drawing;
  const Grid grid(plot);
  if (grid.empty()) {
    drawing.notes.push_back("There is no cell to draw.");
    return drawing;
  }
  if (grid.blank() > 0) {
    drawing.notes.push_back(
        fmt::format("{} blank: not finite{}.", Counted(grid.blank(), "cell is", "cells are"),
                    grid.log() ? ", or not positive on a logarithmic scale" : ""));
  }
  const std::string x_name = TextOf(Field(Field(plot, "x"), "label"));
  const std::string y_name = TextOf(Field(Field(plot, "y"), "label"));
  const std::string z_name = TextOf(Field(Field(plot, "z"), "label"));
  const Layout layout(grid);
  const double height = layout.bottom + kBottom;
  drawing.svg = fmt::format(
      "<svg class=\"plot\" role=\"img\" viewBox=\"0 0 {} {:.0f}\" aria-labelledby=\"{}-title "
      "{}-desc\" focusable=\"false\">\n<title id=\"{}-title\">{}</title>\n<desc id=\"{}-desc\">"
      "Heat map. {} to the right, {} upwards; {} from {} to {}.</desc>\n",
      kWidth, height, id, id, id, EscapeHtml(TextOr(plot, "title")), id, EscapeHtml(x_name),
      EscapeHtml(y_name), EscapeHtml(z_name), FormatNumber(grid.low()), FormatNumber(grid.high()));
  DrawCells(grid, layout, x_name, y_name, z_name, drawing.svg);
  DrawLabels(grid, layout, drawing.svg);
  drawing.svg += fmt::format(
      "<text class=\"label\" x=\"4\" y=\"18\">{}</text>\n"
      "<text class=\"label\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n</svg>\n",
      EscapeHtml(Shorten(y_name, 60)), kWidth - kRight, height - 10,
      EscapeHtml(Shorten(x_name, 60)));
  drawing.legend = LegendOf(grid, z_name);
  return drawing;
}

}  // namespace attest::reports
