// SPDX-License-Identifier: Apache-2.0
// The weights that a subject returns, row by row.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "audit/law_support.h"

namespace attest {

// One row of finite scores, every weight of which is judged.
struct WeightRow {
  const CaseData& data;
  const Expectation& expected;
  RowId id;
  Index flat;
  const RowPlan& plan;
  std::span<const double> weights;  // as returned, [Tk]
  std::span<const double> bounds;   // of their errors, [Tk]

  // Neither a sink nor a Gaussian takes a part of the whole.
  bool SumsToOne() const { return !plan.sink && !plan.gaussian_center; }
  double At(const KeyTerm& term) const { return weights[static_cast<std::size_t>(term.key)]; }
  double BoundAt(const KeyTerm& term) const { return bounds[static_cast<std::size_t>(term.key)]; }
  // ln p, within LogError of it.
  double LogWeight(const KeyTerm& term) const {
    const std::size_t n = weights.size();
    return expected.certified.conditions
        .log_weight[static_cast<std::size_t>(flat) * n + static_cast<std::size_t>(term.key)];
  }
  static double LogError(double log_weight) {
    return 0x1p-30 * std::max(1.0, std::fabs(log_weight));
  }
  Violation Break(Index key, double limit, const std::string& explanation) const {
    return {"weights",
            {id.batch, id.head, id.query, key},
            weights[static_cast<std::size_t>(key)],
            limit,
            explanation};
  }
};

// Adding up n numbers in double is off by less than this times the sum of their magnitudes.
inline double SumRoundoff(std::size_t n) { return static_cast<double>(n) * 0x1p-52; }

// Runs the case and calls visit(row) for its rows until it gives a violation. Applied where the
// case asks for weights and there is such a row. `visit` returns std::optional<Violation>.
template <class Visit>
LawResult ForWeightRows(const Subject& subject, const Case& problem, ExpectationCache& expectations,
                        const Visit& visit) {
  LawResult result;
  if (!problem.contract.Wants("weights")) return {};
  const StatusOr<CaseData> data = CaseData::Make(problem);
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!data.ok() || !expected.ok()) return {};
  const std::optional<TensorMap> outputs = RunOk(subject, Forward(problem), &result);
  if (!outputs) return result;
  const std::vector<double> weights = ToDoubles(outputs->at("weights"));
  const std::vector<double>& bounds = (*expected)->bounds.weights;
  const Dimensions& s = problem.contract.shape;
  const auto n = static_cast<std::size_t>(s.kv_len);
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    const auto row = static_cast<std::size_t>(flat);
    if ((*expected)->bounds.row_in_range[row] == 0) continue;
    const RowPlan plan = data->Plan(RowAt(s, flat));
    if (plan.kind != RowPlan::Kind::kFinite) continue;
    const WeightRow view{*data,
                         **expected,
                         RowAt(s, flat),
                         flat,
                         plan,
                         std::span(weights).subspan(row * n, n),
                         std::span(bounds).subspan(row * n, n)};
    const bool judged = std::all_of(view.bounds.begin(), view.bounds.end(),
                                    [](double bound) { return std::isfinite(bound); });
    if (!judged) continue;
    result.applied = true;
    if (std::optional<Violation> v = visit(view)) return {true, std::move(v)};
  }
  return result;
}

}  // namespace attest
