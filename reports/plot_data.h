// SPDX-License-Identifier: Apache-2.0
// The numbers of a plot as a table.
#pragma once

#include "reports/fields.h"

namespace attest::reports {

// More rows than this of a plot's data are left to report.json.
inline constexpr std::size_t kMostDataRows = 400;

// A record's table with the data of a plot: of lines one column per series if all have the same
// abscissas, else one row per point; of a heat map the grid.
Json DataTable(const Json& plot);

}  // namespace attest::reports
