// SPDX-License-Identifier: Apache-2.0
#include "audit/row_bound.h"

#include <algorithm>
#include <cmath>

#include "audit/roundoff.h"

namespace attest {
namespace {

// Weights of e^-100 of the whole cannot be seen in any result.
constexpr double kNegligible = -100.0;

}  // namespace

RowBounds::RowBounds(const CaseData& data, const Certified& certified, const ArithmeticModel& model)
    : contract_(data.contract()), certified_(certified), model_(model), scores_(data, model) {}

CertifiedValue RowBounds::Exact(const char* output, std::size_t element) const {
  const auto found = certified_.outputs.find(output);
  return found == certified_.outputs.end() ? CertifiedValue() : found->second.values[element];
}

double RowBounds::Shift(double largest_exponent, double log_weight, double keys) const {
  return model_.unit_roundoff *
         (12.0 * largest_exponent + 8.0 * std::fabs(log_weight) + 4.0 * std::log1p(keys) + 4.0);
}

RowBound RowBounds::Of(Index flat, const RowId& row, const RowPlan& plan) const {
  const double u = model_.unit_roundoff;
  const double n = static_cast<double>(plan.terms.size());
  const double denominator_sums = Both(Gamma(n + 3.0, u), model_.weight_roundoff);
  // The exponential itself, and for each rescaling of an online softmax one more and three
  // roundings (an output that is kept normalised is multiplied, and divided, by sums).
  const double exponentials =
      (n + 1.0) * std::log1p(2.0 * model_.exp_ulp * u) + 3.0 * n * std::log1p(u);
  const CertifiedValue lse_value = Exact("lse", static_cast<std::size_t>(flat));
  const double lse_size = AtMost(lse_value);
  const auto condition = [&](const KeyTerm& term) {
    return static_cast<std::size_t>(flat * contract_.shape.kv_len + term.key);
  };

  RowBound bound;
  bound.in_range = scores_.ScalesFit(row, plan);
  bound.accumulation = Both(Gamma(n + 5.0, u), model_.weight_roundoff);
  bound.absolute = 2.0 * model_.smallest_normal + model_.weight_subnormal;
  double heaviest = kNoBound;  // |ln p| of the largest weight; large where a sink takes it all
  for (const KeyTerm& term : plan.terms) {
    const double log_weight = certified_.conditions.log_weight[condition(term)];
    heaviest = std::min(heaviest, std::fabs(log_weight) + LogError(log_weight));
  }
  bound.largest_exponent = lse_size + std::max(heaviest, std::log1p(n));
  for (const KeyTerm& term : plan.terms) {
    // What the condition may be off counts as an error of the exponent, and a weight is taken at
    // its largest (docs/bounds.md, "Conditions").
    const std::size_t at = condition(term);
    const double log_weight = certified_.conditions.log_weight[at];
    const double log_size = std::fabs(log_weight) + LogError(log_weight);
    WeightBound w;
    w.score = scores_.Of(row, term, certified_.conditions.score_condition[at], lse_size + log_size);
    w.log_softmax = log_weight + LogError(log_weight);
    w.softmax = std::exp(w.log_softmax);
    w.exponent = w.score.error + Shift(bound.largest_exponent, log_size, n) + exponentials;
    const bool matters = w.log_softmax + w.exponent > kNegligible;
    if (matters) bound.exponent_error = std::max(bound.exponent_error, w.exponent);
    bound.normaliser +=
        Perturbation(w.softmax, w.log_softmax, w.exponent) * (1.0 + denominator_sums) +
        w.softmax * denominator_sums;
    if (plan.gaussian_center && contract_.local) {
      const double half_width = contract_.local->half_width;
      const double z = (static_cast<double>(term.key) - *plan.gaussian_center) / half_width;
      const double size =
          (std::fabs(*plan.gaussian_center) + static_cast<double>(term.key)) / half_width;
      w.gaussian_log = 2.0 * z * z;
      w.gaussian = std::exp(-w.gaussian_log);
      w.gaussian_error =
          u * (8.0 * w.gaussian_log + 4.0 * size * size + 2.0 * model_.exp_ulp + 2.0);
    }
    w.weight = WeightAtMost(certified_.conditions.weight[at]);
    w.perturbation =
        Perturbation(w.weight, w.log_softmax - w.gaussian_log, w.exponent + w.gaussian_error);
    // What is flushed to 0 was no larger than the computed weight.
    const double computed =
        std::exp(std::min(w.log_softmax - w.gaussian_log + w.exponent + w.gaussian_error, 0.0));
    w.underflow = std::min(2.0 * model_.smallest_normal,
                           computed + (2.0 * n + 4.0) * model_.smallest_subnormal) +
                  model_.weight_subnormal;
    // What is added to a score may overflow to -infinity where the weight is nothing anyway.
    const double largest =
        std::max(w.score.largest, matters ? w.score.magnitude + w.score.added : 0.0);
    const double limit = model_.score_largest > 0.0 ? model_.score_largest : model_.largest_finite;
    if (!(largest <= limit / 4.0)) bound.in_range = false;
    bound.terms.push_back(w);
  }
  if (plan.sink) {
    const double log_weight = *plan.sink - lse_value.hi + lse_value.radius;
    WeightBound& sink = bound.sink;
    sink.log_softmax = log_weight + LogError(log_weight);
    sink.softmax = sink.weight = std::exp(sink.log_softmax);
    sink.exponent = Shift(bound.largest_exponent, log_weight, n) + exponentials;
    sink.perturbation = Perturbation(sink.softmax, sink.log_softmax, sink.exponent);
    if (sink.log_softmax + sink.exponent > kNegligible) {
      bound.exponent_error = std::max(bound.exponent_error, sink.exponent);
    }
    bound.normaliser +=
        sink.perturbation * (1.0 + denominator_sums) + sink.softmax * denominator_sums;
  }
  bound.normaliser += (n + 1.0) * bound.absolute;
  // Sums of exponentials that are off by e^T must not overflow either.
  if (!bound.IsSharp() &&
      !(bound.exponent_error + std::log1p(n) < std::log(model_.largest_finite / 4.0))) {
    bound.in_range = false;
  }
  return bound;
}

}  // namespace attest
