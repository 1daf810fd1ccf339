// SPDX-License-Identifier: Apache-2.0
#include "audit/score_error.h"

#include <algorithm>
#include <cmath>

#include "audit/roundoff.h"

namespace attest {
namespace {

// Roundings that any order of evaluation the profiles allow can put on a score besides those of its
// sums: scale factors, change of base, bias, ALiBi (docs/bounds.md, "Scores").
constexpr double kScoreRoundings = 12.0;
constexpr double kSoftcapRoundings = 12.0;
// How often a score may be stored in a 16-bit type: product, scale, bias, ALiBi; and the cap's
// quotient, tanh and product.
constexpr double kScoreStores = 4.0;
constexpr double kSoftcapStores = 3.0;
// How often an argument of an additive score's tanh may be: both projections, their sum, b.
constexpr double kArgumentStores = 4.0;
// A tanh is allowed 4 ULP.
constexpr double kTanhRoundings = 8.0;

// The magnitude of a sum of doubles is known within this much of the sum of its terms' magnitudes;
// `roundings` is at most some thousands.
double OwnError(double roundings, double magnitude) { return roundings * 0x1p-52 * magnitude; }

// tanh and its derivative at an argument of magnitude within [least, most].
HiddenError TanhBetween(double least, double most) {
  const double cosh = std::cosh(std::max(least, 0.0));
  return {std::min(1.0, std::tanh(most) * (1.0 + 0x1p-40)),
          std::min(1.0, (1.0 + 0x1p-40) / (cosh * cosh)), 0.0};
}

}  // namespace

ScoreErrors::ScoreErrors(const CaseData& data, const ArithmeticModel& model)
    : data_(data), contract_(data.contract()), model_(model) {
  scale_ = contract_.scale.rsqrt_dk ? 1.0 / std::sqrt(static_cast<double>(contract_.shape.k_dim))
                                    : std::fabs(contract_.scale.value);
}

ScoreErrors::Sum ScoreErrors::Dot(const RowId& row, Index key, double magnitude) const {
  const auto d = static_cast<double>(contract_.shape.k_dim);
  Sum sum;
  sum.magnitude = magnitude;
  sum.error = Gamma(d + kScoreRoundings + (contract_.softcap > 0.0 ? kSoftcapRoundings : 0.0),
                    model_.unit_roundoff) *
              magnitude;
  // Products of q, k and the scale may be subnormal, in any grouping of the three.
  const double factors = SumOfMagnitudes(data_.Query(row)) + SumOfMagnitudes(data_.Key(row, key));
  sum.error +=
      model_.smallest_subnormal * ((d + 2.0) * (1.0 + scale_) + factors * std::max(1.0, scale_));
  if (model_.score_roundoff > 0.0) {  // q and k may have been scaled in the 16-bit type
    sum.error += 2.0 * model_.score_roundoff * magnitude +
                 model_.weight_subnormal * factors * std::max(1.0, scale_);
  }
  sum.largest = std::max(magnitude, scale_ > 0.0 ? magnitude / scale_ : 0.0);
  return sum;
}

ScoreErrors::Sum ScoreErrors::General(const RowId& row, Index key) const {
  const std::span<const double> q = data_.Query(row);
  const std::span<const double> k = data_.Key(row, key);
  const auto d_q = static_cast<double>(q.size());
  const auto d_k = static_cast<double>(k.size());
  const double stretch = std::max(1.0, scale_);
  std::vector<double> key_side(q.size(), 0.0);  // |W| |k|
  double query_total = 0.0;                     // the sum of |W|^T |q|
  double largest = 0.0;
  double unscaled = 0.0;
  for (std::size_t b = 0; b < k.size(); ++b) {
    const std::span<const double> w = data_.WColumn(static_cast<Index>(b));
    double query_side = 0.0;
    for (std::size_t a = 0; a < q.size(); ++a) {
      key_side[a] += std::fabs(w[a] * k[b]);
      query_side += std::fabs(w[a] * q[a]);
    }
    query_total += query_side;
    largest = std::max(largest, query_side);
  }
  double key_total = 0.0;
  for (std::size_t a = 0; a < q.size(); ++a) {
    unscaled += std::fabs(q[a]) * key_side[a];
    key_total += key_side[a];
    largest = std::max(largest, key_side[a]);
  }
  Sum sum;
  sum.magnitude = scale_ * unscaled;
  sum.largest = std::max(unscaled, largest) * stretch;
  const double cap = contract_.softcap > 0.0 ? kSoftcapRoundings : 0.0;
  sum.error = Gamma(d_q + d_k + kScoreRoundings + cap, model_.unit_roundoff) * sum.magnitude;
  // What one lost subnormal is multiplied by: a product or a scaled element of a projection, a
  // scaled q, k or W.
  const double sum_q = SumOfMagnitudes(q);
  const double sum_k = SumOfMagnitudes(k);
  const double factors =
      (d_k + 1.0) * sum_q + (d_q + 1.0) * sum_k + key_total + query_total + sum_q * sum_k;
  sum.error += model_.smallest_subnormal * ((d_q + d_k + 2.0) * (1.0 + scale_) + factors * stretch);
  if (model_.score_roundoff > 0.0) {  // q, k and W scaled, and a projection, in the 16-bit type
    sum.error +=
        4.0 * model_.score_roundoff * sum.magnitude + model_.weight_subnormal * factors * stretch;
  }
  return sum;
}

std::vector<HiddenError> ScoreErrors::Hidden(const RowId& row, Index key) const {
  std::vector<HiddenError> units;
  if (contract_.score != ScoreKind::kAdditive) return units;
  const double u = model_.unit_roundoff;
  const double eta = model_.smallest_subnormal;
  const std::span<const double> q = data_.Query(row);
  const std::span<const double> k = data_.Key(row, key);
  const double summands = static_cast<double>(q.size() + k.size()) + 1.0;
  for (Index a = 0; a < data_.additive_width(); ++a) {
    const double infinite = data_.NonFiniteArgument(row, key, a);
    double magnitude = 0.0;
    double argument = 0.0;
    const auto add = [&](std::span<const double> w, std::span<const double> x) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        argument += w[i] * x[i];
        magnitude += std::fabs(w[i] * x[i]);
      }
    };
    HiddenError unit{1.0, 0.0, kTanhRoundings * u};  // tanh of an infinity
    if (infinite == 0.0) {
      add(data_.WqRow(a), q);
      add(data_.WkRow(a), k);
      argument += data_.AdditiveBias(a);
      magnitude += std::fabs(data_.AdditiveBias(a));
      const double own = OwnError(summands + 2.0, magnitude);
      unit = TanhBetween(std::fabs(argument) - own, std::fabs(argument) + own);
      double error = Gamma(summands, u) * magnitude + summands * eta;
      if (model_.score_roundoff > 0.0) {
        error += Gamma(kArgumentStores, model_.score_roundoff) * (magnitude + error) +
                 kArgumentStores * model_.weight_subnormal;
      }
      unit.error = std::min(error, 2.0);
      unit.error += kTanhRoundings * u * std::min(1.0, unit.tanh + unit.error) + eta;
    }
    if (model_.score_roundoff > 0.0) {
      unit.error += model_.score_roundoff * (unit.tanh + unit.error) + model_.weight_subnormal;
    }
    units.push_back(unit);
  }
  return units;
}

ScoreErrors::Sum ScoreErrors::Additive(const RowId& row, Index key) const {
  const std::vector<HiddenError> units = Hidden(row, key);
  const std::span<const double> v = data_.va();
  const auto width = static_cast<double>(v.size());
  const double cap = contract_.softcap > 0.0 ? kSoftcapRoundings : 0.0;
  double computed = 0.0;  // the sum of |v_a| times what a computed tanh may be
  double passed_on = 0.0;
  Sum sum;
  for (std::size_t a = 0; a < units.size(); ++a) {
    const double factor = std::fabs(v[a]);
    sum.magnitude += scale_ * factor * units[a].tanh;
    computed += factor * (units[a].tanh + units[a].error);
    passed_on += factor * units[a].error;
  }
  const double stretch = std::max(1.0, scale_);
  sum.largest = computed * stretch;
  for (Index a = 0; a < data_.additive_width(); ++a) {
    double argument = std::fabs(data_.AdditiveBias(a));
    const auto add = [&](std::span<const double> w, std::span<const double> x) {
      for (std::size_t i = 0; i < x.size(); ++i) argument += std::fabs(w[i] * x[i]);
    };
    add(data_.WqRow(a), data_.Query(row));
    add(data_.WkRow(a), data_.Key(row, key));
    if (std::isfinite(argument)) sum.largest = std::max(sum.largest, argument);
  }
  const double factors = SumOfMagnitudes(v) + width;
  sum.error =
      scale_ * (passed_on + Gamma(width + kScoreRoundings + cap, model_.unit_roundoff) * computed) +
      model_.smallest_subnormal * ((width + 2.0) * (1.0 + scale_) + factors * stretch);
  if (model_.score_roundoff > 0.0) {  // v_a and the tanh may have been scaled in the 16-bit type
    sum.error += 2.0 * model_.score_roundoff * scale_ * computed +
                 model_.weight_subnormal * factors * stretch;
  }
  return sum;
}

ScoreError ScoreErrors::Of(const RowId& row, const KeyTerm& term, double dot_condition,
                           double score) const {
  const bool capped = contract_.softcap > 0.0;
  const double gamma = Gamma(kScoreRoundings + static_cast<double>(contract_.shape.k_dim) +
                                 (capped ? kSoftcapRoundings : 0.0),
                             model_.unit_roundoff);
  Sum sum;
  if (term.capped) {  // infinite inputs: the cap or its negative, exactly
    sum = {dot_condition, gamma * dot_condition, dot_condition};
  } else if (contract_.score == ScoreKind::kDot) {
    sum = Dot(row, term.key, dot_condition);
  } else {
    sum = contract_.score == ScoreKind::kGeneral ? General(row, term.key) : Additive(row, term.key);
  }
  ScoreError result;
  result.magnitude = sum.magnitude;
  result.largest = sum.largest;
  result.raw = sum.error;
  const double slope = [&] {
    if (!data_.has_alibi()) return 0.0;
    const std::optional<double> given = data_.GivenSlope(row.head);
    return given ? std::fabs(*given)
                 : std::exp2(DefaultAlibiExponent(row.head, contract_.shape.q_heads));
  }();
  result.added = std::fabs(term.bias) + slope * static_cast<double>(term.distance);
  // A store rounds the score itself, before the cap one of magnitude A_j.
  const double stores = kScoreStores + (capped ? kSoftcapStores : 0.0);
  const auto stored = [&](double magnitude) {
    if (model_.score_roundoff == 0.0) return 0.0;
    return Gamma(stores, model_.score_roundoff) * magnitude +
           model_.weight_subnormal * stores * (scale_ + 1.0 + contract_.softcap);
  };
  if (capped) {
    result.raw += stored(result.magnitude + result.raw);
    // Two capped scores are never farther apart than from -c to c.
    result.error = std::min(result.raw, (2.0 + gamma) * contract_.softcap);
  } else {
    result.error = result.raw;
  }
  result.error += stored(score + 2.0 * result.added + result.error) + gamma * result.added;
  return result;
}

double ScoreErrors::RawScore(const RowId& row, Index key) const {
  const std::span<const double> q = data_.Query(row);
  const std::span<const double> k = data_.Key(row, key);
  double sum = 0.0;
  if (contract_.score == ScoreKind::kDot) {
    for (std::size_t d = 0; d < q.size(); ++d) sum += q[d] * k[d];
  } else if (contract_.score == ScoreKind::kGeneral) {
    for (std::size_t b = 0; b < k.size(); ++b) {
      const std::span<const double> w = data_.WColumn(static_cast<Index>(b));
      double projected = 0.0;
      for (std::size_t a = 0; a < q.size(); ++a) projected += q[a] * w[a];
      sum += projected * k[b];
    }
  } else {
    for (Index a = 0; a < data_.additive_width(); ++a) {
      double argument = data_.AdditiveBias(a);
      for (std::size_t i = 0; i < q.size(); ++i) argument += data_.WqRow(a)[i] * q[i];
      for (std::size_t i = 0; i < k.size(); ++i) argument += data_.WkRow(a)[i] * k[i];
      sum += data_.va()[static_cast<std::size_t>(a)] * std::tanh(argument);
    }
  }
  return sum;
}

CapError ScoreErrors::Cap(const RowId& row, const KeyTerm& term, const ScoreError& score) const {
  const double cap = contract_.softcap;
  if (cap == 0.0) return {0.0, 1.0, 0.0};
  const double u = model_.unit_roundoff;
  if (term.capped) return {1.0, 0.0, (kTanhRoundings + 4.0) * u};
  const double argument = scale_ * std::fabs(RawScore(row, term.key)) / cap;
  // The double arithmetic of a score errs by less than that of the profile, which is no finer.
  const double own = score.raw / cap + OwnError(4.0, argument);
  CapError result = TanhBetween(argument - own, argument + own);
  // tanh, and the quotient or, from a capped score, product and quotient; see "Gradients".
  result.error =
      std::min(score.raw / cap, 2.0) + (kTanhRoundings + 4.0) * u + model_.smallest_subnormal;
  if (model_.score_roundoff > 0.0) {
    result.error += 2.0 * model_.score_roundoff + model_.weight_subnormal;
  }
  return result;
}

bool ScoreErrors::ScalesFit(const RowId& row, const RowPlan& plan) const {
  double largest = 0.0;
  const auto include = [&](std::span<const double> values) {
    for (const double value : values) {
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    }
  };
  if (contract_.score == ScoreKind::kAdditive) {
    include(data_.va());
  } else {
    include(data_.Query(row));
    for (const KeyTerm& term : plan.terms) include(data_.Key(row, term.key));
  }
  if (contract_.score == ScoreKind::kGeneral) {
    for (Index b = 0; b < contract_.shape.k_dim; ++b) include(data_.WColumn(b));
  }
  return std::max({scale_, contract_.softcap, scale_ * largest}) <= model_.largest_finite / 4.0;
}

}  // namespace attest
