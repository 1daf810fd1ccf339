// SPDX-License-Identifier: Apache-2.0
#include "experiments/softmax_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/digest.h"
#include "core/random.h"
#include "reference/ball.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;
using Domain = SoftmaxBound::Domain;

// max - spread * U with U uniform in (0, 1), but 0 and 1 once each; rounded to the type.
std::vector<double> DrawRow(const RowSpec& spec, std::uint64_t seed) {
  const std::string name =
      fmt::format("normalisation n{} spread {} draw {}", spec.n, spec.spread, spec.draw);
  const RandomStream stream(seed, name, "x");
  const auto n = static_cast<std::uint64_t>(spec.n);
  const std::uint64_t top = stream.Below(n, n);
  std::vector<double> x;
  for (std::uint64_t j = 0; j < n; ++j) {
    const double part = j == top ? 0.0 : (j == (top + 1) % n ? 1.0 : stream.Uniform(j));
    x.push_back(RoundToDType(spec.max - spec.spread * part, spec.dtype));
  }
  return x;
}

// Certified weights of one row: one query of 1, keys x, scale 1, in double.
Case CaseOf(const std::vector<double>& x) {
  Case problem;
  problem.name = "normalisation";
  Contract& contract = problem.contract;
  const auto n = static_cast<Index>(x.size());
  contract.shape = {1, 1, 1, 1, n, 1, 1, 1};
  contract.dtype = contract.out_dtype = DType::kF64;
  contract.arithmetic.profile = "f64";
  contract.scale = {false, 1.0};
  contract.outputs = {"lse", "weights"};
  problem.tensors["q"] = Tensor(DType::kF64, {1, 1, 1, 1});
  problem.tensors["q"].Set(0, 1.0);
  problem.tensors["k"] = Tensor(DType::kF64, {1, 1, n, 1});
  for (Index j = 0; j < n; ++j) problem.tensors["k"].Set(j, x[static_cast<std::size_t>(j)]);
  problem.tensors["v"] = Tensor(DType::kF64, {1, 1, n, 1});
  return problem;
}

// sum - 1 of doubles without any rounding before the end; NaN where one is not finite.
double SumLessOne(const std::vector<double>& weights) {
  for (const double w : weights) {
    if (!std::isfinite(w)) return std::numeric_limits<double>::quiet_NaN();
  }
  const PrecisionScope exact(1280);  // multiples of 2^-1074 below 2^200
  const std::vector<double> ones(weights.size(), 1.0);
  return (Ball::Dot(weights, ones) - Ball(1.0)).Midpoint();
}

// Largest of errors / bounds; NaN counts as infinite.
double LargestRatio(const std::vector<double>& errors, const std::vector<double>& bounds) {
  double largest = 0.0;
  for (std::size_t j = 0; j < errors.size(); ++j) {
    const double ratio = errors[j] / bounds[j];
    if (!(ratio <= largest)) {
      largest = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    }
  }
  return largest;
}

}  // namespace

void MeasureRow(std::uint64_t seed, SoftmaxRow* row) {
  const std::vector<double> x = DrawRow(row->spec, seed);
  row->digest = Sha256(std::as_bytes(std::span(x)));
  StatusOr<Certified> certified = Certify(CaseOf(x));
  if (!certified.ok()) {
    row->status = certified.status();
    return;
  }
  const std::vector<CertifiedValue>& weights = certified->outputs.at("weights").values;
  const double lse = certified->outputs.at("lse").values[0].hi;
  std::vector<double> exact;
  for (const CertifiedValue& p : weights) exact.push_back(p.hi);
  const double largest = *std::max_element(exact.begin(), exact.end());
  const DType dtype = row->spec.dtype;
  const SoftmaxBound shifted =
      BoundSoftmax({.name = "shifted", .way = SoftmaxWay::kShifted}, dtype, x, exact, lse);
  for (const SoftmaxMethod& method : SoftmaxMethods(dtype)) {
    StatusOr<std::vector<double>> computed = ComputeSoftmax(method, dtype, x);
    if (!computed.ok()) {
      row->status = computed.status();
      return;
    }
    SoftmaxBound bound = BoundSoftmax(method, dtype, x, exact, lse);
    // The reference's own radius counts where a weight is beyond the range of double.
    for (std::size_t j = 0; j < bound.weight.size(); ++j) bound.weight[j] += weights[j].radius;
    SoftmaxMeasure measure;
    measure.domain = bound.domain;
    std::vector<double> errors;
    bool zero = true;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const CertifiedValue& p = weights[j];
      errors.push_back(std::fabs(((*computed)[j] - p.hi) - p.lo));
      zero = zero && (*computed)[j] == 0.0;
    }
    const double sum = SumLessOne(*computed);
    measure.useless = zero || std::isnan(sum);
    measure.sum_error = std::fabs(sum);
    measure.over_shifted = LargestRatio(errors, shifted.weight);
    if (!measure.useless) {
      measure.norm_error = *std::max_element(errors.begin(), errors.end()) / largest /
                           FormatOf(dtype).unit_roundoff();
    }
    const double spread =
        *std::max_element(x.begin(), x.end()) - *std::min_element(x.begin(), x.end());
    if (method.way == SoftmaxWay::kShifted) {
      measure.first_order =
          measure.norm_error / (static_cast<double>(x.size()) + 2.0 + 2.0 * spread);
    } else if (method.way == SoftmaxWay::kUnshifted) {
      measure.first_order = measure.norm_error / (static_cast<double>(x.size()) + 3.0);
    }
    if (bound.domain == Domain::kInside) {
      measure.error_ratio = LargestRatio(errors, bound.weight);
      measure.sum_ratio = LargestRatio({measure.sum_error}, {bound.sum});
    }
    row->measures.push_back(measure);
  }
}

void SoftmaxCell::Add(const SoftmaxMeasure& m) {
  ++rows;
  if (m.domain == Domain::kOverflows) ++overflows;
  if (m.domain == Domain::kNear || m.domain == Domain::kUnderflows) ++untold;
  if (m.domain == Domain::kInside ? m.useless : m.domain == Domain::kOverflows && !m.useless) {
    ++wrong_predictions;
  }
  if (m.domain != Domain::kInside) return;
  ++inside;
  error_ratio = std::max(error_ratio, m.error_ratio);
  sum_ratio = std::max(sum_ratio, m.sum_ratio);
  if (!m.useless) {
    sum_error = std::max(sum_error, m.sum_error);
    norm_error = std::max(norm_error, m.norm_error);
    first_order = std::max(first_order, m.first_order);
    over_shifted = std::max(over_shifted, m.over_shifted);
  }
}

SoftmaxCell SoftmaxRows::CellOf(DType dtype, const std::string& method,
                                const std::function<bool(const RowSpec&)>& wanted) const {
  const std::vector<SoftmaxMethod> methods = SoftmaxMethods(dtype);
  SoftmaxCell cell;
  for (const SoftmaxRow& row : rows_) {
    if (row.spec.dtype != dtype || !wanted(row.spec)) continue;
    for (std::size_t i = 0; i < methods.size(); ++i) {
      if (methods[i].name == method) cell.Add(row.measures[i]);
    }
  }
  return cell;
}

ordered_json SoftmaxRows::Series(DType dtype, const std::vector<std::string>& methods,
                                 const std::vector<double>& xs,
                                 const std::function<bool(const RowSpec&, double)>& at,
                                 double SoftmaxCell::* value) const {
  ordered_json all = ordered_json::array();
  for (const std::string& method : methods) {
    ordered_json points = ordered_json::array();
    for (const double x : xs) {
      const SoftmaxCell cell =
          CellOf(dtype, method, [&](const RowSpec& spec) { return at(spec, x); });
      if (cell.inside > 0) points.push_back({x, cell.*value});
    }
    if (!points.empty()) all.push_back({{"name", method}, {"points", points}});
  }
  return all;
}

}  // namespace attest
