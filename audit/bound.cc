// SPDX-License-Identifier: Apache-2.0
#include "audit/bound.h"

#include <algorithm>
#include <cmath>

#include "audit/roundoff.h"
#include "audit/row_bound.h"
#include "reference/row_plan.h"

namespace attest {
namespace {

// Covers the roundings of the double arithmetic that evaluates a bound.
constexpr double kInflation = 1.0 + 1e-9;

class BoundEvaluator {
 public:
  BoundEvaluator(const Case& problem, const CaseData& data, const Certified& certified,
                 const ArithmeticModel& model)
      : problem_(problem),
        contract_(problem.contract),
        data_(data),
        model_(model),
        row_bounds_(data, certified, model) {}

  ForwardBounds Run() {
    const Dimensions& s = contract_.shape;
    const Index rows = s.batch * s.q_heads * s.q_len;
    bounds_.out.assign(static_cast<std::size_t>(rows * s.v_dim), 0.0);
    bounds_.magnitude = bounds_.out;
    bounds_.vanishing_infinity.assign(bounds_.out.size(), 0);
    bounds_.lse.assign(static_cast<std::size_t>(rows), 0.0);
    bounds_.row_in_range.assign(static_cast<std::size_t>(rows), 1);
    bounds_.weights.assign(static_cast<std::size_t>(rows * s.kv_len), 0.0);
    for (Index flat = 0; flat < rows; ++flat) DoRow(flat);
    return std::move(bounds_);
  }

 private:
  void DoRow(Index flat) {
    const Dimensions& s = contract_.shape;
    const RowId row = RowAt(s, flat);
    const RowPlan plan = data_.Plan(row);
    if (plan.kind == RowPlan::Kind::kEmpty) return EmptyRowBounds(flat, row, plan);
    if (plan.kind == RowPlan::Kind::kAllMinusInfinity && plan.sink) {
      bounds_.lse[static_cast<std::size_t>(flat)] = SinkLse(*plan.sink);
      return;
    }
    if (plan.kind != RowPlan::Kind::kFinite) return;  // NaN is compared exactly
    const RowBound bound = row_bounds_.Of(flat, row, plan);
    bounds_.row_in_range[static_cast<std::size_t>(flat)] = bound.in_range ? 1 : 0;
    OutBounds(flat, row, plan, bound);
    WeightBounds(flat, plan, bound);
    LseBound(flat, plan, bound);
  }

  // Error of rounding a value of this magnitude to the type of an output.
  double RoundingOf(const char* output, double magnitude) const {
    const FloatFormat& format = FormatOf(OutputDType(problem_, output));
    return format.unit_roundoff() * std::fabs(magnitude) + format.smallest_subnormal();
  }

  // LSE of a row in which a sink is all there is: one logarithm of 1, change of base, a sum.
  double SinkLse(double sink) const {
    return model_.unit_roundoff * (4.0 * std::fabs(sink) + 8.0) + RoundingOf("lse", sink);
  }

  // A row without keys is exact (0, NaN or -infinity) but for the mean of the policy `uniform` and
  // a sink, which passes through one logarithm and one exponential at most.
  void EmptyRowBounds(Index flat, const RowId& row, const RowPlan& plan) {
    const auto at = static_cast<std::size_t>(flat);
    const double u = model_.unit_roundoff;
    if (plan.sink) {
      bounds_.lse[at] = SinkLse(*plan.sink);
      return;
    }
    if (contract_.empty_row != EmptyRow::kUniform) return;
    const Index n = contract_.shape.kv_len;
    for (Index c = 0; c < contract_.shape.v_dim; ++c) {
      double sum = 0.0;
      bool finite = true;  // the values; their sum may overflow all the same
      for (Index j = 0; j < n; ++j) {
        const double value = data_.Value(row, j)[static_cast<std::size_t>(c)];
        finite = finite && std::isfinite(value);
        sum += std::fabs(value);
      }
      if (n == 0 || !finite) continue;
      const double mean = sum / static_cast<double>(n);
      const auto element = static_cast<std::size_t>(flat * contract_.shape.v_dim + c);
      bounds_.magnitude[element] = mean;
      const double arithmetic =
          (Gamma(static_cast<double>(n) + 4.0, u) + model_.weight_roundoff) * mean +
          static_cast<double>(n) * model_.smallest_subnormal;
      bounds_.out[element] =
          Finished(sum <= model_.largest_finite / 2.0, arithmetic + RoundingOf("out", mean));
    }
    for (Index j = 0; j < n; ++j) {
      bounds_.weights[static_cast<std::size_t>(flat * n + j)] =
          4.0 * (u + model_.weight_roundoff) / static_cast<double>(n) +
          RoundingOf("weights", 1.0 / static_cast<double>(n));
    }
  }

  // Where tau says nothing: numerator and denominator are each off by a factor e^(+-T), so that no
  // computed weight exceeds e^(2T).
  static double CrudeWeight(const RowBound& bound) { return std::exp(2.0 * bound.exponent_error); }

  void OutBounds(Index flat, const RowId& row, const RowPlan& plan, const RowBound& bound) {
    const double rate = data_.dropout_rate();
    const double kept = 1.0 / (1.0 - rate);
    const double accumulation =
        bound.accumulation + (rate > 0.0 ? model_.unit_roundoff * (4.0 + 2.0 * rate * kept) : 0.0);
    const double n = static_cast<double>(plan.terms.size());
    const Index width = contract_.shape.v_dim;
    for (Index c = 0; c < width; ++c) {
      double magnitude = 0.0;
      double numerator_error = 0.0;
      double underflow = n * model_.smallest_subnormal;
      double value_sum = 0.0;
      double largest = 0.0;
      bool finite = true;
      const auto element = static_cast<std::size_t>(flat * width + c);
      for (std::size_t t = 0; t < plan.terms.size(); ++t) {
        const double given =
            std::fabs(data_.Value(row, plan.terms[t].key)[static_cast<std::size_t>(c)]);
        finite = finite && std::isfinite(given);
        const double value = given * kept;
        if (std::isinf(value) && bound.terms[t].weight <= 8.0 * bound.absolute) {
          bounds_.vanishing_infinity[element] = 1;
        }
        const double kept_value = plan.terms[t].keep * value;
        magnitude += bound.terms[t].weight * kept_value;
        numerator_error += (bound.terms[t].perturbation * (1.0 + accumulation) +
                            bound.terms[t].weight * accumulation) *
                           kept_value;
        underflow += bound.terms[t].underflow * value;
        value_sum += value;
        largest = std::max(largest, value);
      }
      bounds_.magnitude[element] = magnitude;
      if (!finite) continue;  // compared exactly
      const double exact = AtMost(row_bounds_.Exact("out", element));
      underflow += bound.absolute * n * exact;
      const double arithmetic =
          bound.IsSharp()
              ? (numerator_error + exact * bound.normaliser + underflow) / (1.0 - bound.normaliser)
              : largest * (1.0 + 1.01 * CrudeWeight(bound)) + underflow;
      const bool in_range = bound.in_range && arithmetic + value_sum <= model_.largest_finite / 4.0;
      bounds_.out[element] = Finished(in_range, arithmetic + RoundingOf("out", exact + arithmetic));
    }
  }

  // A bound, or infinity where there is none.
  static double Finished(bool in_range, double bound) {
    return in_range && std::isfinite(bound) ? kInflation * bound : kNoBound;
  }

  void WeightBounds(Index flat, const RowPlan& plan, const RowBound& bound) {
    const double roundings =
        (1.0 + Gamma(5.0, model_.unit_roundoff)) * (1.0 + model_.weight_roundoff) - 1.0;
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const double p = bound.terms[t].weight;
      const double sharp =
          (bound.terms[t].perturbation * (1.0 + roundings) + p * (roundings + bound.normaliser)) /
              (1.0 - bound.normaliser) +
          2.0 * bound.terms[t].underflow;
      const double arithmetic = bound.IsSharp() ? sharp : 1.0 + 1.01 * CrudeWeight(bound);
      const auto element =
          static_cast<std::size_t>(flat * contract_.shape.kv_len + plan.terms[t].key);
      bounds_.weights[element] =
          Finished(bound.in_range, arithmetic + RoundingOf("weights", p + arithmetic));
    }
  }

  void LseBound(Index flat, const RowPlan& plan, const RowBound& bound) {
    const auto element = static_cast<std::size_t>(flat);
    const double lse = AtMost(row_bounds_.Exact("lse", element));
    const double u = model_.unit_roundoff;
    const double n = static_cast<double>(plan.terms.size());
    const double denominator =
        bound.IsSharp() ? -std::log1p(-bound.normaliser)
                        : bound.exponent_error + Gamma(n + 3.0, u) + 2.0 * model_.weight_roundoff;
    // The logarithm is allowed 4 ULP; maximum, change of base and last addition round the rest.
    const double arithmetic = denominator + 8.0 * u * (std::log1p(n) + 1.0) +
                              4.0 * u * (lse + bound.largest_exponent) + model_.smallest_subnormal;
    bounds_.lse[element] =
        Finished(bound.in_range, arithmetic + RoundingOf("lse", lse + arithmetic));
  }

  const Case& problem_;
  const Contract& contract_;
  const CaseData& data_;
  const ArithmeticModel& model_;
  const RowBounds row_bounds_;
  ForwardBounds bounds_;
};

}  // namespace

ForwardBounds EvaluateBounds(const Case& problem, const Certified& certified,
                             const ArithmeticModel& model) {
  StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};  // Certify has refused such a case before
  return BoundEvaluator(problem, *data, certified, model).Run();
}

}  // namespace attest
