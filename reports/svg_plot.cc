// SPDX-License-Identifier: Apache-2.0
// Draws axes, lines, markers and legend.
#include "reports/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "reports/axis.h"
#include "reports/text.h"

namespace attest::reports {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 330;
constexpr double kLeft = 70;
constexpr double kRight = 18;
constexpr double kTop = 34;
constexpr double kBottom = 58;
// Lines with more points than this have markers on some points only.
constexpr std::size_t kMostMarkers = 40;

// Drawn around the origin; circle, square, triangle, diamond, triangle down, plus, cross, bar.
constexpr std::array<const char*, kMostSeries> kMarkers = {
    "M-4,0A4,4 0 1 0 4,0A4,4 0 1 0 -4,0Z",
    "M-3.6,-3.6H3.6V3.6H-3.6Z",
    "M0,-4.8L4.6,3.4H-4.6Z",
    "M0,-5.2L5.2,0L0,5.2L-5.2,0Z",
    "M0,4.8L4.6,-3.4H-4.6Z",
    "M-1.4,-4.6H1.4V-1.4H4.6V1.4H1.4V4.6H-1.4V1.4H-4.6V-1.4H-1.4Z",
    "M-4.4,-2.4L-2.4,-4.4L0,-2L2.4,-4.4L4.4,-2.4L2,0L4.4,2.4L2.4,4.4L0,2L-2.4,4.4L-4.4,2.4L-2,0Z",
    "M-5,-1.8H5V1.8H-5Z"};

struct Point {
  double x;
  double y;
  bool joined;  // with the point before it
};

struct Series {
  std::string name;
  std::vector<Point> points;
};

struct AxisOptions {
  std::string label;
  Scale scale;
};

AxisOptions OptionsOf(const Json& axis) {
  const bool log = TextOf(Field(axis, "scale")) == "log";
  return {TextOf(Field(axis, "label")), log ? Scale::kLog : Scale::kLinear};
}

std::string Described(const AxisOptions& axis, const std::string& name) {
  return (axis.label.empty() ? name : axis.label) +
         (axis.scale == Scale::kLog ? " (logarithmic)" : "");
}

double ToPixelX(const Axis& axis, double value) {
  return kLeft + axis.Position(value) * (kWidth - kLeft - kRight);
}

double ToPixelY(const Axis& axis, double value) {
  return kHeight - kBottom - axis.Position(value) * (kHeight - kTop - kBottom);
}

std::optional<Point> ToPoint(const Json& pair, Scale x_scale, Scale y_scale) {
  if (!pair.is_array() || pair.size() != 2) return std::nullopt;
  const std::optional<double> x = NumberOf(pair[0]);
  const std::optional<double> y = NumberOf(pair[1]);
  if (!x || !y || !Axis::Accepts(*x, x_scale) || !Axis::Accepts(*y, y_scale)) return std::nullopt;
  return Point{*x, *y, true};
}

std::string TickLabel(const Tick& tick) {
  if (tick.exponent.empty()) return tick.label;
  return fmt::format("{}<tspan class=\"power\" dy=\"-0.45em\">{}</tspan>", tick.label,
                     tick.exponent);
}

void DrawAxes(const Axis& x_axis, const Axis& y_axis, std::string& svg) {
  const double right = kWidth - kRight;
  const double bottom = kHeight - kBottom;
  for (const Tick& tick : y_axis.ticks()) {
    const double y = bottom - tick.position * (bottom - kTop);
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f},{:.1f}H{:.1f}\"/>"
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" dy=\"0.35em\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft, y, right, kLeft - 8, y, TickLabel(tick));
  }
  std::size_t number = 0;
  for (const Tick& tick : x_axis.ticks()) {
    const double x = kLeft + tick.position * (right - kLeft);
    // Every second label gives way on narrow screens, where letters are larger.
    const bool optional = x_axis.ticks().size() > 4 && number++ % 2 == 1;
    svg += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f},{:.1f}V{:.1f}\"/>"
        "<text class=\"tick{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        x, kTop, bottom + 5, optional ? " optional" : "", x, bottom + 21, TickLabel(tick));
  }
  svg += fmt::format("<path class=\"frame\" d=\"M{0:.1f},{1:.1f}V{2:.1f}H{3:.1f}\"/>\n", kLeft,
                     kTop, bottom, right);
}

void DrawSeries(const Series& series, std::size_t style, const Axis& x_axis, const Axis& y_axis,
                const std::pair<std::string, std::string>& axis_names, std::string& svg) {
  std::string path;
  for (const Point& point : series.points) {
    path += fmt::format("{}{:.1f},{:.1f}", point.joined ? "L" : "M", ToPixelX(x_axis, point.x),
                        ToPixelY(y_axis, point.y));
  }
  svg += fmt::format("<g class=\"s{}\"><path class=\"line\" d=\"{}\"/>\n", style, path);
  const std::size_t stride = (series.points.size() + kMostMarkers - 1) / kMostMarkers;
  for (std::size_t i = 0; i < series.points.size(); i += stride) {
    const Point& point = series.points[i];
    svg += fmt::format(
        "<path class=\"mark\" transform=\"translate({:.1f} {:.1f})\" d=\"{}\">"
        "<title>{}: {} = {}, {} = {}</title></path>\n",
        ToPixelX(x_axis, point.x), ToPixelY(y_axis, point.y), kMarkers[style],
        EscapeHtml(series.name), EscapeHtml(axis_names.first), FormatNumber(point.x),
        EscapeHtml(axis_names.second), FormatNumber(point.y));
  }
  svg += "</g>\n";
}

std::string LegendItem(const Series& series, std::size_t style) {
  return fmt::format(
      "<li><svg class=\"swatch s{}\" viewBox=\"0 0 40 14\" width=\"40\" height=\"14\" "
      "aria-hidden=\"true\" focusable=\"false\"><path class=\"line\" d=\"M1,7H39\"/>"
      "<path class=\"mark\" transform=\"translate(20 7)\" d=\"{}\"/></svg> {}</li>",
      style, kMarkers[style], EscapeHtml(series.name));
}

}  // namespace

Drawing DrawPlot(const Json& plot, const std::string& id) {
  Drawing drawing;
  const AxisOptions x_options = OptionsOf(Field(plot, "x"));
  const AxisOptions y_options = OptionsOf(Field(plot, "y"));
  const Json& all_series = Items(plot, "series");
  if (all_series.size() > kMostSeries) {
    drawing.notes.push_back(
        fmt::format("The first {} of {} series are drawn; the data below holds all.", kMostSeries,
                    all_series.size()));
  }

  std::vector<Series> drawn;
  std::vector<double> xs;
  std::vector<double> ys;
  std::string names;
  std::int64_t left_out = 0;
  for (std::size_t i = 0; i < std::min(all_series.size(), kMostSeries); ++i) {
    Series series{TextOf(Field(all_series[i], "name")), {}};
    if (series.name.empty()) series.name = fmt::format("series {}", i + 1);
    bool joined = false;
    for (const Json& pair : Items(all_series[i], "points")) {
      std::optional<Point> point = ToPoint(pair, x_options.scale, y_options.scale);
      if (point) {
        point->joined = joined;
        series.points.push_back(*point);
        xs.push_back(point->x);
        ys.push_back(point->y);
      } else {
        ++left_out;
      }
      joined = point.has_value();
    }
    names += (i == 0 ? "" : ", ") + series.name;
    drawn.push_back(std::move(series));
  }
  if (left_out > 0) {
    const bool log = x_options.scale == Scale::kLog || y_options.scale == Scale::kLog;
    drawing.notes.push_back(fmt::format("{} not drawn: not finite{}; the data below holds all.",
                                        Counted(left_out, "point is", "points are"),
                                        log ? ", or not positive on a logarithmic axis" : ""));
  }
  if (xs.empty()) {
    drawing.notes.push_back("There is no point to draw.");
    return drawing;
  }

  const Axis x_axis = Axis::Fit(xs, x_options.scale, false);
  const Axis y_axis = Axis::Fit(ys, y_options.scale, true);
  const auto [x_low, x_high] = std::minmax_element(xs.begin(), xs.end());
  const auto [y_low, y_high] = std::minmax_element(ys.begin(), ys.end());
  const std::string x_name = Described(x_options, "x");
  const std::string y_name = Described(y_options, "y");
  drawing.svg = fmt::format(
      "<svg class=\"plot\" role=\"img\" viewBox=\"0 0 {} {}\" aria-labelledby=\"{}-title {}-desc\" "
      "focusable=\"false\">\n<title id=\"{}-title\">{}</title>\n<desc id=\"{}-desc\">"
      "Line plot. Horizontal axis: {}, from {} to {}. Vertical axis: {}, from {} to {}. "
      "Series: {}.</desc>\n",
      kWidth, kHeight, id, id, id, EscapeHtml(TextOr(plot, "title")), id, EscapeHtml(x_name),
      FormatNumber(*x_low), FormatNumber(*x_high), EscapeHtml(y_name), FormatNumber(*y_low),
      FormatNumber(*y_high), EscapeHtml(names));
  DrawAxes(x_axis, y_axis, drawing.svg);
  drawing.svg += fmt::format(
      "<text class=\"label\" x=\"4\" y=\"18\">{}</text>\n"
      "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
      EscapeHtml(Shorten(y_options.label, 60)), kWidth - kRight, kHeight - 10,
      EscapeHtml(Shorten(x_options.label, 60)));
  drawing.legend = "<ul class=\"legend\">";
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    DrawSeries(drawn[i], i, x_axis, y_axis, {x_options.label, y_options.label}, drawing.svg);
    drawing.legend += LegendItem(drawn[i], i);
  }
  drawing.svg += "</svg>\n";
  drawing.legend += "</ul>\n";
  return drawing;
}

}  // namespace attest::reports
