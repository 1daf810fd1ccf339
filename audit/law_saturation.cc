// SPDX-License-Identifier: Apache-2.0
// Laws about what softmax allows the weights of a row to be, given the spread of its scores.
#include <limits>

#include "audit/law_weights.h"

namespace attest {
namespace {

// Whatever is evaluated here in double is off by less than a relative 2^-40.
constexpr double kMore = 1.0 + 0x1p-40;
constexpr double kLess = 1.0 - 0x1p-40;

// The largest less the smallest score of a row, rounded up; given within a relative 2^-28.
double SpreadOf(const WeightRow& row) {
  const double spread =
      row.expected.certified.conditions.logit_spread[static_cast<std::size_t>(row.flat)];
  return spread * (1.0 + 0x1p-27);
}

// J = diag(p) - p p^T. The magnitudes in column j add up to p_j (1 + S - 2 p_j) with S the sum of
// the weights, at most (1 + S)^2 / 8: 1/2 for S = 1, attained by p_j = 1/2.
LawResult JacobianNorm(const Subject& subject, const Case& problem,
                       ExpectationCache& expectations) {
  return ForWeightRows(
      subject, problem, expectations, [](const WeightRow& row) -> std::optional<Violation> {
        double sum = 0.0;
        double error = 0.0;
        for (std::size_t j = 0; j < row.weights.size(); ++j) {
          sum += std::fabs(row.weights[j]);
          error += row.bounds[j];
        }
        const double largest = (2.0 + error) * (2.0 + error) / 8.0 * kMore;
        for (const KeyTerm& term : row.plan.terms) {
          const double p = row.At(term);
          const double norm = std::fabs(p * (1.0 - p)) + std::fabs(p) * (sum - std::fabs(p));
          if (!(norm <= largest)) {
            return row.Break(term.key, 0.5, "the Jacobian of a row of weights exceeds norm 1/2");
          }
        }
        return std::nullopt;
      });
}

// Scores within d of each other: e^-d / n <= p <= e^d / n (Velickovic et al. 2025). A
// sink or a Gaussian only makes weights smaller.
LawResult Dispersion(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  return ForWeightRows(
      subject, problem, expectations, [](const WeightRow& row) -> std::optional<Violation> {
        const double spread = SpreadOf(row);
        const double share = 1.0 / static_cast<double>(row.plan.terms.size());
        const double most = std::exp(spread) * share * kMore;
        const double least = row.SumsToOne() ? std::exp(-spread) * share * kLess : 0.0;
        for (const KeyTerm& term : row.plan.terms) {
          const double p = row.At(term);
          const double bound = row.BoundAt(term);
          if (!(p <= most + bound)) {
            return row.Break(term.key, most, "a weight exceeds e^spread / n");
          }
          if (!(p >= least - bound)) {
            return row.Break(term.key, least, "a weight is below e^-spread / n");
          }
        }
        return std::nullopt;
      });
}

// -x ln x, which changes by at most -d ln d where x in [0, 1] changes by d <= 1/e.
double EntropyTerm(double x) { return x > 0.0 ? -x * std::log(x) : 0.0; }

// The smallest entropy of n scores whose distance to their mean is `radius` in the 2-norm: one
// score above all others (Zhai et al. 2023, theorem 3.1, with the radius in the place of its upper
// bound).
double SmallestEntropy(double n, double radius) {
  if (!(radius < 600.0)) return 0.0;  // nothing can be told of it
  const double beta = std::exp(-radius * std::sqrt(n / (n - 1.0)));
  const double sum = 1.0 + (n - 1.0) * beta;
  return std::log(sum) + radius * std::sqrt(n * (n - 1.0)) * beta / sum;
}

LawResult Entropy(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  bool any = false;
  LawResult result = ForWeightRows(
      subject, problem, expectations, [&](const WeightRow& row) -> std::optional<Violation> {
        const auto n = static_cast<double>(row.plan.terms.size());
        if (!row.SumsToOne() || n < 2.0) return std::nullopt;
        double entropy = 0.0;
        double error = n * 0x1p-48;
        double mean = 0.0;
        for (const KeyTerm& term : row.plan.terms) {
          if (!(row.BoundAt(term) <= 1.0 / std::exp(1.0))) return std::nullopt;
          // A weight that its bound lets exceed 1 only comes nearer to the exact one at 1.
          entropy += EntropyTerm(std::clamp(row.At(term), 0.0, 1.0));
          error += EntropyTerm(row.BoundAt(term));
          mean += row.LogWeight(term) / n;
        }
        double squares = 0.0;
        double inexact = 0.0;  // of the distances to the mean
        for (const KeyTerm& term : row.plan.terms) {
          const double distance = row.LogWeight(term) - mean;
          squares += distance * distance;
          inexact = std::max(inexact, WeightRow::LogError(row.LogWeight(term)));
        }
        any = true;
        const double radius = (std::sqrt(squares) + 2.0 * inexact * std::sqrt(n)) * kMore;
        const double least = SmallestEntropy(n, radius) * kLess;
        const double most = std::log(n) * kMore;
        if (entropy >= least - error && entropy <= most + error) return std::nullopt;
        return Violation{"weights",
                         {row.id.batch, row.id.head, row.id.query},
                         entropy,
                         entropy < least ? least : most,
                         "the entropy of a row of weights is not what its scores allow"};
      });
  result.applied = result.applied && (any || result.violation);
  return result;
}

// Softmax is 1/2-Lipschitz in the 1-norm and the maximum norm (Nair 2025): two rows over the same
// keys differ in weight by at most half of what they differ by in score, up to constants of a row.
LawResult Lipschitz(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  struct Previous {
    Index flat = -2;
    std::vector<Index> keys;
    std::vector<double> weights, bounds, logs;
  } previous;
  bool any = false;
  LawResult result = ForWeightRows(
      subject, problem, expectations, [&](const WeightRow& row) -> std::optional<Violation> {
        Previous current;
        current.flat = row.flat;
        if (!row.SumsToOne()) return std::nullopt;
        for (const KeyTerm& term : row.plan.terms) {
          current.keys.push_back(term.key);
          current.weights.push_back(row.At(term));
          current.bounds.push_back(row.BoundAt(term));
          current.logs.push_back(row.LogWeight(term));
        }
        std::swap(previous, current);  // `current` is now the row before
        if (current.flat != previous.flat - 1 || current.keys != previous.keys) return std::nullopt;
        any = true;
        double largest = 0.0;
        double sum = 0.0;
        double sum_error = 0.0;
        double largest_distance = 0.0;
        double sum_distance = 0.0;
        for (std::size_t t = 0; t < current.keys.size(); ++t) {
          const double error = current.bounds[t] + previous.bounds[t];
          const double difference = std::fabs(current.weights[t] - previous.weights[t]);
          const double distance = std::fabs(current.logs[t] - previous.logs[t]) +
                                  WeightRow::LogError(current.logs[t]) +
                                  WeightRow::LogError(previous.logs[t]);
          largest = std::max(largest, difference - error);
          sum += difference;
          sum_error += error;
          largest_distance = std::max(largest_distance, distance);
          sum_distance += distance;
        }
        if (largest <= largest_distance / 2.0 * kMore &&
            sum <= sum_distance / 2.0 * kMore + sum_error * kMore) {
          return std::nullopt;
        }
        return Violation{"weights",
                         {row.id.batch, row.id.head, row.id.query},
                         sum,
                         sum_distance / 2.0,
                         "two rows differ by more in weight than half of what they do in score"};
      });
  result.applied = result.applied && (any || result.violation);
  return result;
}

}  // namespace

std::vector<Law> SaturationLaws() {
  return {
      {"jacobian-norm", "the Jacobian of a row of weights has norm 1/2 at most", JacobianNorm},
      {"dispersion", "scores within d of each other give weights from e^-d / n to e^d / n",
       Dispersion},
      {"entropy", "the entropy of a row lies between what its scores allow and ln n", Entropy},
      {"lipschitz", "rows differ in weight by at most half of what they differ by in score",
       Lipschitz},
  };
}

}  // namespace attest
