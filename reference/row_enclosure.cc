// SPDX-License-Identifier: Apache-2.0
#include "reference/row_enclosure.h"

#include <algorithm>

#include "reference/rounding.h"

namespace attest {

RowEnclosure::RowEnclosure(const CaseData& data, const RowId& row, const RowPlan& plan)
    : data_(data), row_(row), plan_(plan) {
  const Contract& contract = data.contract();
  root_dk_ = Sqrt(Interval(static_cast<long>(contract.shape.k_dim)));
  if (data.has_alibi()) {
    const std::optional<double> given = data.GivenSlope(row.head);
    slope_ = given ? Interval(*given)
                   : Exp2(Interval(DefaultAlibiExponent(row.head, contract.shape.q_heads)));
  }
  raw_.reserve(plan.terms.size());
  for (const KeyTerm& term : plan.terms) {
    raw_.push_back(term.capped ? Interval()
                               : Interval::Dot(data.Query(row), data.Key(row, term.key)));
  }

  // The pivot is a key, or the sink where that is larger; any choice gives a true enclosure, the
  // largest gives a tight one.
  std::size_t pivot = 0;
  pivot_score_ = Score(0);
  for (std::size_t t = 1; t < plan.terms.size(); ++t) {
    Interval score = Score(t);
    if (mpfr_greater_p(score.lower(), pivot_score_.lower()) != 0) {
      pivot = t;
      pivot_score_ = std::move(score);
    }
  }
  const bool sink_is_pivot = plan.sink && mpfr_cmp_d(pivot_score_.lower(), *plan.sink) < 0;
  if (sink_is_pivot) pivot_score_ = Interval(*plan.sink);
  if (plan.sink) denominator_ += Exp(Interval(*plan.sink) - pivot_score_);

  exponents_.reserve(plan.terms.size());
  unnormalised_.reserve(plan.terms.size());
  for (std::size_t t = 0; t < plan.terms.size(); ++t) {
    if (sink_is_pivot) {
      exponents_.push_back(Score(t) - pivot_score_);
    } else {
      // Exactly 0 for the pivot, also where its score is a wide interval: the denominator is >= 1.
      exponents_.push_back(t == pivot ? Interval() : Difference(t, pivot));
    }
    const Interval unnormalised = Exp(exponents_[t]);
    denominator_ += unnormalised;
    unnormalised_.push_back(plan.gaussian_center ? Exp(exponents_[t] - GaussianExponent(t))
                                                 : unnormalised);
  }
  log_denominator_ = Log(denominator_);
}

Interval RowEnclosure::Scaled(const Interval& raw) const {
  const Scale& scale = data_.contract().scale;
  // A division, so that a quotient that is a binary fraction is a point.
  return scale.rsqrt_dk ? raw / root_dk_ : raw * Interval(scale.value);
}

Interval RowEnclosure::BeforeBias(std::size_t t) const {
  if (plan_.terms[t].capped) return Interval(*plan_.terms[t].capped);
  const double cap = data_.contract().softcap;
  if (cap == 0.0) return Scaled(raw_[t]);
  return Interval(cap) * Tanh(Scaled(raw_[t]) / Interval(cap));
}

Interval RowEnclosure::Score(std::size_t t) const {
  const KeyTerm& term = plan_.terms[t];
  return BeforeBias(t) + Interval(term.bias) - slope_ * Interval(static_cast<long>(term.distance));
}

Interval RowEnclosure::AdditiveDifference(std::size_t t, std::size_t u) const {
  const KeyTerm& a = plan_.terms[t];
  const KeyTerm& b = plan_.terms[u];
  return Interval(a.bias) - Interval(b.bias) +
         slope_ * Interval(static_cast<long>(b.distance - a.distance));
}

// Score(t) - Score(u), exactly 0 where both are made of equal parts.
Interval RowEnclosure::Difference(std::size_t t, std::size_t u) const {
  const bool capped = plan_.terms[t].capped || plan_.terms[u].capped;
  Interval main = raw_[t] - raw_[u];
  if (capped || (data_.contract().softcap > 0.0 && !main.IsZeroPoint())) {
    main = BeforeBias(t) - BeforeBias(u);
  } else if (data_.contract().softcap == 0.0) {
    main = Scaled(main);
  }
  return main + AdditiveDifference(t, u);
}

bool RowEnclosure::SameScore(std::size_t t, std::size_t u) const {
  const Contract& contract = data_.contract();
  const Interval additive = AdditiveDifference(t, u);
  if (plan_.terms[t].capped || plan_.terms[u].capped || contract.softcap > 0.0) {
    return Difference(t, u).IsZeroPoint();
  }
  const Interval raw = raw_[t] - raw_[u];
  if (!contract.scale.rsqrt_dk) {
    return (raw * Interval(contract.scale.value) + additive).IsZeroPoint();
  }
  if (root_dk_.IsPoint()) return (raw + root_dk_ * additive).IsZeroPoint();
  return raw.IsZeroPoint() && additive.IsZeroPoint();  // sqrt(D_k) is irrational
}

bool RowEnclosure::EqualsSink(std::size_t t) const {
  return plan_.sink && (Score(t) - Interval(*plan_.sink)).IsZeroPoint();
}

// (j - p)^2 / (2 (D/2)^2) = 2 ((j - p) / D)^2.
Interval RowEnclosure::GaussianExponent(std::size_t t) const {
  const Interval distance =
      (Interval(static_cast<long>(plan_.terms[t].key)) - Interval(*plan_.gaussian_center)) /
      Interval(data_.contract().local->half_width);
  return Interval(2.0) * distance * distance;
}

Interval RowEnclosure::Output(Index column) const {
  Interval numerator;
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    const KeyTerm& term = plan_.terms[t];
    if (term.keep == 0.0) continue;
    numerator.AddProduct(unnormalised_[t],
                         data_.Value(row_, term.key)[static_cast<std::size_t>(column)]);
  }
  const double rate = data_.dropout_rate();
  if (rate == 0.0) return numerator / denominator_;
  return numerator / (denominator_ * (Interval(1.0) - Interval(rate)));
}

std::vector<RowEnclosure::Group> RowEnclosure::GroupsFor(Index column,
                                                         mpfr_srcptr candidate) const {
  const Interval target =
      Interval::Point(candidate) * (Interval(1.0) - Interval(data_.dropout_rate()));
  std::vector<Group> groups;
  if (plan_.sink) {
    groups.push_back({0, true, Interval(*plan_.sink) - pivot_score_, Interval() - target});
  }
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    const KeyTerm& term = plan_.terms[t];
    const double value = data_.Value(row_, term.key)[static_cast<std::size_t>(column)];
    const Interval excess = Interval(term.keep * value) - target;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.is_sink ? EqualsSink(t) : SameScore(t, g.representative);
    });
    if (group == groups.end()) {
      groups.push_back({t, false, exponents_[t], excess});
    } else {
      group->excess += excess;
    }
  }
  return groups;
}

std::optional<Interval> RowEnclosure::ExactOutput(Index column) const {
  if (plan_.gaussian_center) return std::nullopt;
  const Interval output = Output(column);
  Mpfr candidate(64);
  mpfr_set(candidate.get(), output.lower(), MPFR_RNDN);
  if (output.ContainsZero()) mpfr_set_zero(candidate.get(), 1);
  for (const Group& group : GroupsFor(column, candidate.get())) {
    if (!group.excess.IsZeroPoint()) return std::nullopt;
  }
  return Interval::Point(candidate.get());
}

namespace {

// The only midpoint that an enclosure which contains one can contain: its lower end rounded to one
// bit more than the format has there, at least to one bit.
Mpfr NearestMidpoint(const Interval& enclosure, const FloatFormat& format) {
  const mpfr_exp_t exponent = mpfr_get_exp(enclosure.lower()) - 1;
  const mpfr_exp_t bits =
      format.precision + 1 - std::max<mpfr_exp_t>(0, format.min_exponent - exponent);
  Mpfr midpoint(static_cast<mpfr_prec_t>(std::max<mpfr_exp_t>(1, bits)));
  mpfr_set(midpoint.get(), enclosure.lower(), MPFR_RNDN);
  return midpoint;
}

// The rounding of a number next to `midpoint`, on the side that `sign` says.
double RoundBeside(const Mpfr& midpoint, int sign, const FloatFormat& format) {
  Mpfr beside(mpfr_get_prec(midpoint.get()) + 8);
  mpfr_set(beside.get(), midpoint.get(), MPFR_RNDN);
  if (sign > 0) {
    mpfr_nextabove(beside.get());
  } else {
    mpfr_nextbelow(beside.get());
  }
  return RoundToFormat(beside.get(), format) + 0.0;  // + 0.0: -0 counts as 0
}

}  // namespace

std::optional<double> RowEnclosure::RoundNearMidpoint(Index column,
                                                      const FloatFormat& format) const {
  const Interval output = Output(column);
  if (plan_.gaussian_center || output.ContainsZero()) return std::nullopt;
  const Mpfr midpoint = NearestMidpoint(output, format);
  std::vector<Group> groups = GroupsFor(column, midpoint.get());
  std::erase_if(groups, [](const Group& g) { return g.excess.IsZeroPoint(); });
  if (groups.empty()) return std::nullopt;  // a tie, which ExactOutput decides
  const auto largest =
      std::max_element(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
        return mpfr_less_p(a.exponent.lower(), b.exponent.lower()) != 0;
      });
  const Interval top = largest->exponent;
  // sum e^(s_g) excess_g has the sign of the output minus the midpoint.
  Interval sum;
  for (const Group& group : groups) {
    const bool is_top = &group == &*largest;
    sum += is_top ? group.excess : Exp(group.exponent - top) * group.excess;
  }
  if (sum.ContainsZero()) return std::nullopt;
  return RoundBeside(midpoint, mpfr_sgn(sum.lower()), format);
}

std::optional<double> RowEnclosure::RoundLogSumExpNearMidpoint(const FloatFormat& format) const {
  const Interval lse = LogSumExp();
  if (lse.ContainsZero() || !pivot_score_.IsPoint()) return std::nullopt;
  const Mpfr midpoint = NearestMidpoint(lse, format);
  const std::size_t summands = plan_.terms.size() + (plan_.sink ? 1 : 0);
  if (summands < 2 || mpfr_equal_p(pivot_score_.lower(), midpoint.get()) == 0) {
    return std::nullopt;
  }
  return RoundBeside(midpoint, 1, format);  // every other summand is positive
}

}  // namespace attest
