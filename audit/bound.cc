// SPDX-License-Identifier: Apache-2.0
#include "audit/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/row_plan.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Covers the roundings of this file's own double arithmetic.
constexpr double kInflation = 1.0 + 1e-9;

// Roundings that any order of evaluation the profiles allow can put on a score besides the d of the
// dot product: scale factors, change of base, bias, ALiBi (docs/bounds.md, "Scores").
constexpr double kScoreRoundings = 12.0;
constexpr double kSoftcapRoundings = 12.0;
// How often a score may be stored in a 16-bit type: product, scale, bias, ALiBi.
constexpr double kScoreStores = 4.0;
// Weights of e^-100 of the whole cannot be seen in any result.
constexpr double kNegligible = -100.0;
// How accurate the conditions are (reference/certify.h), doubled to cover the rounding here.
constexpr double kConditionError = 0x1p-29;

// No smaller than the p that a condition is of.
double WeightAtMost(double weight) { return weight * (1.0 + kConditionError) + 0x1p-1074; }
// How far a logarithm of a weight may be off.
double LogError(double log_weight) {
  return kConditionError * std::max(1.0, std::fabs(log_weight));
}

// k roundings of size u: (1 + u)^k - 1 <= k u / (1 - k u), infinite where that says nothing.
double Gamma(double k, double u) { return k * u < 1.0 ? k * u / (1.0 - k * u) : kInfinity; }

double SumOfMagnitudes(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += std::fabs(value);
  return sum;
}

// p (e^error - 1), the change of a weight p = e^log_weight whose exponent is off by `error`; usable
// also where p underflows in double.
double Perturbation(double weight, double log_weight, double error) {
  return error <= 1.0 ? weight * std::expm1(error) : std::exp(std::min(log_weight + error, 700.0));
}

// Everything of one row that the bounds of its elements share.
struct RowBound {
  std::vector<double> weight;        // p_j, by term of the plan
  std::vector<double> perturbation;  // bound on |w_j / sum w - p_j|, exact normalisation
  double accumulation = 0.0;         // relative error of a term through products and sums
  double normaliser = 0.0;           // tau: relative error of the computed denominator
  double exponent_error = 0.0;       // T: largest error of an exponent of a weight that matters
  double largest_exponent = 0.0;     // M: no smaller than the magnitude of the row maximum
  double absolute = 0.0;             // what underflow can do to one weight
  bool in_range = true;
};

class BoundEvaluator {
 public:
  BoundEvaluator(const Case& problem, const CaseData& data, const Certified& certified,
                 const ArithmeticModel& model)
      : problem_(problem),
        contract_(problem.contract),
        data_(data),
        certified_(certified),
        model_(model) {}

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
    const RowBound bound = BoundRow(flat, row, plan);
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
      for (Index j = 0; j < n; ++j) {
        sum += std::fabs(data_.Value(row, j)[static_cast<std::size_t>(c)]);
      }
      if (n == 0 || !std::isfinite(sum)) continue;
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

  RowBound BoundRow(Index flat, const RowId& row, const RowPlan& plan) const {
    const double u = model_.unit_roundoff;
    const double n = static_cast<double>(plan.terms.size());
    const double scale = ScaleMagnitude();
    const double slope = Slope(row);

    const double sums = Gamma(n + 5.0, u);
    const double denominator_sums =
        (1.0 + Gamma(n + 3.0, u)) * (1.0 + model_.weight_roundoff) - 1.0;
    // The exponential itself, and for each rescaling of an online softmax one more and three
    // roundings (an output that is kept normalised is multiplied, and divided, by sums).
    const double exponentials =
        (n + 1.0) * std::log1p(2.0 * model_.exp_ulp * u) + 3.0 * n * std::log1p(u);
    const CertifiedValue lse_value = Exact("lse", static_cast<std::size_t>(flat));
    const double lse = lse_value.hi;
    const double lse_size = AtMost(lse_value);

    RowBound bound;
    bound.in_range = ScalesFit(row, plan);
    bound.accumulation = (1.0 + sums) * (1.0 + model_.weight_roundoff) - 1.0;
    bound.absolute = 2.0 * model_.smallest_normal + model_.weight_subnormal;
    double heaviest = kInfinity;  // |ln p| of the largest weight; large where a sink takes it all
    for (const KeyTerm& term : plan.terms) {
      const auto at = static_cast<std::size_t>(flat * contract_.shape.kv_len + term.key);
      const double log_weight = certified_.conditions.log_weight[at];
      heaviest = std::min(heaviest, std::fabs(log_weight) + LogError(log_weight));
    }
    bound.largest_exponent = lse_size + std::max(heaviest, std::log1p(n));
    // Shift by a maximum or by the LSE, change of base included; see "Exponents".
    const auto shift = [&](double log_weight) {
      return u * (12.0 * bound.largest_exponent + 8.0 * std::fabs(log_weight) +
                  4.0 * std::log1p(n) + 4.0);
    };
    for (const KeyTerm& term : plan.terms) {
      const auto at = static_cast<std::size_t>(flat * contract_.shape.kv_len + term.key);
      // What the condition may be off counts as an error of the exponent, and a weight is taken at
      // its largest (docs/bounds.md, "Conditions").
      const double log_weight = certified_.conditions.log_weight[at];
      const double log_error = LogError(log_weight);
      const double log_size = std::fabs(log_weight) + log_error;
      const double log_largest = log_weight + log_error;
      const double dot = certified_.conditions.score_condition[at];
      const double added = std::fabs(term.bias) + slope * static_cast<double>(term.distance);
      const double error =
          ScoreError(row, term, dot, added, lse_size + log_size) + shift(log_size) + exponentials;
      const bool matters = log_largest + error > kNegligible;
      if (matters) bound.exponent_error = std::max(bound.exponent_error, error);
      const double denominator_part = std::exp(log_largest);
      bound.normaliser +=
          Perturbation(denominator_part, log_largest, error) * (1.0 + denominator_sums) +
          denominator_part * denominator_sums;
      const double weight = WeightAtMost(certified_.conditions.weight[at]);
      bound.weight.push_back(weight);
      bound.perturbation.push_back(Perturbation(weight,
                                                log_largest - GaussianExponent(plan, term.key),
                                                error + GaussianError(plan, term.key)));
      // What is added to a score may overflow to -infinity where the weight is nothing anyway.
      const double unscaled = scale > 0.0 ? dot / scale : 0.0;
      const double largest = std::max({unscaled, dot, matters ? dot + added : 0.0});
      const double limit =
          model_.score_largest > 0.0 ? model_.score_largest : model_.largest_finite;
      if (largest > limit / 4.0) bound.in_range = false;
    }
    if (plan.sink) {
      const double log_weight = *plan.sink - lse + lse_value.radius;
      const double weight = std::exp(log_weight + LogError(log_weight));
      const double error = shift(log_weight) + exponentials;
      if (log_weight + error > kNegligible) {
        bound.exponent_error = std::max(bound.exponent_error, error);
      }
      bound.normaliser += Perturbation(weight, log_weight, error) * (1.0 + denominator_sums) +
                          weight * denominator_sums;
    }
    bound.normaliser += (n + 1.0) * bound.absolute;
    // Sums of exponentials that are off by e^T must not overflow either.
    if (!IsSharp(bound) &&
        !(bound.exponent_error + std::log1p(n) < std::log(model_.largest_finite / 4.0))) {
      bound.in_range = false;
    }
    return bound;
  }

  // E_j: the error of a score before the shift. `dot` is A_j, `added` what bias and ALiBi add in
  // magnitude, `score` no smaller than |s_j|.
  double ScoreError(const RowId& row, const KeyTerm& term, double dot, double added,
                    double score) const {
    const double u = model_.unit_roundoff;
    const double d = static_cast<double>(contract_.shape.k_dim);
    const double scale = ScaleMagnitude();
    const bool capped = contract_.softcap > 0.0;
    const double gamma = Gamma(d + kScoreRoundings + (capped ? kSoftcapRoundings : 0.0), u);
    double error = gamma * dot;
    if (!term.capped) {
      // Products of q, k and the scale may be subnormal, in any grouping of the three.
      const double sums =
          SumOfMagnitudes(data_.Query(row)) + SumOfMagnitudes(data_.Key(row, term.key));
      error +=
          model_.smallest_subnormal * ((d + 2.0) * (1.0 + scale) + sums * std::max(1.0, scale));
    }
    if (model_.score_roundoff > 0.0) {
      // q and k may have been scaled in the 16-bit type; a store rounds the score itself.
      const double stores = capped ? kScoreStores + 3.0 : kScoreStores;
      error += 2.0 * model_.score_roundoff * dot +
               Gamma(stores, model_.score_roundoff) *
                   (std::max(score, capped ? dot : 0.0) + 2.0 * added + error) +
               model_.weight_subnormal * stores * (scale + 1.0);
    }
    // Two capped scores are never farther apart than from -c to c.
    if (capped) error = std::min(error, 2.0 * contract_.softcap + gamma * contract_.softcap);
    return error + gamma * added;
  }

  // Whether the scale, the soft cap, and q and k times the scale are numbers of the format.
  bool ScalesFit(const RowId& row, const RowPlan& plan) const {
    const double scale = ScaleMagnitude();
    double largest = 0.0;
    const auto include = [&](std::span<const double> values) {
      for (const double value : values) {
        if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
      }
    };
    include(data_.Query(row));
    for (const KeyTerm& term : plan.terms) include(data_.Key(row, term.key));
    return std::max({scale, contract_.softcap, scale * largest}) <= model_.largest_finite / 4.0;
  }

  double ScaleMagnitude() const {
    return contract_.scale.rsqrt_dk ? 1.0 / std::sqrt(static_cast<double>(contract_.shape.k_dim))
                                    : std::fabs(contract_.scale.value);
  }

  double Slope(const RowId& row) const {
    if (!data_.has_alibi()) return 0.0;
    const std::optional<double> given = data_.GivenSlope(row.head);
    return given ? std::fabs(*given)
                 : std::exp2(DefaultAlibiExponent(row.head, contract_.shape.q_heads));
  }

  // (j - p)^2 / (2 sigma^2), what local-p attention takes from an exponent, and the error of that.
  double GaussianExponent(const RowPlan& plan, Index key) const {
    if (!plan.gaussian_center) return 0.0;
    const double z =
        (static_cast<double>(key) - *plan.gaussian_center) / contract_.local->half_width;
    return 2.0 * z * z;
  }
  double GaussianError(const RowPlan& plan, Index key) const {
    if (!plan.gaussian_center) return 0.0;
    const double center = std::fabs(*plan.gaussian_center) + static_cast<double>(key);
    const double z = center / contract_.local->half_width;
    return model_.unit_roundoff *
           (8.0 * GaussianExponent(plan, key) + 4.0 * z * z + 2.0 * model_.exp_ulp + 2.0);
  }
  // Whether tau is small enough to divide by 1 - tau. Written so that NaN is not.
  static bool IsSharp(const RowBound& bound) { return bound.normaliser < 0.5; }

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
      double value_sum = 0.0;
      double largest = 0.0;
      const auto element = static_cast<std::size_t>(flat * width + c);
      for (std::size_t t = 0; t < plan.terms.size(); ++t) {
        const double value =
            std::fabs(data_.Value(row, plan.terms[t].key)[static_cast<std::size_t>(c)]) * kept;
        if (std::isinf(value) && bound.weight[t] <= 8.0 * bound.absolute) {
          bounds_.vanishing_infinity[element] = 1;
        }
        const double kept_value = plan.terms[t].keep * value;
        magnitude += bound.weight[t] * kept_value;
        numerator_error +=
            (bound.perturbation[t] * (1.0 + accumulation) + bound.weight[t] * accumulation) *
            kept_value;
        value_sum += value;
        largest = std::max(largest, value);
      }
      bounds_.magnitude[element] = magnitude;
      if (!std::isfinite(magnitude)) continue;  // non-finite values are compared exactly
      const double exact = AtMost(Exact("out", element));
      const double underflow =
          bound.absolute * (value_sum + n * exact) + n * model_.smallest_subnormal;
      const double arithmetic =
          IsSharp(bound)
              ? (numerator_error + exact * bound.normaliser + underflow) / (1.0 - bound.normaliser)
              : largest * (1.0 + 1.01 * CrudeWeight(bound)) + underflow;
      const bool in_range = bound.in_range && arithmetic + value_sum <= model_.largest_finite / 4.0;
      bounds_.out[element] = Finished(in_range, arithmetic + RoundingOf("out", exact + arithmetic));
    }
  }

  // A bound, or infinity where there is none.
  static double Finished(bool in_range, double bound) {
    return in_range && std::isfinite(bound) ? kInflation * bound : kInfinity;
  }

  void WeightBounds(Index flat, const RowPlan& plan, const RowBound& bound) {
    const double roundings =
        (1.0 + Gamma(5.0, model_.unit_roundoff)) * (1.0 + model_.weight_roundoff) - 1.0;
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const double p = bound.weight[t];
      const double sharp =
          (bound.perturbation[t] * (1.0 + roundings) + p * (roundings + bound.normaliser)) /
              (1.0 - bound.normaliser) +
          2.0 * bound.absolute;
      const double arithmetic = IsSharp(bound) ? sharp : 1.0 + 1.01 * CrudeWeight(bound);
      const auto element =
          static_cast<std::size_t>(flat * contract_.shape.kv_len + plan.terms[t].key);
      bounds_.weights[element] =
          Finished(bound.in_range, arithmetic + RoundingOf("weights", p + arithmetic));
    }
  }

  void LseBound(Index flat, const RowPlan& plan, const RowBound& bound) {
    const auto element = static_cast<std::size_t>(flat);
    const double lse = AtMost(Exact("lse", element));
    const double u = model_.unit_roundoff;
    const double n = static_cast<double>(plan.terms.size());
    const double denominator =
        IsSharp(bound) ? -std::log1p(-bound.normaliser)
                       : bound.exponent_error + Gamma(n + 3.0, u) + 2.0 * model_.weight_roundoff;
    // The logarithm is allowed 4 ULP; maximum, change of base and last addition round the rest.
    const double arithmetic = denominator + 8.0 * u * (std::log1p(n) + 1.0) +
                              4.0 * u * (lse + bound.largest_exponent) + model_.smallest_subnormal;
    bounds_.lse[element] =
        Finished(bound.in_range, arithmetic + RoundingOf("lse", lse + arithmetic));
  }

  // A certified element; 0 where the output was not asked for.
  CertifiedValue Exact(const char* output, std::size_t element) const {
    const auto found = certified_.outputs.find(output);
    return found == certified_.outputs.end() ? CertifiedValue() : found->second.values[element];
  }
  // No smaller than its magnitude.
  static double AtMost(const CertifiedValue& exact) {
    return std::fabs(exact.hi) + std::fabs(exact.lo) + exact.radius;
  }

  const Case& problem_;
  const Contract& contract_;
  const CaseData& data_;
  const Certified& certified_;
  const ArithmeticModel& model_;
  ForwardBounds bounds_;
};

}  // namespace

ArithmeticModel ModelOf(const Contract& contract) {
  const Arithmetic& arithmetic = contract.arithmetic;
  const bool wide = contract.dtype == DType::kF64 || arithmetic.profile == "f64";
  const FloatFormat& format = wide ? kFormatF64 : kFormatF32;
  ArithmeticModel model{format.unit_roundoff(), std::ldexp(1.0, format.min_exponent),
                        format.smallest_subnormal(), format.largest_finite()};
  model.exp_ulp = arithmetic.exp_ulp;
  const bool flash = arithmetic.profile.ends_with("-flash");
  const bool math = arithmetic.profile.ends_with("-math");
  if (flash || math) {
    const FloatFormat& narrow = arithmetic.profile.starts_with("bf16") ? kFormatBF16 : kFormatF16;
    model.weight_roundoff = narrow.unit_roundoff();
    model.weight_subnormal = narrow.smallest_subnormal();
    if (math) {
      model.score_roundoff = narrow.unit_roundoff();
      model.score_largest = narrow.largest_finite();
    }
  }
  return model;
}

const std::vector<ProfileInfo>& Profiles() {
  static const std::vector<ProfileInfo> profiles{
      {"f32", "scores, exponentials, sums and accumulation in f32 (f64 for f64 tensors)"},
      {"f64", "the same in f64"},
      {"bf16-flash", "bf16 tensors, f32 inside, weights rounded to bf16 before the product with V"},
      {"f16-flash", "f16 tensors, f32 inside, weights rounded to f16 before the product with V"},
      {"bf16-math", "bf16 tensors; scores and weights stored in bf16 between f32 steps"},
      {"f16-math", "f16 tensors; scores and weights stored in f16 between f32 steps"},
  };
  return profiles;
}

ForwardBounds EvaluateBounds(const Case& problem, const Certified& certified,
                             const ArithmeticModel& model) {
  StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};  // Certify has refused such a case before
  return BoundEvaluator(problem, *data, certified, model).Run();
}

}  // namespace attest
