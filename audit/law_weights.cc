// SPDX-License-Identifier: Apache-2.0
// Laws about the weights of a row: read directly where they are returned, and through v where not.
#include "audit/law_weights.h"

#include <limits>

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// An identity as wide as there are keys costs more than another variation of the case.
constexpr Index kLargestIdentityCase = kLargestCertifiedVariation / 4;

// exp is positive and a part is at most the whole; a rounded part may exceed it by its bound.
LawResult WeightRange(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  return ForWeightRows(subject, problem, expectations,
                       [](const WeightRow& row) -> std::optional<Violation> {
                         for (const KeyTerm& term : row.plan.terms) {
                           if (!(row.At(term) >= 0.0))
                             return row.Break(term.key, 0.0, "a weight is negative");
                           if (!(row.At(term) <= 1.0 + row.BoundAt(term))) {
                             return row.Break(term.key, 1.0, "a weight exceeds 1");
                           }
                         }
                         return std::nullopt;
                       });
}

// Parts of a whole; a sink takes exp(sink - LSE) of it, a Gaussian some of each part.
LawResult WeightSums(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  return ForWeightRows(
      subject, problem, expectations, [](const WeightRow& row) -> std::optional<Violation> {
        const std::size_t n = row.weights.size();
        const std::vector<CertifiedValue>& exact =
            row.expected.certified.outputs.at("weights").values;
        double got = 0.0;
        double magnitude = 0.0;
        double bound = 0.0;
        double whole = 0.0;
        for (std::size_t j = 0; j < n; ++j) {
          const CertifiedValue& p = exact[static_cast<std::size_t>(row.flat) * n + j];
          got += row.weights[j];
          magnitude += std::fabs(row.weights[j]) + p.hi;
          bound += row.bounds[j] + p.radius + std::fabs(p.lo);
          whole += p.hi;
        }
        if (row.SumsToOne()) whole = 1.0;
        if (std::fabs(got - whole) <= bound + SumRoundoff(n) * magnitude) return std::nullopt;
        return Violation{"weights",
                         {row.id.batch, row.id.head, row.id.query},
                         got,
                         whole,
                         "the weights of a row do not add up to what a sink leaves of 1"};
      });
}

LawResult MaskedWeights(const Subject& subject, const Case& problem,
                        ExpectationCache& expectations) {
  bool any = false;
  LawResult result = ForWeightRows(
      subject, problem, expectations, [&](const WeightRow& row) -> std::optional<Violation> {
        for (Index j = 0; j < static_cast<Index>(row.weights.size()); ++j) {
          if (row.data.Allowed(row.id, j)) continue;
          any = true;
          if (!(row.weights[static_cast<std::size_t>(j)] == 0.0)) {
            return row.Break(j, 0.0, "a forbidden key has weight");
          }
        }
        return std::nullopt;
      });
  result.applied = result.applied && (any || result.violation);
  return result;
}

// o = sum of m_j p_j v_j: what is returned as weights must be what the output was made of, each
// within its own bound.
LawResult WeightsGiveOutput(const Subject& subject, const Case& problem,
                            ExpectationCache& expectations) {
  LawResult result;
  if (!problem.contract.Wants("out") || !problem.contract.Wants("weights")) return {};
  const std::optional<TensorMap> outputs = RunOk(subject, Forward(problem), &result);
  if (!outputs) return result;
  const Index width = problem.contract.shape.v_dim;
  const std::vector<double> out = ToDoubles(outputs->at("out"));
  return ForWeightRows(
      subject, problem, expectations, [&](const WeightRow& row) -> std::optional<Violation> {
        const double kept = 1.0 / (1.0 - row.data.dropout_rate());
        for (Index c = 0; c < width; ++c) {
          const auto at = static_cast<std::size_t>(row.flat * width + c);
          double sum = 0.0;
          double magnitude = std::fabs(out[at]);
          double bound = BoundOf(row.expected, "out", at);
          for (const KeyTerm& term : row.plan.terms) {
            const double factor = term.keep * kept;
            const double v = row.data.Value(row.id, term.key)[static_cast<std::size_t>(c)] * factor;
            sum += row.At(term) * v;
            magnitude += std::fabs(row.At(term) * v);
            bound += row.BoundAt(term) * std::fabs(v);
          }
          bound += SumRoundoff(row.plan.terms.size() + 4) * magnitude;
          if (!std::isfinite(bound) || !std::isfinite(sum)) continue;  // nothing is promised
          // A sum that overflows a narrow output is judged by within-bound.
          if (std::isinf(out[at])) continue;
          if (std::fabs(out[at] - sum) <= bound) continue;
          return Violation{"out",
                           {row.id.batch, row.id.head, row.id.query, c},
                           out[at],
                           sum,
                           "the returned weights times v do not give the output"};
        }
        return std::nullopt;
      });
}

// With v = 1 the output is the sum of the weights that it was made of, whatever they are: 1, less a
// sink's share.
LawResult ConstantValues(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  if (!problem.contract.Wants("out")) return {};
  Case constant = Forward(problem);
  constant.contract.outputs = {"out"};
  Tensor& v = constant.tensors.at("v");
  v = Filled(v.dtype(), v.shape(), 1.0);
  return StaysWithinBounds(subject, constant, expectations,
                           "with v = 1 the output is not the sum of the weights");
}

// An average of allowed values; a sink and a Gaussian leave some of the weight to 0. (Dropout
// enlarges what it keeps.)
LawResult ConvexHull(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  LawResult result;
  if (!problem.contract.Wants("out") || problem.Find("keep") != nullptr) return {};
  const StatusOr<CaseData> data = CaseData::Make(problem);
  const std::optional<TensorMap> outputs = RunOk(subject, problem, &result);
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!data.ok() || !outputs || !expected.ok()) return result;
  const Tensor& out = outputs->at("out");
  const Index width = problem.contract.shape.v_dim;
  const Dimensions& s = problem.contract.shape;
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    const RowId row = RowAt(s, flat);
    const RowPlan plan = data->Plan(row);
    if (plan.kind != RowPlan::Kind::kFinite) continue;
    for (Index c = 0; c < width; ++c) {
      const auto at = static_cast<std::size_t>(flat * width + c);
      const bool partial = plan.sink || plan.gaussian_center;
      double lowest = partial ? 0.0 : kInfinity;
      double highest = partial ? 0.0 : -kInfinity;
      bool finite = true;
      const auto include = [&](Index key) {
        const double value = data->Value(row, key)[static_cast<std::size_t>(c)];
        lowest = std::min(lowest, value);
        highest = std::max(highest, value);
        finite = finite && std::isfinite(value);
      };
      for (const KeyTerm& term : plan.terms) include(term.key);
      for (const Index key : plan.vanishing) include(key);
      const double bound = BoundOf(**expected, "out", at);
      const double got = out.At(static_cast<Index>(at));
      // Without a bound nothing is judged; an overflow of a narrow output is within-bound's.
      if (!finite || std::isinf(bound) || std::isinf(got)) continue;
      if (!(got >= lowest - bound && got <= highest + bound)) {
        return {true, Violation{"out", Unflatten(static_cast<Index>(at), out.shape()), got,
                                got < lowest ? lowest : highest,
                                "the output leaves the range of the allowed values"}};
      }
    }
  }
  return {true, std::nullopt};
}

// Column j of the output is then the weight of key j. Its support is the contract's mask: exactly 0
// where a key is forbidden, and not 0 where the weight exceeds its bound.
LawResult IdentityValues(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  LawResult result;
  const Index n = problem.contract.shape.kv_len;
  if (n == 0 || problem.contract.empty_row != EmptyRow::kZero || !problem.contract.Wants("out")) {
    return {};
  }
  Case reading = Forward(problem);
  reading.contract.shape.v_dim = n;
  reading.contract.outputs = {"out"};
  Tensor identity(problem.contract.dtype,
                  {problem.contract.shape.batch, problem.contract.shape.kv_heads, n, n});
  for (Index i = 0; i < identity.size(); i += n) identity.Set(i + i / n % n, 1.0);
  reading.tensors["v"] = std::move(identity);
  const StatusOr<CaseData> data = CaseData::Make(reading);
  const StatusOr<const Expectation*> weights = expectations.Of(reading);
  const std::optional<TensorMap> outputs = RunOk(subject, reading, &result);
  if (!data.ok() || !weights.ok() || !outputs) return result;
  const Tensor& out = outputs->at("out");
  for (Index i = 0; i < out.size(); ++i) {
    const RowId row = RowAt(reading.contract.shape, i / n);
    if (!IsJudged(**weights, "out", static_cast<std::size_t>(i))) continue;
    const bool forbidden = !data->Allowed(row, i % n);
    if (forbidden && data->Plan(row).kind != RowPlan::Kind::kFinite) continue;
    if (forbidden && !(out.At(i) == 0.0)) {
      return {true, Violation{"out", Unflatten(i, out.shape()), out.At(i), 0.0,
                              "with v = identity the output shows weight on a forbidden key"}};
    }
    if (out.At(i) == 0.0 && !Conforms(**weights, "out", static_cast<std::size_t>(i), 0.0)) {
      return {
          true,
          Violation{
              "out", Unflatten(i, out.shape()), 0.0,
              (*weights)->certified.outputs.at("out").values[static_cast<std::size_t>(i)].nearest,
              "with v = identity the output shows no weight on a key that has some"}};
    }
  }
  return {true, FirstAboveBound(**weights, *outputs,
                                "with v = identity the output is not the row of weights")};
}

}  // namespace

std::vector<Law> WeightLaws() {
  return {
      {"weight-range", "weights lie between 0 and 1", WeightRange},
      {"weight-sums", "the weights of a row add up to 1, less a sink's share", WeightSums},
      {"masked-weights", "forbidden keys have weight exactly 0", MaskedWeights},
      {"weights-give-output", "the returned weights times v are the output", WeightsGiveOutput},
      {"constant-values", "v = 1 gives the sum of the weights", ConstantValues,
       kLargestCertifiedVariation},
      {"convex-hull", "the output lies between the smallest and largest allowed value", ConvexHull},
      {"identity-values", "v = identity reads back the weights, exactly 0 on forbidden keys",
       IdentityValues, kLargestIdentityCase},
  };
}

}  // namespace attest
