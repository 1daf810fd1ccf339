// SPDX-License-Identifier: Apache-2.0
// Two theorems about the weights of one row, and how far a certified row is from their bounds.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace attest {

// Of n weights, in nats. The logits enter by their differences alone, which are those of ln p.
struct RowTheorems {
  double spread = 0.0;         // delta, the largest logit less the smallest
  double log_largest = 0.0;    // ln(n max p), at most delta (Velickovic et al. 2025)
  double log_smallest = 0.0;   // ln(n min p), at least -delta (the same)
  double radius = 0.0;         // sigma, the Euclidean norm of the logits less their mean
  double entropy = 0.0;        // -sum p ln p
  double entropy_bound = 0.0;  // EntropyBound(sigma, n), at most the entropy
  double uncertainty = 0.0;    // 2^-28 max(1, max |ln p|): more than every error in the above
};

// The smallest entropy of n weights whose logits have at most this distance to their mean (Zhai et
// al. 2023, theorem 3.1): with b = exp(-sigma sqrt(n/(n-1))), it is
// ln(1 + (n-1) b) + sigma sqrt(n (n-1)) b / (1 + (n-1) b). For n = 1 it is 0. The paper
// bounds sigma by norms of the weights and inputs of a layer; here it is the row's own.
double EntropyBound(double radius, std::size_t keys);

// From certified ln p, within 2^-30 max(1, |ln p|); at least one of them.
RowTheorems TheoremsOf(std::span<const double> log_weights);

// Whether the row satisfies both theorems, which it does unless its weights are wrong.
bool Hold(const RowTheorems& row);

// Means and extremes over rows.
struct TheoremSummary {
  double spread = 0.0, log_largest = 0.0, log_smallest = 0.0;  // sums
  double entropy = 0.0, entropy_bound = 0.0;
  double least_slack = 0.0;    // of both sides of the first theorem, in nats
  double largest_ratio = 0.0;  // entropy bound over entropy
  int rows = 0;
  int violations = 0;

  void Add(const RowTheorems& row);
  // Columns() of this, means where they say so.
  nlohmann::ordered_json Values() const;
  static std::vector<std::string> Columns();
};

}  // namespace attest
