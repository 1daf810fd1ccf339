// SPDX-License-Identifier: Apache-2.0
#include "audit/gradient_row_bound.h"

#include <algorithm>
#include <cmath>

#include "audit/roundoff.h"

namespace attest {
namespace {

std::vector<double> Load(const CaseData& data, const char* name) {
  const Tensor* tensor = data.Find(name);
  return tensor == nullptr ? std::vector<double>() : ToDoubles(*tensor);
}

}  // namespace

// How weights of one row are computed: normalised by their own sum, or recomputed from the LSE.
struct GradientRowBounds::Weights {
  double normaliser;  // tau
  double lse_error;   // of an LSE that was rounded to its type
  double roundings;   // r: of a weight's normalisation and storage
  double absolute;    // underflow

  // |P^ - p|, whichever way; the arguments as in WeightBound.
  double Error(double weight, double log_weight, double exponent) const {
    const double normalised = (Perturbation(weight, log_weight, exponent) * (1.0 + roundings) +
                               weight * (roundings + normaliser)) /
                              (1.0 - normaliser);
    const double recomputed =
        Perturbation(weight, log_weight, exponent + lse_error) * (1.0 + roundings) +
        weight * roundings;
    return std::max(normalised, recomputed) + 2.0 * absolute;
  }
};

// dP_j by term, and delta.
struct GradientRowBounds::Products {
  std::vector<double> d_weight;  // dP_j itself, in double
  std::vector<Erring> of_term;
  std::vector<double> softmax_error;  // |P^_j - p_j|
  double delta = 0.0;                 // in double
  double delta_inexact = 0.0;         // how far that may be off
  Erring of_delta;
  bool in_range = true;
};

GradientRowBounds::GradientRowBounds(const CaseData& data, const Certified& certified,
                                     const ForwardBounds& forward, const ArithmeticModel& model)
    : data_(data),
      contract_(data.contract()),
      forward_(forward),
      model_(model),
      rows_(data, certified, model),
      grad_out_(Load(data, "grad_out")),
      grad_lse_(Load(data, "grad_lse")) {}

double GradientRowBounds::GradLse(Index flat) const {
  return grad_lse_.empty() ? 0.0 : grad_lse_[static_cast<std::size_t>(flat)];
}

double GradientRowBounds::SlopeError(const HiddenError& tanh) const {
  const double error = tanh.error * (2.0 * tanh.tanh + tanh.error) + 3.0 * model_.unit_roundoff;
  return error + 2.0 * model_.score_roundoff +
         (model_.score_roundoff > 0.0 ? model_.weight_subnormal : 0.0);
}

GradientRowBound GradientRowBounds::OfEmptyRow(Index flat, const RowPlan& plan) const {
  GradientRowBound result;
  if (!plan.sink) return result;
  const double u = model_.unit_roundoff;
  const double d_lse = std::fabs(GradLse(flat));
  // The share is 1, or e^(sink - LSE) with an LSE that is the sink up to its bound.
  const double exponent = forward_.lse[static_cast<std::size_t>(flat)] +
                          u * (4.0 * std::fabs(*plan.sink) + 4.0) +
                          std::log1p(2.0 * model_.exp_ulp * u);
  const double roundings =
      Both(Gamma(5.0, u), Both(model_.weight_roundoff, Gamma(3.0, model_.score_roundoff)));
  const double share = Perturbation(1.0, 0.0, exponent);
  result.d_sink = {d_lse, d_lse * Both(share, roundings) + 2.0 * model_.smallest_subnormal};
  return result;
}

GradientRowBounds::Products GradientRowBounds::ProductsOf(Index flat, const RowId& row,
                                                          const RowPlan& plan,
                                                          const RowBound& bound) const {
  const double u = model_.unit_roundoff;
  const double narrow = model_.score_roundoff;  // 0 unless dP and delta are stored in 16 bits
  const double narrow_eta = narrow > 0.0 ? model_.weight_subnormal : 0.0;
  const double eta = model_.smallest_subnormal;
  const Index width = contract_.shape.v_dim;
  const auto d_v = static_cast<double>(width);
  const auto n = static_cast<double>(plan.terms.size());
  const double rate = data_.dropout_rate();
  const double kept = 1.0 / (1.0 - rate);
  const double dropping = rate > 0.0 ? u * (4.0 + 2.0 * rate * kept) : 0.0;
  const double limit = (narrow > 0.0 ? model_.score_largest : model_.largest_finite) / 4.0;
  const auto grad_out = [&](Index c) {
    return grad_out_.empty() ? 0.0 : grad_out_[static_cast<std::size_t>(flat * width + c)];
  };
  double grad_out_sum = 0.0;
  for (Index c = 0; c < width; ++c) grad_out_sum += std::fabs(grad_out(c));

  Products products;
  for (std::size_t t = 0; t < plan.terms.size(); ++t) {
    const WeightBound& w = bound.terms[t];
    const std::span<const double> value = data_.Value(row, plan.terms[t].key);
    double product = 0.0;
    double magnitude = 0.0;  // C_j
    double value_sum = 0.0;
    for (Index c = 0; c < width; ++c) {
      const double v = value[static_cast<std::size_t>(c)];
      product += grad_out(c) * v;
      magnitude += std::fabs(grad_out(c) * v);
      value_sum += std::fabs(v);
    }
    const bool weakened = plan.gaussian_center.has_value();
    const double factor = plan.terms[t].keep * kept * w.gaussian;  // m_j
    const double factor_error = Both(std::expm1(w.gaussian_error), dropping);
    Erring d_weight;
    d_weight.size = factor * (std::fabs(product) + (d_v + 4.0) * 0x1p-52 * magnitude);
    if (plan.terms[t].keep != 0.0) {
      d_weight.error = factor * magnitude * Both(Gamma(d_v + 2.0, u), factor_error) +
                       eta * ((d_v + 2.0) * (1.0 + kept) + (value_sum + grad_out_sum) * kept) +
                       (weakened ? bound.absolute * magnitude * kept : 0.0);
      // dO scaled, the product and the product times m, each stored.
      if (rate > 0.0) d_weight.error += narrow * factor * magnitude;
      d_weight.error += Gamma(2.0, narrow) * (d_weight.size + d_weight.error) +
                        narrow_eta * (2.0 + value_sum) * kept;
    }
    if (!(magnitude * kept <= limit)) products.in_range = false;
    products.d_weight.push_back(factor * product);
    products.of_term.push_back(d_weight);
  }

  const double roundings = Both(Gamma(5.0, u), model_.weight_roundoff);
  const Weights weights{bound.normaliser, forward_.lse[static_cast<std::size_t>(flat)], roundings,
                        bound.absolute};
  // From the weights: sum_j P_j dP_j in any order.
  double from_weights = 0.0;
  double sum = 0.0;  // of p_j |dP_j|
  for (std::size_t t = 0; t < plan.terms.size(); ++t) {
    const WeightBound& w = bound.terms[t];
    const Erring& d_weight = products.of_term[t];
    const double error = weights.Error(w.softmax, w.log_softmax, w.exponent);
    products.softmax_error.push_back(error);
    from_weights += error * (d_weight.size + d_weight.error) + w.softmax * d_weight.error;
    sum += w.softmax * d_weight.size;
    products.delta += w.softmax * products.d_weight[t];
    const double inexact = d_weight.size - std::fabs(products.d_weight[t]);
    products.delta_inexact += w.softmax * (3.0 * LogError(w.log_softmax) * d_weight.size + inexact);
  }
  const double sums = Both(Gamma(n + 2.0, u), Gamma(3.0, narrow));
  from_weights += sums * (sum + from_weights) + (n + 1.0) * (eta + narrow_eta);
  // From the output, rounded or not: sum_c dO_c o_c in any order.
  double from_output = 0.0;
  double output_sum = 0.0;
  const double largest_output = FormatOf(contract_.out_dtype).largest_finite();
  for (Index c = 0; c < width; ++c) {
    if (grad_out(c) == 0.0) continue;
    const auto element = static_cast<std::size_t>(flat * width + c);
    const double output = AtMost(rows_.Exact("out", element));
    from_output += std::fabs(grad_out(c)) * forward_.out[element];
    output_sum += std::fabs(grad_out(c)) * output;
    if (!(output + forward_.out[element] <= largest_output)) products.in_range = false;
  }
  const double output_sums = Both(Gamma(d_v + 1.0, u), Gamma(3.0, narrow));
  from_output += output_sums * (output_sum + from_output) + (d_v + 1.0) * (eta + narrow_eta);
  products.of_delta = {std::fabs(products.delta) + products.delta_inexact,
                       std::max(from_weights, from_output)};
  if (!(std::max(sum + from_weights, output_sum + from_output) <= limit)) {
    products.in_range = false;
  }
  return products;
}

GradientRowBound GradientRowBounds::Of(Index flat, const RowId& row, const RowPlan& plan) const {
  if (plan.kind == RowPlan::Kind::kEmpty) return OfEmptyRow(flat, plan);
  const double u = model_.unit_roundoff;
  const double eta = model_.smallest_subnormal;
  const double narrow = model_.score_roundoff;
  const double narrow_eta = narrow > 0.0 ? model_.weight_subnormal : 0.0;
  const double stored = model_.weight_roundoff;  // dS is rounded to this type
  const RowBound bound = rows_.Of(flat, row, plan);
  const Products products = ProductsOf(flat, row, plan, bound);
  const double lse_error = forward_.lse[static_cast<std::size_t>(flat)];
  const double roundings = Both(Gamma(5.0, u), stored);
  const Weights weights{bound.normaliser, lse_error, roundings, bound.absolute};
  const double rate = data_.dropout_rate();
  const double kept = 1.0 / (1.0 - rate);
  const double dropping = rate > 0.0 ? u * (4.0 + 2.0 * rate * kept) : 0.0;
  const double d_lse = GradLse(flat);
  const Erring& delta = products.of_delta;
  const double limit =
      (model_.weight_largest > 0.0 ? model_.weight_largest : model_.largest_finite) / 4.0;

  GradientRowBound result;
  result.in_range = bound.in_range && bound.IsSharp() && products.in_range &&
                    std::isfinite(lse_error) && std::isfinite(delta.error);
  // p (dP - delta + dL), by any grouping: `z` is the magnitude of the exact factor, `parts` the sum
  // of its parts' as they are computed.
  const auto d_score = [&](double p, double p_error, double z, const Erring& d_weight) {
    const double parts =
        d_weight.size + d_weight.error + delta.size + delta.error + std::fabs(d_lse);
    const double factor_error = d_weight.error + delta.error +
                                Both(Gamma(3.0, u), Gamma(2.0, narrow)) * parts + 2.0 * narrow_eta;
    Erring ds;
    ds.size = p * z;
    ds.error = p_error * (z + factor_error) + p * factor_error +
               Both(Gamma(4.0, u), Gamma(3.0, narrow)) * (p + p_error) * parts + 2.0 * eta +
               3.0 * narrow_eta;
    if (!(parts <= limit)) result.in_range = false;
    return ds;
  };
  for (std::size_t t = 0; t < plan.terms.size(); ++t) {
    const WeightBound& w = bound.terms[t];
    const Erring& d_weight = products.of_term[t];
    GradientTerm term;
    const double factor = plan.terms[t].keep * kept;
    term.kept.size = factor * w.weight;
    term.kept.error = factor * (weights.Error(w.weight, w.log_softmax - w.gaussian_log,
                                              w.exponent + w.gaussian_error) *
                                    (1.0 + dropping) +
                                w.weight * dropping);
    const double inexact = d_weight.size - std::fabs(products.d_weight[t]);
    const double z = std::fabs(products.d_weight[t] - products.delta + d_lse) + inexact +
                     products.delta_inexact + 0x1p-48 * (d_weight.size + std::fabs(d_lse));
    term.ds = d_score(w.softmax, products.softmax_error[t], z, d_weight);
    const CapError cap = rows_.scores().Cap(row, plan.terms[t], w.score);
    const double slope_error = contract_.softcap > 0.0 ? SlopeError(cap) : 0.0;
    term.dr.size = cap.slope * term.ds.size;
    term.dr.error = (cap.slope + slope_error) * term.ds.error + slope_error * term.ds.size;
    for (Erring* rounded : {&term.ds, &term.dr}) {
      rounded->error += Both(Gamma(2.0, u), stored) * (rounded->size + rounded->error);
    }
    const double scaled = std::max(1.0, rows_.scores().scale());
    const double largest =
        std::max({(term.ds.size + term.ds.error) * scaled, term.kept.size + term.kept.error,
                  w.softmax + products.softmax_error[t]});
    if (!(largest <= limit)) result.in_range = false;
    result.terms.push_back(term);
  }
  if (plan.sink) {
    const WeightBound& sink = bound.sink;
    const double error = weights.Error(sink.softmax, sink.log_softmax, sink.exponent);
    const double z =
        std::fabs(d_lse - products.delta) + products.delta_inexact + 0x1p-48 * std::fabs(d_lse);
    result.d_sink = d_score(sink.softmax, error, z, {});
    result.d_sink.error += stored * (result.d_sink.size + result.d_sink.error);
  }
  return result;
}

}  // namespace attest
