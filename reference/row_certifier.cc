// SPDX-License-Identifier: Apache-2.0
#include "reference/row_certifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/row_enclosure.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

CertifiedValue Exactly(double value) { return {value, value, 0.0, 0.0, Rung::kRule, true}; }

// What column `column` of v does to the output where it is not finite: NaN, an infinity, or
// nothing (all values that take part are finite).
std::optional<double> NonFiniteColumn(const CaseData& data, const RowId& row, const RowPlan& plan,
                                      Index column) {
  double sum = 0.0;
  bool special = false;
  const auto add = [&](Index key, bool positive_weight) {
    const double value = data.Value(row, key)[static_cast<std::size_t>(column)];
    if (std::isfinite(value)) return;
    special = true;
    sum += positive_weight ? value : kNaN;  // 0 * NaN and 0 * infinity are NaN
  };
  for (const KeyTerm& term : plan.terms) add(term.key, term.keep != 0.0);
  for (const Index key : plan.vanishing) add(key, false);
  if (!special) return std::nullopt;
  return sum;
}

// One row at work.
class RowTask {
 public:
  RowTask(const CaseData& data, const CertifyOptions& options, Certified* result)
      : contract_(data.contract()), data_(data), options_(options), result_(*result) {}

  BallEffort Run(Index flat) {
    DoRow(flat);
    return effort_;
  }

 private:
  // An element that an enclosure decides, and where it goes.
  struct Pending {
    const char* tensor;
    Index element;
    Index position;  // output column, or term of the plan
  };

  CertifiedTensor* Find(const char* name) {
    const auto found = result_.outputs.find(name);
    return found == result_.outputs.end() ? nullptr : &found->second;
  }
  void Set(const char* name, Index element, const CertifiedValue& value) {
    CertifiedTensor* tensor = Find(name);
    if (tensor == nullptr) return;
    CertifiedValue& at = tensor->values[static_cast<std::size_t>(element)];
    if (!at.decided) at = value;
  }

  void DoRow(Index flat) {
    const Dimensions& s = contract_.shape;
    const RowId row = RowAt(s, flat);
    const RowPlan plan = data_.Plan(row);
    ForbiddenWeights(flat, plan);
    switch (plan.kind) {
      case RowPlan::Kind::kEmpty:
        EmptyRowValues(flat, row, plan);
        break;
      case RowPlan::Kind::kNotANumber:
        NotANumberRow(flat, plan);
        break;
      case RowPlan::Kind::kAllMinusInfinity:
        if (plan.sink) {
          SinkTakesAll(flat, row, plan);
        } else {
          NotANumberRow(flat, plan);
        }
        break;
      case RowPlan::Kind::kFinite:
        FiniteRow(flat, row, plan);
        break;
    }
    if (options_.conditions) MarkAllowed(flat, plan);
  }

  // Weights of keys that are not allowed are 0, except in an empty row.
  void ForbiddenWeights(Index flat, const RowPlan& plan) {
    if (Find("weights") == nullptr || !plan.has_allowed_key()) return;
    const Index n = contract_.shape.kv_len;
    std::vector<bool> allowed(static_cast<std::size_t>(n));
    for (const KeyTerm& term : plan.terms) allowed[static_cast<std::size_t>(term.key)] = true;
    for (const Index key : plan.not_a_number) allowed[static_cast<std::size_t>(key)] = true;
    // A score of -infinity has weight 0, unless the whole row is NaN.
    const bool weights_are_nan = plan.kind == RowPlan::Kind::kNotANumber ||
                                 (plan.kind == RowPlan::Kind::kAllMinusInfinity && !plan.sink);
    for (const Index key : plan.vanishing) {
      allowed[static_cast<std::size_t>(key)] = weights_are_nan;
    }
    for (Index j = 0; j < n; ++j) {
      if (!allowed[static_cast<std::size_t>(j)]) Set("weights", flat * n + j, Exactly(0.0));
    }
  }

  void SetOutputRow(Index flat, double value) {
    const Index width = contract_.shape.v_dim;
    for (Index c = 0; c < width; ++c) Set("out", flat * width + c, Exactly(value));
  }

  void NotANumberRow(Index flat, const RowPlan& plan) {
    SetOutputRow(flat, kNaN);
    Set("lse", flat, Exactly(kNaN));
    const Index n = contract_.shape.kv_len;
    for (const KeyTerm& term : plan.terms) Set("weights", flat * n + term.key, Exactly(kNaN));
    for (const Index key : plan.vanishing) Set("weights", flat * n + key, Exactly(kNaN));
    for (const Index key : plan.not_a_number) Set("weights", flat * n + key, Exactly(kNaN));
  }

  // All allowed scores are -infinity and a finite sink takes the whole weight.
  void SinkTakesAll(Index flat, const RowId& row, const RowPlan& plan) {
    const Index width = contract_.shape.v_dim;
    for (Index c = 0; c < width; ++c) {
      Set("out", flat * width + c, Exactly(NonFiniteColumn(data_, row, plan, c).value_or(0.0)));
    }
    Set("lse", flat, Exactly(*plan.sink));
  }

  void EmptyRowValues(Index flat, const RowId& row, const RowPlan& plan) {
    const Index n = contract_.shape.kv_len;
    const auto set_row = [&](double out, double lse, double weight) {
      SetOutputRow(flat, out);
      Set("lse", flat, Exactly(lse));
      for (Index j = 0; j < n; ++j) Set("weights", flat * n + j, Exactly(weight));
    };
    if (plan.sink_is_nan || plan.sink) {
      set_row(plan.sink_is_nan ? kNaN : 0.0, plan.sink_is_nan ? kNaN : *plan.sink, 0.0);
    } else if (contract_.empty_row == EmptyRow::kNan) {
      set_row(kNaN, kNaN, kNaN);
    } else if (contract_.empty_row == EmptyRow::kUniform && n > 0) {
      Set("lse", flat, Exactly(-kInfinity));
      UniformRow(flat, row);
    } else {
      set_row(0.0, -kInfinity, 0.0);
    }
  }

  // The mean of v over all keys, whatever they hold; weights 1/Tk.
  void UniformRow(Index flat, const RowId& row) {
    const Index n = contract_.shape.kv_len;
    const Index width = contract_.shape.v_dim;
    const auto mean = [&](Index column) {
      Ball sum;
      for (Index j = 0; j < n; ++j) {
        sum.AddProduct(Ball(1.0), data_.Value(row, j)[static_cast<std::size_t>(column)]);
      }
      return sum / Ball(static_cast<long>(n));
    };
    std::vector<Pending> pending;
    for (Index c = 0; c < width; ++c) {
      double special = 0.0;
      for (Index j = 0; j < n; ++j) {
        const double value = data_.Value(row, j)[static_cast<std::size_t>(c)];
        if (!std::isfinite(value)) special += value;
      }
      if (special == 0.0) {
        pending.push_back({"out", flat * width + c, c});
      } else {
        Set("out", flat * width + c, Exactly(special));
      }
    }
    for (Index j = 0; j < n; ++j) pending.push_back({"weights", flat * n + j, -1});
    // A mean is a rational number: at the precision that holds the sum exactly, a midpoint is
    // exact and rounds to even by itself.
    Resolve(
        std::move(pending),
        [&](const Pending& p) {
          return p.position < 0 ? Ball(1.0) / Ball(static_cast<long>(n)) : mean(p.position);
        },
        [](const Pending&, Ball*, const FloatFormat&) { return std::optional<double>(); }, [] {});
  }

  void FiniteRow(Index flat, const RowId& row, const RowPlan& plan) {
    const Index width = contract_.shape.v_dim;
    const Index n = contract_.shape.kv_len;
    std::vector<Pending> pending;
    for (Index c = 0; c < width; ++c) {
      if (const std::optional<double> special = NonFiniteColumn(data_, row, plan, c); special) {
        Set("out", flat * width + c, Exactly(*special));
      } else {
        pending.push_back({"out", flat * width + c, c});
      }
    }
    pending.push_back({"lse", flat, -1});
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      pending.push_back({"weights", flat * n + plan.terms[t].key, static_cast<Index>(t)});
    }
    std::optional<RowEnclosure> enclosure;
    Resolve(
        std::move(pending),
        [&](const Pending& p) {
          if (p.tensor[0] == 'o') return enclosure->Output(p.position);
          return p.position < 0 ? enclosure->LogSumExp()
                                : enclosure->Weight(static_cast<std::size_t>(p.position));
        },
        [&](const Pending& p, Ball* value, const FloatFormat& format) -> std::optional<double> {
          if (p.tensor[0] == 'l') return enclosure->RoundLogSumExpNearMidpoint(format);
          if (p.tensor[0] != 'o') return std::nullopt;
          if (const std::optional<Ball> exact = enclosure->ExactOutput(p.position); exact) {
            *value = *exact;
            return RoundedTo(*exact, format);
          }
          return enclosure->RoundNearMidpoint(p.position, format);
        },
        [&] {
          enclosure.emplace(data_, row, plan);
          // The last precision's are the tightest.
          if (options_.conditions) StoreConditions(flat, row, plan, *enclosure);
        });
  }

  // Raises the working precision until every pending element is decided. `prepare` runs at each new
  // precision, `enclose` gives an element's enclosure; `decide` its rounding where it is, or is
  // next to, a midpoint, with a tighter enclosure if it knows one.
  template <class Enclose, class Decide, class Prepare>
  void Resolve(std::vector<Pending> pending, const Enclose& enclose, const Decide& decide,
               const Prepare& prepare) {
    std::erase_if(pending, [&](const Pending& p) {
      const CertifiedTensor* tensor = Find(p.tensor);
      return tensor == nullptr || tensor->values[static_cast<std::size_t>(p.element)].decided;
    });
    const long first = FirstPrecision(contract_, options_.digits);
    const long largest = LargestPrecision(data_, first);
    long bits = first;
    for (;; bits *= 2) {
      Ball::SetPrecision(bits);
      prepare();
      std::vector<Pending> undecided;
      for (const Pending& p : pending) {
        const FloatFormat& format = FormatOf(Find(p.tensor)->dtype);
        const auto decide_this = [&](Ball* value) { return decide(p, value, format); };
        if (!SettleBall(enclose(p), bits, options_.digits, decide_this, p.element,
                        Find(p.tensor))) {
          undecided.push_back(p);
        }
      }
      pending = std::move(undecided);
      if (pending.empty() || 2 * bits > largest) break;
    }
    effort_ = {static_cast<Index>(pending.size()), bits};
  }

  // The sum of the magnitudes of what a score sums up, before the scale.
  double ScoreMagnitude(std::span<const double> q, std::span<const double> k) const {
    double sum = 0.0;
    if (contract_.score == ScoreKind::kDot) {
      for (std::size_t d = 0; d < q.size(); ++d) sum += std::fabs(q[d] * k[d]);
    } else if (contract_.score == ScoreKind::kGeneral) {
      for (std::size_t b = 0; b < k.size(); ++b) {
        const std::span<const double> w = data_.WColumn(static_cast<Index>(b));
        for (std::size_t a = 0; a < q.size(); ++a) sum += std::fabs(q[a] * w[a] * k[b]);
      }
    } else {
      for (const double factor : data_.va()) sum += std::fabs(factor);
    }
    return sum;
  }

  void StoreConditions(Index flat, const RowId& row, const RowPlan& plan,
                       const RowEnclosure& enclosure) {
    const std::span<const double> q = data_.Query(row);
    const double scale = contract_.scale.rsqrt_dk
                             ? 1.0 / std::sqrt(static_cast<double>(contract_.shape.k_dim))
                             : std::fabs(contract_.scale.value);
    // Covers the roundings of the sum below and of the scale.
    const auto summands =
        static_cast<double>(q.size()) * static_cast<double>(contract_.shape.k_dim) +
        static_cast<double>(data_.additive_width());
    const double inflation = 1.0 + (summands + 4.0) * 0x1p-52;
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const Index key = plan.terms[t].key;
      double sum = ScoreMagnitude(q, data_.Key(row, key));
      if (plan.terms[t].capped) sum = std::fabs(*plan.terms[t].capped) / std::max(scale, 1e-300);
      const auto at = static_cast<std::size_t>(flat * contract_.shape.kv_len + key);
      result_.conditions.weight[at] = enclosure.Weight(t).Midpoint();
      result_.conditions.log_weight[at] = enclosure.LogWeight(t).Midpoint();
      result_.conditions.score_condition[at] = sum * scale * inflation;
    }
  }

  void MarkAllowed(Index flat, const RowPlan& plan) {
    const auto mark = [&](Index key) {
      result_.conditions.allowed[static_cast<std::size_t>(flat * contract_.shape.kv_len + key)] = 1;
    };
    for (const KeyTerm& term : plan.terms) mark(term.key);
    for (const Index key : plan.vanishing) mark(key);
    for (const Index key : plan.not_a_number) mark(key);
  }

  const Contract& contract_;
  const CaseData& data_;
  const CertifyOptions& options_;
  Certified& result_;
  BallEffort effort_;
};

}  // namespace

RowCertifier::RowCertifier(const CaseData& data, const CertifyOptions& options, Certified* result)
    : data_(data), options_(options), result_(result) {}

BallEffort RowCertifier::CertifyRow(Index flat) const {
  return RowTask(data_, options_, result_).Run(flat);
}

}  // namespace attest
