// SPDX-License-Identifier: Apache-2.0
#include "reference/row_gradient.h"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

bool AllFinite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

// dO of a row; zeros without a tensor grad_out.
std::vector<double> GradOut(const CaseData& data, const RowId& row) {
  const auto width = static_cast<std::size_t>(data.contract().shape.v_dim);
  std::vector<double> values(width, 0.0);
  const Tensor* tensor = data.Find("grad_out");
  if (tensor == nullptr) return values;
  const Index first = FlatRow(data.contract().shape, row) * data.contract().shape.v_dim;
  for (std::size_t c = 0; c < width; ++c) values[c] = tensor->At(first + static_cast<Index>(c));
  return values;
}

double GradLse(const CaseData& data, const RowId& row) {
  const Tensor* tensor = data.Find("grad_lse");
  return tensor == nullptr ? 0.0 : tensor->At(FlatRow(data.contract().shape, row));
}

Ball KeptRate(const CaseData& data) { return Ball(1.0) - Ball(data.dropout_rate()); }

// dO, and <dO, v_j> of the terms.
struct Products {
  std::vector<Ball> of_term;
  explicit Products(const CaseData& data, const RowId& row, const RowPlan& plan) {
    const std::vector<double> grad_out = GradOut(data, row);
    for (const KeyTerm& term : plan.terms) {
      of_term.push_back(term.keep == 0.0 ? Ball() : Ball::Dot(grad_out, data.Value(row, term.key)));
    }
  }
};

}  // namespace

bool RowIsPoisoned(const CaseData& data, const RowId& row, const RowPlan& plan) {
  if (plan.sink_is_nan) return true;
  if (!plan.has_allowed_key()) return plan.sink && !std::isfinite(GradLse(data, row));
  if (!plan.vanishing.empty() || !plan.not_a_number.empty()) return true;
  if (!std::isfinite(GradLse(data, row)) || !AllFinite(GradOut(data, row))) return true;
  if (!data.parameters_finite() || !AllFinite(data.Query(row))) return true;
  // What infinite scores there are under a soft cap is found by their keys.
  return std::any_of(plan.terms.begin(), plan.terms.end(), [&](const KeyTerm& term) {
    return !AllFinite(data.Key(row, term.key)) || !AllFinite(data.Value(row, term.key));
  });
}

RowGradient EncloseRowGradient(const CaseData& data, const RowId& row, const RowPlan& plan,
                               const RowEnclosure* enclosure, bool with_dr) {
  RowGradient gradient;
  const Ball d_lse(GradLse(data, row));
  if (enclosure == nullptr) {  // the sink is the whole denominator
    if (plan.sink) gradient.d_sink = d_lse;
    return gradient;
  }
  const std::size_t size = plan.terms.size();
  const Products products(data, row, plan);
  std::vector<Ball> weights;
  std::vector<Ball> d_weights;  // dP
  std::size_t pivot = 0;
  for (std::size_t t = 0; t < size; ++t) {
    weights.push_back(enclosure->Softmax(t));
    if (CompareMidpoints(weights[t], weights[pivot]) > 0) pivot = t;
    Ball factor;  // m
    if (plan.terms[t].keep != 0.0) {
      factor = plan.gaussian_center ? enclosure->Gaussian(t) : Ball(1.0);
      if (data.dropout_rate() != 0.0) factor = factor / KeptRate(data);
    }
    d_weights.push_back(factor * products.of_term[t]);
    gradient.kept.push_back(weights[t] * factor);
  }
  // dP - delta relative to the pivot's dP, as the weights and the sink's share sum to 1: equal dP
  // cancel exactly.
  const std::span<const double> pivot_value = data.Value(row, plan.terms[pivot].key);
  const auto like_pivot = [&](std::size_t t) {
    if (t == pivot) return true;
    if (plan.gaussian_center || plan.terms[t].keep != plan.terms[pivot].keep) return false;
    const std::span<const double> value = data.Value(row, plan.terms[t].key);
    return plan.terms[t].keep == 0.0 || std::equal(value.begin(), value.end(), pivot_value.begin());
  };
  std::vector<Ball> relative;
  Ball delta;  // relative to the pivot's dP
  for (std::size_t t = 0; t < size; ++t) {
    relative.push_back(like_pivot(t) ? Ball() : d_weights[t] - d_weights[pivot]);
    delta += weights[t] * relative[t];
  }
  const Ball share = enclosure->SinkShare();
  const Ball common = d_weights[pivot] * share - delta + d_lse;
  for (std::size_t t = 0; t < size; ++t) {
    gradient.ds.push_back(weights[t] * (relative[t] + common));
    if (with_dr) gradient.dr.push_back(enclosure->TimesSlope(t, gradient.ds[t]));
  }
  gradient.d_sink = share * (common - d_weights[pivot]);
  return gradient;
}

std::optional<UniformRowGradient> UniformGradient(const CaseData& data, const RowId& row,
                                                  const RowPlan& plan,
                                                  const RowEnclosure* enclosure, bool with_dr) {
  UniformRowGradient uniform;
  RowGradient& gradient = uniform.gradient;
  const Ball d_lse = KeptRate(data) * Ball(GradLse(data, row));
  if (enclosure == nullptr) {
    if (plan.sink) gradient.d_sink = d_lse;
    return uniform;
  }
  if (plan.gaussian_center || !enclosure->AllScoresEqual()) return std::nullopt;
  const bool capped = data.contract().softcap > 0.0;
  const std::size_t size = plan.terms.size();
  uniform.count = static_cast<Index>(size) + (plan.sink ? 1 : 0);
  const Ball count(static_cast<long>(uniform.count));
  const Products products(data, row, plan);
  Ball sum;
  for (const Ball& product : products.of_term) sum += product;
  const Ball common = count * d_lse - sum;
  for (std::size_t t = 0; t < size; ++t) {
    if (with_dr && capped && !enclosure->RawIsZero(t)) return std::nullopt;
    gradient.kept.push_back(Ball(plan.terms[t].keep) * count);
    gradient.ds.push_back(count * products.of_term[t] + common);
    if (with_dr) gradient.dr.push_back(gradient.ds[t]);
  }
  if (plan.sink) gradient.d_sink = common;
  return uniform;
}

}  // namespace attest
