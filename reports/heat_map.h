// SPDX-License-Identifier: Apache-2.0
// Heat maps as inline SVG: a grid of cells, shaded by value, with the numbers written in them.
#pragma once

#include <string>

#include "reports/svg_plot.h"

namespace attest::reports {

// Draws a record's plot {"kind": "heatmap", "title", "x": {"label", "values"}, "y": {"label",
// "values"}, "z": {"label", "scale", "values"}} where z's values are a row of numbers for each
// value of y, drawn from the bottom up. A cell whose value is not finite, or not positive on a
// logarithmic scale, is left blank and counted in a note.
Drawing DrawHeatMap(const Json& plot, const std::string& id);

}  // namespace attest::reports
