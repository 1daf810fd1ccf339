// SPDX-License-Identifier: Apache-2.0
// Laws about the set of keys and the zero of scores: keys added, doubled and split, scores shifted.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A key of score -infinity has weight exp(-infinity) = 0, whether a mask or a bias says so.
LawResult AddedKey(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Dimensions& s = problem.contract.shape;
  const Index n = s.kv_len;
  // Where weights are NaN by the contract, so may be that of the key.
  if (n < 1 || KeyPositionsMatter(problem) || problem.contract.empty_row != EmptyRow::kZero) {
    return {};
  }
  const StatusOr<CaseData> data = CaseData::Make(problem);
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!data.ok() || !expected.ok() || !data->finite()) return {};
  Selections more{{Axis::kKey, Positions(0, n)}};
  more[0].from.push_back(n - 1);
  const Case longer = Select(Forward(problem), more);
  more[0].from.back() = -1;  // weight 0 is expected of it
  const Shape scores{s.batch, s.q_heads, s.q_len, n + 1};
  Case masked = longer;
  masked.tensors["mask"] = Filled(DType::kBool, scores, 0.0);
  Case biased = longer;
  const Tensor* given = problem.Find("bias");
  biased.tensors["bias"] =
      Tensor(given != nullptr ? given->dtype() : problem.contract.wide_dtype(), scores);
  for (Index i = 0; i < s.batch * s.q_heads * s.q_len; ++i) {
    const RowId row = RowAt(s, i);
    for (Index j = 0; j < n; ++j) {
      masked.tensors["mask"].Set(i * (n + 1) + j, data->Allowed(row, j) ? 1.0 : 0.0);
      biased.tensors["bias"].Set(i * (n + 1) + j, data->BiasAt(row, j));
    }
    biased.tensors["bias"].Set(i * (n + 1) + n, -kInfinity);
  }
  LawResult result;
  for (const Case& variation : {masked, biased}) {
    const std::optional<TensorMap> outputs = RunOk(subject, variation, &result);
    if (result.violation) return result;
    if (!outputs) continue;
    result.applied = true;
    result.violation = FirstAboveBound(**expected, problem, *outputs, more,
                                       "one more key, of score -infinity, changes the result");
    if (result.violation) return result;
  }
  return result;
}

// Every key twice: the same exponentials twice over, above and below the line.
LawResult DoubledKeys(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  if (problem.contract.shape.kv_len < 1 || KeyPositionsMatter(problem) ||
      problem.Find("sinks") != nullptr) {
    return {};
  }
  std::vector<Index> twice;
  for (Index j = 0; j < problem.contract.shape.kv_len; ++j) twice.insert(twice.end(), {j, j});
  return StaysWithinBounds(subject, Select(Forward(problem), {{Axis::kKey, twice}}), expectations,
                           "with every key twice, weights are not halved or the LSE has not grown "
                           "by ln 2");
}

// One part of a row: its output and LSE with their bounds.
struct Part {
  std::vector<double> out, out_bound;
  double lse = -kInfinity;
  double lse_bound = 0.0;
};

// o = sum of e^(LSE_h - LSE) o_h over the parts h of the keys. The factors are taken from computed
// LSE, each within lambda, so that they are within a factor e^(2 lambda) of the exact ones.
class Merge {
 public:
  explicit Merge(const std::array<Part, 2>& parts) : parts_(parts) {
    const double largest = std::max(parts[0].lse, parts[1].lse);
    double sum = 0.0;
    for (std::size_t h = 0; h < 2; ++h) {
      factors_[h] = std::exp(parts[h].lse - largest);
      sum += factors_[h];
      if (parts[h].lse == -kInfinity) continue;
      lambda_ = std::max(lambda_, parts[h].lse_bound);
      // One rounding of the difference, then an exponential, a sum, a quotient and products.
      roundoff_ = std::max(roundoff_, (largest - parts[h].lse + 16.0) * 0x1p-52);
    }
    for (double& factor : factors_) factor /= sum;
    lse_ = largest + std::log(sum);
  }

  double lse() const { return lse_; }
  double LseBound() const { return lambda_ + roundoff_ * (1.0 + std::fabs(lse_)); }
  double Out(std::size_t c) const {
    return factors_[0] * parts_[0].out[c] + factors_[1] * parts_[1].out[c];
  }
  double OutBound(std::size_t c) const {
    double bound = 0.0;
    for (std::size_t h = 0; h < 2; ++h) {
      if (factors_[h] == 0.0) continue;
      const double size = std::fabs(parts_[h].out[c]) + parts_[h].out_bound[c];
      bound +=
          factors_[h] * (parts_[h].out_bound[c] + (std::expm1(2.0 * lambda_) + roundoff_) * size);
    }
    return bound;
  }

 private:
  const std::array<Part, 2>& parts_;
  std::array<double, 2> factors_{};
  double lambda_ = 0.0;
  double roundoff_ = 0.0;
  double lse_ = 0.0;
};

// Nothing where an element is not judged.
std::optional<Part> PartOf(const Expectation& expected, const TensorMap& outputs, Index flat,
                           Index width) {
  const auto row = static_cast<std::size_t>(flat);
  Part part;
  part.lse = outputs.at("lse").At(flat);
  const auto radius = [&](const char* name, std::size_t at) {
    return expected.certified.outputs.at(name).values[at].radius;
  };
  part.lse_bound = BoundOf(expected, "lse", row) + 2.0 * radius("lse", row);
  bool judged = IsJudged(expected, "lse", row) && !std::isnan(part.lse) && part.lse != kInfinity;
  for (Index c = 0; c < width; ++c) {
    const auto at = static_cast<std::size_t>(flat * width + c);
    part.out.push_back(outputs.at("out").At(static_cast<Index>(at)));
    part.out_bound.push_back(BoundOf(expected, "out", at) + 2.0 * radius("out", at));
    judged = judged && IsJudged(expected, "out", at) && std::isfinite(part.out.back());
  }
  return judged ? std::optional(std::move(part)) : std::nullopt;
}

LawResult MergedHalves(const Subject& subject, const Case& problem,
                       ExpectationCache& expectations) {
  const Dimensions& s = problem.contract.shape;
  if (s.kv_len < 2 || KeyPositionsMatter(problem) || problem.Find("sinks") != nullptr ||
      problem.contract.empty_row != EmptyRow::kZero || !problem.contract.Wants("lse") ||
      !problem.contract.Wants("out")) {
    return {};
  }
  LawResult result;
  const StatusOr<const Expectation*> whole = expectations.Of(problem);
  if (!whole.ok()) return {};
  Case both = Forward(problem);
  both.contract.outputs = {"out", "lse"};
  const Index middle = std::max<Index>(1, s.kv_len / 3);
  std::array<std::optional<TensorMap>, 2> outputs;
  std::array<const Expectation*, 2> expected{};
  for (std::size_t h = 0; h < 2; ++h) {
    const Case half =
        Select(both, {{Axis::kKey, h == 0 ? Positions(0, middle) : Positions(middle, s.kv_len)}});
    const StatusOr<const Expectation*> certified = expectations.Of(half);
    outputs[h] = RunOk(subject, half, &result);
    if (!outputs[h] || !certified.ok()) return result;
    expected[h] = *certified;
  }
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    const std::optional<Part> first = PartOf(*expected[0], *outputs[0], flat, s.v_dim);
    const std::optional<Part> second = PartOf(*expected[1], *outputs[1], flat, s.v_dim);
    // Where no half has a key there is nothing to merge.
    if (!first || !second || std::max(first->lse, second->lse) == -kInfinity) continue;
    const std::array<Part, 2> parts{*first, *second};
    const Merge merge(parts);
    const auto check = [&](const char* name, Index at, double got, double bound) {
      const CertifiedValue& exact =
          (*whole)->certified.outputs.at(name).values[static_cast<std::size_t>(at)];
      const double error = std::fabs((got - exact.hi) - exact.lo);
      if (!std::isfinite(exact.hi) || error <= bound + exact.radius) return true;
      result.violation =
          Violation{name, Unflatten(at, OutputShape(problem, name)), got, exact.nearest,
                    "two parts of the keys, merged by their LSE, give another result"};
      return false;
    };
    result.applied = true;
    if (!check("lse", flat, merge.lse(), merge.LseBound())) return result;
    for (Index c = 0; c < s.v_dim; ++c) {
      const auto column = static_cast<std::size_t>(c);
      if (!check("out", flat * s.v_dim + c, merge.Out(column), merge.OutBound(column)))
        return result;
    }
  }
  return result;
}

// A constant added to every score of a row multiplies numerator and denominator alike: output and
// weights stay, the LSE moves with it.
LawResult ScoreShift(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  if (problem.Find("sinks") != nullptr) return {};
  const Index m = problem.contract.shape.q_len;
  const auto shift = [](Index row) { return static_cast<double>(4 * (row % 3) - 3); };
  Case shifted = Forward(problem);
  const Tensor* given = problem.Find("bias");
  if (given == nullptr) {
    Tensor bias(problem.contract.wide_dtype(), {1, 1, m, 1});
    for (Index i = 0; i < m; ++i) bias.Set(i, shift(i));
    shifted.tensors["bias"] = std::move(bias);
  } else {
    Tensor& bias = shifted.tensors.at("bias");
    const Shape& shape = bias.shape();
    for (Index i = 0; i < bias.size(); ++i) {
      // Rounding the sum would be another shift for another key.
      const double by = shape[3] == 0 ? 0.0 : shift(i / shape[3] % shape[2]);
      const double before = given->At(i);
      const double after = before + by;
      bias.Set(i, after);
      if (!std::isfinite(before)) continue;
      const double added = after - before;  // Knuth's exact sum: after + rest = before + by
      const double rest = (before - (after - added)) + (by - added);
      if (rest != 0.0 || bias.At(i) != after) return {};
    }
  }
  return StaysWithinBounds(subject, shifted, expectations,
                           "a constant added to the scores of a row changes output or weights, or "
                           "the LSE by another amount");
}

}  // namespace

std::vector<Law> KeyLaws() {
  return {
      {"added-key", "one more key of score -infinity changes nothing", AddedKey},
      {"doubled-keys", "every key twice halves the weights and adds ln 2 to the LSE", DoubledKeys,
       kLargestCertifiedVariation},
      {"merged-parts", "two parts of the keys merge by their LSE", MergedHalves,
       kLargestCertifiedVariation},
      {"score-shift", "a constant added to a row's scores shifts the LSE and nothing else",
       ScoreShift, kLargestCertifiedVariation},
  };
}

}  // namespace attest
