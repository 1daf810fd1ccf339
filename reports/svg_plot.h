// SPDX-License-Identifier: Apache-2.0
// Line plots as inline SVG, told apart by colour, marker and dash.
#pragma once

#include <string>
#include <vector>

#include "reports/fields.h"

namespace attest::reports {

// More series than this are not drawn.
inline constexpr std::size_t kMostSeries = 8;

struct Drawing {
  std::string svg;                 // an <svg> element; empty if there is nothing to draw
  std::string legend;              // a <ul> that names the series in the order of drawing
  std::vector<std::string> notes;  // plain text: what was left out and why
};

// Draws a record's plot {"title", "x", "y", "series"}. Points that are not finite, or not positive
// on a logarithmic axis, are left out, interrupt their line and are counted in a note. `id` makes
// the ids inside the SVG unique. Colours come from the page's style sheet.
Drawing DrawPlot(const Json& plot, const std::string& id);

}  // namespace attest::reports
