// SPDX-License-Identifier: Apache-2.0
#include "experiments/tensor_metrics.h"

#include <algorithm>
#include <cmath>

#include "experiments/emulated_attention.h"

namespace attest {

TensorMetrics MetricsOf(const std::vector<double>& got, const std::vector<double>& exact,
                        std::size_t columns, std::span<const double> magnitude) {
  TensorMetrics m;
  double dot = 0.0, got_squares = 0.0, squares = 0.0, differences = 0.0, sizes = 0.0;
  for (std::size_t row = 0; row < got.size(); row += columns) {
    double row_error = 0.0;
    double row_size = 0.0;
    for (std::size_t i = row; i < row + columns; ++i) {
      const double error = std::fabs(got[i] - exact[i]);
      dot += got[i] * exact[i];
      got_squares += got[i] * got[i];
      row_size += exact[i] * exact[i];
      row_error += error * error;
      differences += error;
      sizes += std::fabs(exact[i]);
      if (!magnitude.empty()) m.worst_element = std::max(m.worst_element, error / magnitude[i]);
    }
    squares += row_size;
    m.worst_row = std::max(m.worst_row, std::sqrt(row_error / row_size));
  }
  m.cosine = dot / std::sqrt(got_squares * squares);
  m.relative_l1 = differences / sizes;
  m.rmse = DeviationOf(got, exact).rmse;
  return m;
}

}  // namespace attest
