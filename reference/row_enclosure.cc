// SPDX-License-Identifier: Apache-2.0
#include "reference/row_enclosure.h"

#include <algorithm>
#include <cmath>

#include "reference/rounding.h"

namespace attest {

RowEnclosure::RowEnclosure(const CaseData& data, const RowId& row, const RowPlan& plan)
    : data_(data), row_(row), plan_(plan) {
  const Contract& contract = data.contract();
  root_dk_ = Sqrt(Ball(static_cast<long>(contract.shape.k_dim)));
  if (data.has_alibi()) {
    const std::optional<double> given = data.GivenSlope(row.head);
    slope_ =
        given ? Ball(*given) : Exp2(Ball(DefaultAlibiExponent(row.head, contract.shape.q_heads)));
  }
  ComputeRawScores();

  // The pivot is a key, or the sink where that is larger; any choice gives a true enclosure, the
  // largest gives a tight one.
  std::size_t pivot = 0;
  pivot_score_ = Score(0);
  for (std::size_t t = 1; t < plan.terms.size(); ++t) {
    Ball score = Score(t);
    if (CompareMidpoints(score, pivot_score_) > 0) {
      pivot = t;
      pivot_score_ = std::move(score);
    }
  }
  const bool sink_is_pivot = plan.sink && CompareMidpoints(pivot_score_, Ball(*plan.sink)) < 0;
  if (sink_is_pivot) pivot_score_ = Ball(*plan.sink);
  if (plan.sink) denominator_ += Exp(Ball(*plan.sink) - pivot_score_);

  exponents_.reserve(plan.terms.size());
  unnormalised_.reserve(plan.terms.size());
  for (std::size_t t = 0; t < plan.terms.size(); ++t) {
    if (sink_is_pivot) {
      exponents_.push_back(Score(t) - pivot_score_);
    } else {
      // Exactly 0 for the pivot, also where its score is a wide interval: the denominator is >= 1.
      exponents_.push_back(t == pivot ? Ball() : Difference(t, pivot));
    }
    const Ball unnormalised = Exp(exponents_[t]);
    denominator_ += unnormalised;
    unnormalised_.push_back(plan.gaussian_center ? Exp(exponents_[t] - GaussianExponent(t))
                                                 : unnormalised);
  }
  log_denominator_ = Log(denominator_);
}

void RowEnclosure::ComputeRawScores() {
  const Contract& contract = data_.contract();
  const std::span<const double> q = data_.Query(row_);
  const auto finite = [](std::span<const double> values) {
    return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
  };
  // Parts that are not finite are never used.
  if (contract.score == ScoreKind::kGeneral) {
    for (Index b = 0; b < contract.shape.k_dim; ++b) {
      const std::span<const double> w = data_.WColumn(b);
      query_parts_.push_back(finite(q) && finite(w) ? Ball::Dot(q, w) : Ball());
    }
  } else if (contract.score == ScoreKind::kAdditive) {
    for (Index a = 0; a < data_.additive_width(); ++a) {
      const std::span<const double> w = data_.WqRow(a);
      const double bias = data_.AdditiveBias(a);
      query_parts_.push_back(
          finite(q) && finite(w) && std::isfinite(bias) ? Ball::Dot(w, q) + Ball(bias) : Ball());
    }
  }
  raw_.reserve(plan_.terms.size());
  for (const KeyTerm& term : plan_.terms) {
    if (term.capped) {
      raw_.emplace_back();
    } else if (contract.score == ScoreKind::kDot) {
      raw_.push_back(Ball::Dot(q, data_.Key(row_, term.key)));
    } else if (contract.score == ScoreKind::kGeneral) {
      raw_.push_back(Ball::Dot(query_parts_, data_.Key(row_, term.key)));
    } else {
      raw_.push_back(AdditiveRaw(term.key));
    }
  }
}

Ball RowEnclosure::HiddenOf(Index key, Index a) const {
  const double argument = data_.NonFiniteArgument(row_, key, a);
  if (argument != 0.0) return Ball(std::copysign(1.0, argument));  // tanh(+-infinity)
  return Tanh(query_parts_[static_cast<std::size_t>(a)] +
              Ball::Dot(data_.WkRow(a), data_.Key(row_, key)));
}

Ball RowEnclosure::AdditiveRaw(Index key) const {
  Ball sum;
  const std::span<const double> factors = data_.va();
  for (std::size_t a = 0; a < factors.size(); ++a) {
    if (factors[a] != 0.0) sum.AddProduct(HiddenOf(key, static_cast<Index>(a)), factors[a]);
  }
  return sum;
}

Ball RowEnclosure::Hidden(std::size_t t, Index a) const { return HiddenOf(plan_.terms[t].key, a); }

// Whether the arguments of the tanhs that matter are known to be the same for two keys.
bool RowEnclosure::SameArguments(Index key, Index other) const {
  const std::span<const double> k = data_.Key(row_, key);
  const std::span<const double> l = data_.Key(row_, other);
  if (std::equal(k.begin(), k.end(), l.begin())) return true;
  std::vector<double> difference(k.begin(), k.end());
  for (const double x : l) difference.push_back(-x);
  const std::span<const double> factors = data_.va();
  for (std::size_t a = 0; a < factors.size(); ++a) {
    if (factors[a] == 0.0) continue;
    const auto index = static_cast<Index>(a);
    const double argument = data_.NonFiniteArgument(row_, key, index);
    if (argument != data_.NonFiniteArgument(row_, other, index)) return false;
    if (argument != 0.0) continue;
    const std::span<const double> w = data_.WkRow(index);
    std::vector<double> twice(w.begin(), w.end());
    twice.insert(twice.end(), w.begin(), w.end());
    if (!Ball::Dot(twice, difference).IsZero()) return false;
  }
  return true;
}

// raw_[t] - raw_[u], exactly 0 where the two are known to be equal.
Ball RowEnclosure::RawDifference(std::size_t t, std::size_t u) const {
  const Ball difference = raw_[t] - raw_[u];
  if (data_.contract().score != ScoreKind::kAdditive || !difference.ContainsZero()) {
    return difference;
  }
  return SameArguments(plan_.terms[t].key, plan_.terms[u].key) ? Ball() : difference;
}

Ball RowEnclosure::Scaled(const Ball& raw) const {
  const Scale& scale = data_.contract().scale;
  // A division, so that a quotient that is a binary fraction is exact.
  return scale.rsqrt_dk ? raw / root_dk_ : raw * Ball(scale.value);
}

Ball RowEnclosure::BeforeBias(std::size_t t) const {
  if (plan_.terms[t].capped) return Ball(*plan_.terms[t].capped);
  const double cap = data_.contract().softcap;
  if (cap == 0.0) return Scaled(raw_[t]);
  return Ball(cap) * Tanh(Scaled(raw_[t]) / Ball(cap));
}

Ball RowEnclosure::Score(std::size_t t) const {
  const KeyTerm& term = plan_.terms[t];
  return BeforeBias(t) + Ball(term.bias) - slope_ * Ball(static_cast<long>(term.distance));
}

Ball RowEnclosure::AdditiveDifference(std::size_t t, std::size_t u) const {
  const KeyTerm& a = plan_.terms[t];
  const KeyTerm& b = plan_.terms[u];
  return Ball(a.bias) - Ball(b.bias) + slope_ * Ball(static_cast<long>(b.distance - a.distance));
}

// Score(t) - Score(u), exactly 0 where both are made of equal parts.
Ball RowEnclosure::Difference(std::size_t t, std::size_t u) const {
  const bool capped = plan_.terms[t].capped || plan_.terms[u].capped;
  Ball main = RawDifference(t, u);
  if (capped || (data_.contract().softcap > 0.0 && !main.IsZero())) {
    main = BeforeBias(t) - BeforeBias(u);
  } else if (data_.contract().softcap == 0.0) {
    main = Scaled(main);
  }
  return main + AdditiveDifference(t, u);
}

bool RowEnclosure::SameScore(std::size_t t, std::size_t u) const {
  const Contract& contract = data_.contract();
  const Ball additive = AdditiveDifference(t, u);
  if (plan_.terms[t].capped || plan_.terms[u].capped || contract.softcap > 0.0) {
    return Difference(t, u).IsZero();
  }
  const Ball raw = RawDifference(t, u);
  if (!contract.scale.rsqrt_dk) {
    return (raw * Ball(contract.scale.value) + additive).IsZero();
  }
  if (root_dk_.IsExact()) return (raw + root_dk_ * additive).IsZero();
  return raw.IsZero() && additive.IsZero();  // sqrt(D_k) is irrational
}

bool RowEnclosure::AllScoresEqual() const {
  for (std::size_t t = 1; t < plan_.terms.size(); ++t) {
    if (!SameScore(t, 0)) return false;
  }
  return !plan_.sink || EqualsSink(0);
}

Ball RowEnclosure::Softmax(std::size_t t) const {
  return (plan_.gaussian_center ? Exp(exponents_[t]) : unnormalised_[t]) / denominator_;
}

Ball RowEnclosure::SinkShare() const {
  return plan_.sink ? Exp(Ball(*plan_.sink) - pivot_score_) / denominator_ : Ball();
}

Ball RowEnclosure::TimesSlope(std::size_t t, const Ball& factor) const {
  const double cap = data_.contract().softcap;
  if (cap == 0.0) return Scaled(factor);
  const Ball tanh = Tanh(Scaled(raw_[t]) / Ball(cap));
  return Scaled(factor * (Ball(1.0) - tanh * tanh));
}

bool RowEnclosure::EqualsSink(std::size_t t) const {
  return plan_.sink && (Score(t) - Ball(*plan_.sink)).IsZero();
}

// (j - p)^2 / (2 (D/2)^2) = 2 ((j - p) / D)^2.
Ball RowEnclosure::GaussianExponent(std::size_t t) const {
  const Ball distance =
      (Ball(static_cast<long>(plan_.terms[t].key)) - Ball(*plan_.gaussian_center)) /
      Ball(data_.contract().local->half_width);
  return Ball(2.0) * distance * distance;
}

Ball RowEnclosure::Output(Index column) const {
  std::vector<double> values(plan_.terms.size());
  for (std::size_t t = 0; t < values.size(); ++t) {
    const KeyTerm& term = plan_.terms[t];
    if (term.keep == 0.0) continue;  // whatever v holds
    values[t] = data_.Value(row_, term.key)[static_cast<std::size_t>(column)];
  }
  const Ball numerator = Ball::Dot(unnormalised_, values);
  const double rate = data_.dropout_rate();
  if (rate == 0.0) return numerator / denominator_;
  return numerator / (denominator_ * (Ball(1.0) - Ball(rate)));
}

std::vector<RowEnclosure::Group> RowEnclosure::GroupsFor(Index column,
                                                         const Ball& candidate) const {
  const Ball target = candidate * (Ball(1.0) - Ball(data_.dropout_rate()));
  std::vector<Group> groups;
  if (plan_.sink) {
    groups.push_back({0, true, Ball(*plan_.sink) - pivot_score_, Ball() - target});
  }
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    const KeyTerm& term = plan_.terms[t];
    const double value = data_.Value(row_, term.key)[static_cast<std::size_t>(column)];
    const Ball excess = Ball(term.keep * value) - target;
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

std::optional<Ball> RowEnclosure::ExactOutput(Index column) const {
  if (plan_.gaussian_center) return std::nullopt;
  const Ball output = Output(column);
  if (!output.IsFinite()) return std::nullopt;
  const Ball candidate = output.ContainsZero() ? Ball() : output.Lower().RoundedToBits(64);
  for (const Group& group : GroupsFor(column, candidate)) {
    if (!group.excess.IsZero()) return std::nullopt;
  }
  return candidate;
}

std::optional<double> RowEnclosure::RoundNearMidpoint(Index column,
                                                      const FloatFormat& format) const {
  const Ball output = Output(column);
  if (plan_.gaussian_center || !output.IsFinite() || output.ContainsZero()) return std::nullopt;
  const Ball midpoint = NearestMidpoint(output, format);
  std::vector<Group> groups = GroupsFor(column, midpoint);
  std::erase_if(groups, [](const Group& g) { return g.excess.IsZero(); });
  if (groups.empty()) return std::nullopt;  // a tie, which ExactOutput decides
  const auto largest = std::max_element(
      groups.begin(), groups.end(),
      [](const Group& a, const Group& b) { return CompareMidpoints(a.exponent, b.exponent) < 0; });
  const Ball top = largest->exponent;
  // sum e^(s_g) excess_g has the sign of the output minus the midpoint.
  Ball sum;
  for (const Group& group : groups) {
    const bool is_top = &group == &*largest;
    sum += is_top ? group.excess : Exp(group.exponent - top) * group.excess;
  }
  if (!sum.IsFinite() || sum.ContainsZero()) return std::nullopt;
  return RoundBeside(midpoint, sum.Sign(), format);
}

std::optional<double> RowEnclosure::RoundLogSumExpNearMidpoint(const FloatFormat& format) const {
  const Ball lse = LogSumExp();
  if (!lse.IsFinite() || lse.ContainsZero() || !pivot_score_.IsExact()) return std::nullopt;
  const Ball midpoint = NearestMidpoint(lse, format);
  const std::size_t summands = plan_.terms.size() + (plan_.sink ? 1 : 0);
  if (summands < 2 || !(pivot_score_ - midpoint).IsZero()) {
    return std::nullopt;
  }
  return RoundBeside(midpoint, 1, format);  // every other summand is positive
}

}  // namespace attest
