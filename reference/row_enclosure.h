// SPDX-License-Identifier: Apache-2.0
// Enclosures of one row of attention at the thread's working precision, and the exact tie decision.
#pragma once

#include <optional>
#include <vector>

#include "core/dtype.h"
#include "reference/ball.h"
#include "reference/row_plan.h"

namespace attest {

// The formulas of one row of kind kFinite, evaluated in balls. Everything is relative to a
// pivot (the largest score): exponentials are of score differences, and differences of equal scores
// are the exact number 0, so that rows of equal scores come out as exact rational numbers.
class RowEnclosure {
 public:
  // Evaluates weights and denominator at Ball::precision(). `data` and `plan` must outlive it.
  RowEnclosure(const CaseData& data, const RowId& row, const RowPlan& plan);

  // p_ij of term `t` (position in plan.terms), before dropout, local-p Gaussian included.
  Ball Weight(std::size_t t) const { return unnormalised_[t] / denominator_; }
  Ball LogSumExp() const { return pivot_score_ + log_denominator_; }
  // ln p_ij of term `t`, without the Gaussian.
  Ball LogWeight(std::size_t t) const { return exponents_[t] - log_denominator_; }
  // p_ij of term `t` without the Gaussian, and the Gaussian.
  Ball Softmax(std::size_t t) const;
  Ball Gaussian(std::size_t t) const { return Exp(-GaussianExponent(t)); }
  // The sink's share of the denominator; 0 without a sink.
  Ball SinkShare() const;
  // `factor` times the derivative of the score by what its scale and soft cap are applied to.
  Ball TimesSlope(std::size_t t, const Ball& factor) const;
  // tanh((W_q q + W_k k + b)_a) of term `t`.
  Ball Hidden(std::size_t t, Index a) const;
  // Whether all scores, and the sink, are known to be equal; what the scale is applied to, 0.
  bool AllScoresEqual() const;
  bool RawIsZero(std::size_t t) const { return raw_[t].IsZero(); }

  // Output `column`; every v of that column must be finite.
  Ball Output(Index column) const;

  // The output of `column` as a number where it is a number of at most 64 bits that the keys show
  // to be exact: in every group of equal scores the values sum to the number of keys times it. The
  // scores are algebraic numbers, so exponentials of distinct ones are linearly independent over
  // the algebraic numbers (Lindemann-Weierstrass), and there is no other way to be exact. With a
  // soft cap, the score `additive`, ALiBi slopes that are no doubles, or a Gaussian, that is not
  // known.
  std::optional<Ball> ExactOutput(Index column) const;

  // The rounding of output `column` where it is not a midpoint between two neighbours in `format`
  // but too close to one for its enclosure: groups of equal scores that cannot tell the side are
  // left out, and the largest of the others decides. Nothing when the precision does not suffice.
  std::optional<double> RoundNearMidpoint(Index column, const FloatFormat& format) const;

  // The same for the LSE: a single key whose score is a midpoint, and others that add too little.
  std::optional<double> RoundLogSumExpNearMidpoint(const FloatFormat& format) const;

 private:
  void ComputeRawScores();
  Ball HiddenOf(Index key, Index a) const;
  Ball AdditiveRaw(Index key) const;
  Ball RawDifference(std::size_t t, std::size_t u) const;
  bool SameArguments(Index key, Index other) const;
  Ball Scaled(const Ball& raw) const;
  Ball BeforeBias(std::size_t t) const;
  Ball Score(std::size_t t) const;
  Ball AdditiveDifference(std::size_t t, std::size_t u) const;
  Ball Difference(std::size_t t, std::size_t u) const;
  bool SameScore(std::size_t t, std::size_t u) const;
  // Keys of equal score, and a sink.
  struct Group {
    std::size_t representative;
    bool is_sink;
    Ball exponent;  // score minus pivot
    Ball excess;    // sum of kept v minus count times a candidate for the output
  };
  std::vector<Group> GroupsFor(Index column, const Ball& candidate) const;
  bool EqualsSink(std::size_t t) const;
  Ball GaussianExponent(std::size_t t) const;

  const CaseData& data_;
  const RowId row_;
  const RowPlan& plan_;
  Ball slope_;                     // of ALiBi; 0 without
  Ball root_dk_;                   // sqrt(D_k)
  std::vector<Ball> query_parts_;  // W^T q, or W_q q + b
  std::vector<Ball> raw_;          // the score before its scale
  Ball pivot_score_;
  std::vector<Ball> exponents_;     // s_j - pivot
  std::vector<Ball> unnormalised_;  // e to them, times the Gaussian
  Ball denominator_;
  Ball log_denominator_;
};

}  // namespace attest
