// SPDX-License-Identifier: Apache-2.0
#include "experiments/row_theorems.h"

#include <algorithm>
#include <cmath>

namespace attest {

double EntropyBound(double radius, std::size_t keys) {
  if (keys < 2) return 0.0;
  const auto n = static_cast<double>(keys);
  const double b = std::exp(-radius * std::sqrt(n / (n - 1.0)));
  return std::log1p((n - 1.0) * b) + radius * std::sqrt(n * (n - 1.0)) * b / (1.0 + (n - 1.0) * b);
}

RowTheorems TheoremsOf(std::span<const double> log_weights) {
  RowTheorems row;
  const auto n = static_cast<double>(log_weights.size());
  const auto [low, high] = std::minmax_element(log_weights.begin(), log_weights.end());
  row.spread = *high - *low;
  row.log_largest = std::log(n) + *high;
  row.log_smallest = std::log(n) + *low;
  row.uncertainty = 0x1p-28 * std::max(1.0, std::fabs(*low));
  double mean = 0.0;
  for (const double l : log_weights) {
    mean += l / n;
    row.entropy -= std::exp(l) * l;
  }
  double squares = 0.0;
  for (const double l : log_weights) squares += (l - mean) * (l - mean);
  row.radius = std::sqrt(squares);
  row.entropy_bound = EntropyBound(row.radius, log_weights.size());
  return row;
}

bool Hold(const RowTheorems& row) {
  return row.log_largest <= row.spread + row.uncertainty &&
         row.log_smallest >= -row.spread - row.uncertainty &&
         row.entropy >= row.entropy_bound - row.uncertainty;
}

void TheoremSummary::Add(const RowTheorems& row) {
  const double slack = std::min(row.spread - row.log_largest, row.spread + row.log_smallest);
  least_slack = rows == 0 ? slack : std::min(least_slack, slack);
  spread += row.spread;
  log_largest += row.log_largest;
  log_smallest += row.log_smallest;
  entropy += row.entropy;
  entropy_bound += row.entropy_bound;
  if (row.entropy > row.uncertainty) {
    largest_ratio = std::max(largest_ratio, row.entropy_bound / row.entropy);
  }
  ++rows;
  if (!Hold(row)) ++violations;
}

nlohmann::ordered_json TheoremSummary::Values() const {
  const double n = rows;
  return {spread / n,  log_largest / n,   log_smallest / n, least_slack,
          entropy / n, entropy_bound / n, largest_ratio,    violations};
}

std::vector<std::string> TheoremSummary::Columns() {
  return {"mean delta",   "mean ln(n max p)",   "mean ln(n min p)",        "least slack",
          "mean entropy", "mean entropy bound", "largest bound / entropy", "rows that violate"};
}

}  // namespace attest
