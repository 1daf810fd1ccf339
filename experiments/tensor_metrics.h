// SPDX-License-Identifier: Apache-2.0
// Metrics of a flattened output, as papers on quantised attention give them, and of its worst row.
#pragma once

#include <span>
#include <vector>

namespace attest {

struct TensorMetrics {
  double cosine = 0.0;
  double relative_l1 = 0.0;  // sum |o' - o| / sum |o|
  double rmse = 0.0;
  double worst_row = 0.0;      // largest |o' - o| / |o| of a row, Euclidean
  double worst_element = 0.0;  // largest |o' - o| / magnitude of an element
};

// Of rows of `columns` elements; `magnitude` (sum p|v|) may be empty, then there is no
// worst_element.
TensorMetrics MetricsOf(const std::vector<double>& got, const std::vector<double>& exact,
                        std::size_t columns, std::span<const double> magnitude = {});

}  // namespace attest
