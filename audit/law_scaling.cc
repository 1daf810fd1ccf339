// SPDX-License-Identifier: Apache-2.0
// Laws about exact factors: powers of two and signs pass through every rounding to nearest, as long
// as nothing leaves the range of normal numbers; and what such factors leave as it is.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Cancellation leaves a last place of what was added up, at worst twice in a row of operations (a
// partial sum, rescaled and summed again).
double Cancelled(const Limits& limits) { return limits.unit_roundoff * limits.unit_roundoff; }

// The smallest weight of a key that takes part, or share of an average; 0 where a row has none.
double SmallestWeight(const Case& problem, const Expectation& expected) {
  const Conditions& conditions = expected.certified.conditions;
  double smallest = 1.0 / static_cast<double>(std::max<Index>(problem.contract.shape.kv_len, 1));
  for (std::size_t i = 0; i < conditions.weight.size(); ++i) {
    // Allowed keys of score -infinity have weight 0 whatever v is multiplied by.
    if (conditions.allowed[i] == 0 || conditions.log_weight[i] == -kInfinity) continue;
    smallest = std::min(smallest, std::max(0.0, conditions.weight[i]));
  }
  return smallest;
}

// The laws on v: the case with v times `factor` and the output times its inverse against the case.
// Elements below the normal numbers of the output's type, before or after, are not compared.
LawResult ScaledOutput(const Subject& subject, const Case& problem, double factor,
                       const std::string& explanation) {
  LawResult result;
  const Case original = Forward(problem);
  Case scaled = original;
  scaled.tensors.at("v") = Times(original.tensors.at("v"), factor);
  const std::optional<TensorMap> outputs = RunOk(subject, original, &result);
  std::optional<TensorMap> multiplied = RunOk(subject, scaled, &result);
  if (!outputs || !multiplied) return result;
  const FloatFormat& format = FormatOf(OutputDType(problem, "out"));
  const double smallest = std::ldexp(2.0, format.min_exponent) * std::max(1.0, factor);
  for (auto& [name, tensor] : *multiplied) {
    const Tensor& before = outputs->at(name);
    for (Index i = 0; i < tensor.size(); ++i) {
      const double by = name == "out" ? factor : 1.0;
      const double expected = by * before.At(i);
      const double got = tensor.At(i);
      if (got == expected || (std::isnan(got) && std::isnan(expected))) continue;
      const bool leaves_range = std::fabs(factor) != 1.0 &&
                                (!(std::fabs(expected) >= smallest && std::fabs(got) >= smallest) ||
                                 !(std::fabs(expected) <= format.largest_finite() / 2.0));
      if (leaves_range && name == "out") continue;
      return {true, Violation{name, Unflatten(i, tensor.shape()), got, expected, explanation}};
    }
  }
  return {true, std::nullopt};
}

LawResult NegatedValues(const Subject& subject, const Case& problem, ExpectationCache&) {
  if (!subject.info().deterministic || !problem.contract.Wants("out")) return {};
  return ScaledOutput(subject, problem, -1.0,
                      "negating v does not exactly negate the output (rounding to nearest is "
                      "symmetric)");
}

LawResult ScaledValues(const Subject& subject, const Case& problem,
                       ExpectationCache& expectations) {
  constexpr double kFactor = 8.0;
  if (!subject.info().deterministic || !problem.contract.Wants("out")) return {};
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  const Tensor& v = *problem.Find("v");
  const Magnitudes values = MagnitudesOf(v);
  const Limits limits = LimitsOf(problem.contract);
  const double p = SmallestWeight(problem, **expected);
  const double rate = problem.Find("keep") != nullptr ? problem.contract.dropout_rate : 0.0;
  const double n = static_cast<double>(problem.contract.shape.kv_len);
  const bool in_range = values.finite &&
                        p * p * values.smallest * Cancelled(limits) >= limits.smallest_normal &&
                        values.largest * kFactor * n / (1.0 - rate) <= limits.largest / 4.0 &&
                        values.smallest >= std::ldexp(1.0, FormatOf(v.dtype()).min_exponent) &&
                        values.largest * kFactor <= FormatOf(v.dtype()).largest_finite();
  if (!in_range && values.largest > 0.0) return {};
  return ScaledOutput(subject, problem, kFactor,
                      "v times 8 does not give exactly 8 times the output");
}

// Both cases compute the same scores to the last bit: wherever the scale is applied, 2^4 in q and
// 2^-4 in the scale meet (and so do their square and fourth roots, where both q and k are scaled).
LawResult ScaleInQuery(const Subject& subject, const Case& problem, ExpectationCache&) {
  constexpr double kFactor = 16.0;
  const Contract& contract = problem.contract;
  const std::optional<double> scale = ExactScale(contract);
  if (!subject.info().deterministic || contract.score != ScoreKind::kDot || !scale) return {};
  const Magnitudes q = MagnitudesOf(*problem.Find("q"));
  const Magnitudes k = MagnitudesOf(*problem.Find("k"));
  const Limits limits = LimitsOf(contract);
  const FloatFormat& format = FormatOf(contract.dtype);
  const double c = std::fabs(*scale) / kFactor;
  const double normal = std::max(limits.smallest_normal, std::ldexp(1.0, format.min_exponent));
  const double large = std::min(limits.largest, format.largest_finite()) / 4.0;
  const double width = static_cast<double>(contract.shape.k_dim);
  const bool in_range = q.finite && k.finite && c >= normal / limits.unit_roundoff &&
                        std::min(1.0, c) *
                                std::min({q.smallest * k.smallest, q.smallest, k.smallest}) *
                                Cancelled(limits) >=
                            limits.smallest_normal &&
                        q.smallest >= normal && k.smallest >= normal &&
                        kFactor * std::max(1.0, kFactor * c) *
                                std::max({width * q.largest * k.largest, q.largest, k.largest}) <=
                            large;
  if (!in_range) return {};
  Case original = Forward(problem);
  original.contract.scale = {false, *scale};
  Case moved = original;
  moved.contract.scale.value = *scale / kFactor;
  moved.tensors.at("q") = Times(original.tensors.at("q"), kFactor);
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, original, &result);
  const std::optional<TensorMap> others = RunOk(subject, moved, &result);
  if (!outputs || !others) return result;
  return {true, FirstDifference(*others, *outputs,
                                "16 q with a sixteenth of the scale gives other bits")};
}

// Zeros add nothing to a product of vectors, exactly; the scale is a number that does not change.
LawResult PaddedHeadSize(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  const Contract& contract = problem.contract;
  const std::optional<double> scale = ExactScale(contract);
  if (contract.score != ScoreKind::kDot || !scale) return {};
  Case padded = Forward(problem);
  padded.contract.scale = {false, *scale};
  constexpr Index kMore = 3;
  const Index width = contract.shape.qk_dim;
  padded.contract.shape.qk_dim = padded.contract.shape.k_dim = width + kMore;
  for (const char* name : {"q", "k"}) {
    const Tensor& given = *problem.Find(name);
    Shape shape = given.shape();
    shape[3] += kMore;
    Tensor wider(given.dtype(), shape);
    for (Index i = 0; i < given.size(); ++i) {
      wider.Set(i / width * (width + kMore) + i % width, given.At(i));
    }
    padded.tensors[name] = std::move(wider);
  }
  return GivesTheSame(subject, problem, padded, false, expectations,
                      "zeros at the end of every query and key change the result");
}

// c tanh(s / c) = s (1 - (s / c)^2 / 3 + ...): with c = 2^40 the cap is none, unless s / c is kept
// in a type in which it vanishes.
LawResult HugeSoftcap(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  if (problem.contract.softcap > 0.0 || LimitsOf(problem.contract).smallest_normal > 0x1p-100) {
    return {};
  }
  Case capped = Forward(problem);
  capped.contract.softcap = 0x1p40;
  return StaysWithinBounds(subject, capped, expectations,
                           "a soft cap of 2^40 gives another result than none");
}

}  // namespace

std::vector<Law> ScalingLaws() {
  return {
      {"negated-values", "negating v negates the output exactly", NegatedValues},
      {"scaled-values", "8 v gives 8 times the output exactly", ScaledValues},
      {"scale-in-query", "16 q with a sixteenth of the scale gives the same bits", ScaleInQuery},
      {"padded-head-size", "zeros at the end of queries and keys change nothing", PaddedHeadSize},
      {"huge-softcap", "a soft cap of 2^40 equals none", HugeSoftcap, kLargestCertifiedVariation},
  };
}

}  // namespace attest
