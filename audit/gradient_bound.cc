// SPDX-License-Identifier: Apache-2.0
// Contractions: what rows contribute, summed up to gradients in any order.
#include "audit/gradient_bound.h"

#include <algorithm>
#include <cmath>

#include "audit/gradient_row_bound.h"
#include "audit/roundoff.h"

namespace attest {
namespace {

// Covers the double arithmetic here: an audited case has at most 2^26 scores, and every formula
// sums up to that many nonnegative terms.
constexpr double kInflation = 1.0 + 0x1p-24;
// Roundings of one summand besides its product and its sums: scale, change of base, a third factor.
constexpr double kContractionRoundings = 8.0;
// How often the 16-bit profiles store what is contracted: a scaled q or k, a projection, the sum of
// one head, of a group.
constexpr double kContractionStores = 4.0;

// The gradient of one tensor while rows add to it.
struct Sums {
  std::vector<double> size;    // sum of the magnitudes of the summands, before the scale
  std::vector<double> error;   // of the summands
  std::vector<double> factor;  // what one lost subnormal is multiplied by, summed up
  std::vector<double> count;   // of summands

  explicit Sums(std::size_t elements)
      : size(elements, 0.0), error(size), factor(size), count(size) {}

  // `others` counts what else a lost subnormal may be multiplied by.
  void Add(Index element, const Erring& summand, double others, double summands = 1.0) {
    const auto at = static_cast<std::size_t>(element);
    size[at] += summand.size;
    error[at] += summand.error;
    factor[at] += others;
    count[at] += summands;
  }
};

Erring Times(const Erring& x, double factor) { return {x.size * factor, x.error * factor}; }
void Accumulate(Erring* sum, const Erring& x) {
  sum->size += x.size;
  sum->error += x.error;
}

class GradientEvaluator {
 public:
  GradientEvaluator(const Case& problem, const CaseData& data, const Certified& certified,
                    const ForwardBounds& forward, const ArithmeticModel& model)
      : problem_(problem),
        contract_(problem.contract),
        s_(problem.contract.shape),
        data_(data),
        certified_(certified),
        model_(model),
        rows_(data, certified, forward, model) {
    for (const std::string& name : contract_.outputs) {
      if (!name.starts_with("grad_")) continue;
      sums_.emplace(name, static_cast<std::size_t>(ElementCount(OutputShape(problem, name))));
    }
  }

  GradientBounds Run() {
    if (sums_.empty()) return {};
    for (Index flat = 0; flat < s_.batch * s_.q_heads * s_.q_len; ++flat) DoRow(flat);
    GradientBounds bounds;
    for (const auto& [name, sums] : sums_) bounds[name] = Finished(name, sums);
    return bounds;
  }

 private:
  Sums* Find(const char* output) {
    const auto found = sums_.find(output);
    return found == sums_.end() ? nullptr : &found->second;
  }

  void DoRow(Index flat) {
    const RowId row = RowAt(s_, flat);
    const RowPlan plan = data_.Plan(row);
    // Gradients that such a row reaches are NaN, and no bound is needed.
    if (plan.kind != RowPlan::Kind::kFinite && plan.kind != RowPlan::Kind::kEmpty) return;
    GradientRowBound bound = rows_.Of(flat, row, plan);
    if (!bound.in_range) {
      bound.d_sink.error = kNoBound;
      for (GradientTerm& term : bound.terms) {
        term.kept.error = term.ds.error = term.dr.error = kNoBound;
      }
    }
    if (Sums* sums = Find("grad_sinks"); sums != nullptr && plan.sink) {
      sums->Add(row.head, bound.d_sink, 1.0);
    }
    if (plan.terms.empty()) return;
    AddToValues(flat, row, plan, bound);
    AddToBias(row, plan, bound);
    if (contract_.score == ScoreKind::kDot) AddByDot(flat, row, plan, bound);
    if (contract_.score == ScoreKind::kGeneral) AddByGeneral(flat, row, plan, bound);
    if (contract_.score == ScoreKind::kAdditive) AddByAdditive(flat, row, plan, bound);
  }

  // Where the elements of a key begin in a tensor [B, Hkv, Tk, width].
  Index OfKey(const RowId& row, Index key, Index width) const {
    const Index group = row.head / (s_.q_heads / s_.kv_heads);
    return ((row.batch * s_.kv_heads + group) * s_.kv_len + key) * width;
  }

  void AddToValues(Index flat, const RowId& row, const RowPlan& plan,
                   const GradientRowBound& bound) {
    Sums* const sums = Find("grad_v");
    const Tensor* const grad_out = problem_.Find("grad_out");
    if (sums == nullptr || grad_out == nullptr) return;
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const Erring& kept = bound.terms[t].kept;
      const Index first = OfKey(row, plan.terms[t].key, s_.v_dim);
      for (Index c = 0; c < s_.v_dim; ++c) {
        const double d_out = std::fabs(grad_out->At(flat * s_.v_dim + c));
        sums->Add(first + c, Times(kept, d_out), d_out + kept.size);
      }
    }
  }

  void AddToBias(const RowId& row, const RowPlan& plan, const GradientRowBound& bound) {
    Sums* const sums = Find("grad_bias");
    if (sums == nullptr) return;
    const Shape& shape = problem_.Find("bias")->shape();
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const Index index[] = {row.batch, row.head, row.query, plan.terms[t].key};
      Index element = 0;
      for (std::size_t axis = 0; axis < 4; ++axis) {
        element = element * shape[axis] + (shape[axis] == 1 ? 0 : index[axis]);
      }
      sums->Add(element, bound.terms[t].ds, 1.0);
    }
  }

  void AddByDot(Index flat, const RowId& row, const RowPlan& plan, const GradientRowBound& bound) {
    Sums* const of_q = Find("grad_q");
    Sums* const of_k = Find("grad_k");
    const std::span<const double> q = data_.Query(row);
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const Erring& dr = bound.terms[t].dr;
      const std::span<const double> k = data_.Key(row, plan.terms[t].key);
      const Index first = OfKey(row, plan.terms[t].key, s_.k_dim);
      for (Index d = 0; d < s_.k_dim; ++d) {
        const double q_d = std::fabs(q[static_cast<std::size_t>(d)]);
        const double k_d = std::fabs(k[static_cast<std::size_t>(d)]);
        if (of_q) of_q->Add(flat * s_.qk_dim + d, Times(dr, k_d), k_d + dr.size);
        if (of_k) of_k->Add(first + d, Times(dr, q_d), q_d + dr.size);
      }
    }
  }

  // dR_j W_ab k_jb summed up to q_a, dR_j W_ab q_a to k_jb, dR_j q_a k_jb to W_ab.
  void AddByGeneral(Index flat, const RowId& row, const RowPlan& plan,
                    const GradientRowBound& bound) {
    Sums* const of_q = Find("grad_q");
    Sums* const of_k = Find("grad_k");
    Sums* const of_w = Find("grad_w");
    const std::span<const double> q = data_.Query(row);
    const auto d_q = static_cast<double>(s_.qk_dim);
    const auto d_k = static_cast<double>(s_.k_dim);
    const auto n = static_cast<double>(plan.terms.size());
    for (Index b = 0; b < s_.k_dim; ++b) {
      const std::span<const double> w = data_.WColumn(b);
      const auto at = static_cast<std::size_t>(b);
      double query_side = 0.0;  // (|W|^T |q|)_b
      for (std::size_t a = 0; a < q.size(); ++a) query_side += std::fabs(w[a] * q[a]);
      const double column = SumOfMagnitudes(w);
      Erring key_sum;  // sum_j |dR_j| |k_jb|
      double keys = 0.0;
      double scores = 0.0;
      for (std::size_t t = 0; t < plan.terms.size(); ++t) {
        const Erring& dr = bound.terms[t].dr;
        const double k_b = std::fabs(data_.Key(row, plan.terms[t].key)[at]);
        Accumulate(&key_sum, Times(dr, k_b));
        keys += k_b;
        scores += dr.size;
        if (of_k) {
          of_k->Add(OfKey(row, plan.terms[t].key, s_.k_dim) + b, Times(dr, query_side),
                    query_side + column + d_q * (dr.size + 1.0));
        }
      }
      for (std::size_t a = 0; a < q.size(); ++a) {
        const auto index = static_cast<Index>(a);
        const double w_ab = std::fabs(w[a]);
        const double q_a = std::fabs(q[a]);
        if (of_q) {  // counted once a column: D_k n summands are n + D_k roundings at most
          of_q->Add(flat * s_.qk_dim + index, Times(key_sum, w_ab),
                    w_ab * (keys + n) + d_k * scores + 1.0, b == 0 ? n : 0.0);
        }
        if (of_w) {
          of_w->Add(index * s_.k_dim + b, Times(key_sum, q_a), q_a * (keys + n) + keys + scores, n);
        }
      }
    }
  }

  // z_ja = dR_j v_a (1 - t_ja^2) times W_q, W_k, q, k or alone; dR_j t_ja summed up to v_a.
  void AddByAdditive(Index flat, const RowId& row, const RowPlan& plan,
                     const GradientRowBound& bound) {
    const auto width = static_cast<std::size_t>(data_.additive_width());
    std::vector<Erring> sum(width);  // of z_ja over the keys
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const Erring& dr = bound.terms[t].dr;
      const Index key = plan.terms[t].key;
      const std::vector<HiddenError> units = rows_.scores().Hidden(row, key);
      std::vector<Erring> z(width);
      for (std::size_t a = 0; a < width; ++a) {
        z[a] = UnitGradient(units[a], std::fabs(data_.va()[a]), dr);
        Accumulate(&sum[a], z[a]);
        AddToUnit(static_cast<Index>(a), units[a], z[a], dr, row, key);
      }
      AddUnitsToKey(row, key, z);
    }
    const std::span<const double> q = data_.Query(row);
    const auto n = static_cast<double>(plan.terms.size());
    for (std::size_t a = 0; a < width; ++a) {
      const auto index = static_cast<Index>(a);
      const double lost = n * Lost(a);
      for (std::size_t d = 0; d < q.size(); ++d) {
        const auto column = static_cast<Index>(d);
        const double w = std::fabs(data_.WqRow(index)[d]);
        if (Sums* of_q = Find("grad_q")) {  // counted once a unit, as above
          of_q->Add(flat * s_.qk_dim + column, Times(sum[a], w), lost * w + n + sum[a].size,
                    a == 0 ? n : 0.0);
        }
        if (Sums* of_w_q = Find("grad_w_q")) {
          const double q_d = std::fabs(q[d]);
          of_w_q->Add(index * s_.qk_dim + column, Times(sum[a], q_d), lost * q_d + n + sum[a].size,
                      n);
        }
      }
    }
  }

  // What a subnormal lost in z_a is multiplied by: dR_j, or its product, times v_a.
  double Lost(std::size_t a) const { return 1.0 + std::fabs(data_.va()[a]); }

  Erring UnitGradient(const HiddenError& unit, double v, const Erring& dr) const {
    const double slope_error = rows_.SlopeError(unit);
    Erring z = Times(dr, v * unit.slope);
    z.error = v * (dr.error * (unit.slope + slope_error) + dr.size * slope_error);
    z.error += Both(Gamma(3.0, model_.unit_roundoff),
                    Both(model_.weight_roundoff, Gamma(3.0, model_.score_roundoff))) *
               (z.size + z.error);
    const double limit =
        (model_.weight_largest > 0.0 ? model_.weight_largest : model_.largest_finite) / 4.0;
    const double largest = (z.size + z.error) * std::max(1.0, rows_.scores().scale());
    if (!(largest <= limit)) z.error = kNoBound;
    return z;
  }

  // What one key adds to the parameters of unit a, but for W_q.
  void AddToUnit(Index a, const HiddenError& unit, const Erring& z, const Erring& dr,
                 const RowId& row, Index key) {
    const double lost = Lost(static_cast<std::size_t>(a));
    if (Sums* of_b = Find("grad_b")) of_b->Add(a, z, lost);
    if (Sums* of_v = Find("grad_v_a")) {
      // The tanh is an operand of a product, which the 16-bit profiles round.
      const double tanh_error =
          unit.error + model_.weight_roundoff * (unit.tanh + unit.error) + model_.weight_subnormal;
      of_v->Add(a,
                {dr.size * unit.tanh, dr.error * (unit.tanh + tanh_error) + dr.size * tanh_error},
                unit.tanh + 1.0 + dr.size);
    }
    if (Sums* of_w_k = Find("grad_w_k")) {
      const std::span<const double> k = data_.Key(row, key);
      for (std::size_t d = 0; d < k.size(); ++d) {
        const double k_d = std::fabs(k[d]);
        of_w_k->Add(a * s_.k_dim + static_cast<Index>(d), Times(z, k_d), lost * k_d + 1.0 + z.size);
      }
    }
  }

  void AddUnitsToKey(const RowId& row, Index key, const std::vector<Erring>& z) {
    Sums* const of_k = Find("grad_k");
    if (of_k == nullptr) return;
    const Index first = OfKey(row, key, s_.k_dim);
    for (std::size_t a = 0; a < z.size(); ++a) {
      for (Index d = 0; d < s_.k_dim; ++d) {
        const double w = std::fabs(data_.WkRow(static_cast<Index>(a))[static_cast<std::size_t>(d)]);
        of_k->Add(first + d, Times(z[a], w), Lost(a) * w + 1.0 + z[a].size, a == 0 ? 1.0 : 0.0);
      }
    }
  }

  // Roundings of a summand through sums over the inner axis of a projection.
  double ProjectionRoundings(const std::string& name) const {
    const bool by_query = name == "grad_q";
    if (!by_query && name != "grad_k") return 0.0;
    if (contract_.score == ScoreKind::kDot) return 0.0;
    if (contract_.score == ScoreKind::kAdditive) {
      return static_cast<double>(data_.additive_width());
    }
    return static_cast<double>(by_query ? s_.k_dim : s_.qk_dim);
  }

  GradientBound Finished(const std::string& name, const Sums& sums) const {
    const bool through_score = name != "grad_v" && name != "grad_bias" && name != "grad_sinks";
    const double scale = through_score ? rows_.scores().scale() : 1.0;
    const double stretch = std::max(1.0, scale);
    const double inner = ProjectionRoundings(name);
    const bool narrow = model_.score_roundoff > 0.0;
    const double eta = model_.smallest_subnormal;
    const double narrow_eta = narrow ? model_.weight_subnormal : 0.0;
    // Where dS is stored in 16 bits a summand may be lost there, once or after each step.
    const double lost = 3.0 * eta + (narrow ? kContractionStores : 1.0) * model_.weight_subnormal;
    const double limit = (narrow ? model_.score_largest : model_.largest_finite) / 4.0;
    const FloatFormat& format = FormatOf(OutputDType(problem_, name));
    const std::vector<CertifiedValue>& exact = certified_.outputs.at(name).values;
    GradientBound result;
    for (std::size_t at = 0; at < sums.size.size(); ++at) {
      const double size = sums.size[at];
      const double error = sums.error[at];
      result.magnitude.push_back(scale * size);
      if (sums.count[at] == 0.0) {
        result.bound.push_back(0.0);
        continue;
      }
      const double gamma =
          Both(Gamma(sums.count[at] + inner + kContractionRoundings, model_.unit_roundoff),
               Gamma(kContractionStores, model_.score_roundoff));
      const double arithmetic = scale * (error + gamma * (size + error)) +
                                stretch * sums.factor[at] * lost +
                                sums.count[at] * (1.0 + scale) * (eta + narrow_eta);
      const double rounding =
          format.unit_roundoff() * (AtMost(exact[at]) + arithmetic) + format.smallest_subnormal();
      const bool in_range = stretch * (size + error) <= limit;
      const double bound = kInflation * (arithmetic + rounding);
      result.bound.push_back(in_range && std::isfinite(bound) ? bound : kNoBound);
    }
    return result;
  }

  const Case& problem_;
  const Contract& contract_;
  const Dimensions& s_;
  const CaseData& data_;
  const Certified& certified_;
  const ArithmeticModel& model_;
  const GradientRowBounds rows_;
  std::map<std::string, Sums> sums_;
};

}  // namespace

GradientBounds EvaluateGradientBounds(const Case& problem, const Certified& certified,
                                      const ForwardBounds& forward, const ArithmeticModel& model) {
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};  // Certify has refused such a case before
  return GradientEvaluator(problem, *data, certified, forward, model).Run();
}

}  // namespace attest
