// SPDX-License-Identifier: Apache-2.0
#include "audit/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attest {
namespace {

bool IsGradient(const std::string& tensor) { return tensor.starts_with("grad_"); }

const std::vector<double>& BoundsOf(const Expectation& expected, const std::string& tensor) {
  if (IsGradient(tensor)) return expected.gradient_bounds.at(tensor).bound;
  if (tensor == "lse") return expected.bounds.lse;
  if (tensor == "weights") return expected.bounds.weights;
  return expected.bounds.out;
}

// |got - exact| less the enclosure's radius, at least 0; NaN for a NaN (std::max would hide it).
double ErrorOf(const CertifiedValue& exact, double got) {
  const double error = std::fabs((got - exact.hi) - exact.lo) - exact.radius;
  return error < 0.0 ? 0.0 : error;
}

// One output of one case, with what judges its elements at hand.
class OutputJudge {
 public:
  OutputJudge(const Expectation& expected, const std::string& tensor)
      : expected_(expected),
        certified_(expected.certified.outputs.at(tensor)),
        bounds_(BoundsOf(expected, tensor)),
        is_gradient_(IsGradient(tensor)),
        is_out_(tensor == "out") {}

  const CertifiedTensor& certified() const { return certified_; }
  const std::vector<double>& bounds() const { return bounds_; }

  bool IsJudged(std::size_t at) const {
    const CertifiedValue& exact = certified_.values[at];
    if (is_gradient_) return std::isfinite(exact.hi) && std::isfinite(bounds_[at]);
    const std::vector<std::uint8_t>& in_range = expected_.bounds.row_in_range;
    if (in_range[at / (certified_.values.size() / in_range.size())] == 0) return false;
    const bool exactly = !std::isfinite(exact.hi) && exact.radius == 0.0;
    return exactly || std::isfinite(bounds_[at]);
  }

  bool Conforms(std::size_t at, double got) const {
    if (!IsJudged(at)) return true;
    const CertifiedValue& exact = certified_.values[at];
    if (std::isnan(exact.hi)) return std::isnan(got);
    if (std::isinf(exact.hi) && exact.radius == 0.0) {
      const bool may_vanish = is_out_ && expected_.bounds.vanishing_infinity[at] != 0;
      return got == exact.hi || (may_vanish && std::isnan(got));
    }
    if (std::isinf(got)) {
      // Right where the exact value, give or take the bound without the output's own rounding,
      // rounds to infinity: from half a last place beyond the largest finite number on.
      const FloatFormat& format = FormatOf(certified_.dtype);
      const double u = format.unit_roundoff();
      const double magnitude = std::fabs(exact.hi);
      const double arithmetic = std::max(0.0, bounds_[at] - u * magnitude) / (1.0 + u);
      return std::signbit(got) == std::signbit(exact.hi) &&
             magnitude + arithmetic >= format.largest_finite() * (1.0 + u / 2.0);
    }
    return ErrorOf(exact, got) <= bounds_[at];
  }

 private:
  const Expectation& expected_;
  const CertifiedTensor& certified_;
  const std::vector<double>& bounds_;
  const bool is_gradient_;
  const bool is_out_;
};

void Summarise(const Case& problem, Expectation* expected) {
  const Dimensions& s = problem.contract.shape;
  const Conditions& conditions = expected->certified.conditions;
  const auto n = static_cast<std::size_t>(s.kv_len);
  expected->min_entropy = std::numeric_limits<double>::infinity();
  for (std::size_t row = 0; n > 0 && row < conditions.weight.size() / n; ++row) {
    double largest = -std::numeric_limits<double>::infinity();
    double smallest = std::numeric_limits<double>::infinity();
    double entropy = 0.0;
    for (std::size_t j = row * n; j < (row + 1) * n; ++j) {
      const double p = conditions.weight[j];
      if (conditions.allowed[j] == 0 || !(p > 0.0)) continue;
      largest = std::max(largest, conditions.log_weight[j]);
      smallest = std::min(smallest, conditions.log_weight[j]);
      entropy -= p * std::log(p);
    }
    if (largest < smallest) continue;  // a row without keys
    expected->logit_spread = std::max(expected->logit_spread, largest - smallest);
    expected->min_entropy = std::min(expected->min_entropy, entropy);
  }
  if (std::isinf(expected->min_entropy)) expected->min_entropy = 0.0;
}

}  // namespace

StatusOr<Expectation> Expect(const Case& problem, int threads) {
  const Dimensions& s = problem.contract.shape;
  const Index scores = s.batch * s.q_heads * s.q_len * s.kv_len;
  if (scores > kMostScores) {
    return Unsupported(
        fmt::format("{} scores, an audit takes up to {} a case", scores, kMostScores));
  }
  // Forward outputs are certified whatever is asked for: bounds and laws need them.
  Case complete = problem;
  complete.contract.outputs = {"out", "lse", "weights"};
  for (const std::string& output : problem.contract.outputs) {
    if (!complete.contract.Wants(output)) complete.contract.outputs.push_back(output);
  }
  CertifyOptions options;
  options.threads = threads;
  options.conditions = true;
  StatusOr<Certified> certified = Certify(complete, options);
  if (!certified.ok()) return certified.status();
  const ArithmeticModel model = ModelOf(problem.contract);
  Expectation expected;
  expected.certified = *std::move(certified);
  expected.bounds = EvaluateBounds(complete, expected.certified, model);
  expected.gradient_bounds =
      EvaluateGradientBounds(complete, expected.certified, expected.bounds, model);
  expected.unit_roundoff = model.unit_roundoff;
  Summarise(problem, &expected);
  return expected;
}

bool IsJudged(const Expectation& expected, const std::string& tensor, std::size_t at) {
  return OutputJudge(expected, tensor).IsJudged(at);
}

double BoundOf(const Expectation& expected, const std::string& tensor, std::size_t at) {
  return BoundsOf(expected, tensor)[at];
}

bool Conforms(const Expectation& expected, const std::string& tensor, std::size_t at, double got) {
  return OutputJudge(expected, tensor).Conforms(at, got);
}

TensorVerdict Judge(const Expectation& expected, const std::string& tensor, const Tensor& got) {
  const OutputJudge judge(expected, tensor);
  const CertifiedTensor& certified = judge.certified();
  const FloatFormat& format = FormatOf(certified.dtype);
  const std::vector<double>& bounds = judge.bounds();
  TensorVerdict verdict;
  verdict.tensor = tensor;
  verdict.elements = got.size();
  bool have_worst = false;
  for (Index flat = 0; flat < got.size(); ++flat) {
    const auto at = static_cast<std::size_t>(flat);
    const CertifiedValue& exact = certified.values[at];
    const double value = got.At(flat);
    if (!judge.IsJudged(at)) {
      ++verdict.not_judged;
      continue;
    }
    const bool same = value == exact.nearest || (std::isnan(value) && std::isnan(exact.nearest));
    if (!same) ++verdict.not_correctly_rounded;
    const bool conforms = judge.Conforms(at, value);
    if (!conforms) ++verdict.violations;

    const bool comparable = std::isfinite(value) && std::isfinite(exact.hi);
    const double error = comparable ? ErrorOf(exact, value) : 0.0;
    const double ulp = comparable ? error / Ulp(exact.hi, format) : 0.0;
    double ratio = conforms || comparable ? 0.0 : std::numeric_limits<double>::infinity();
    if (comparable && error > 0.0) ratio = error / bounds[at];
    verdict.max_ulp = std::max(verdict.max_ulp, ulp);
    verdict.max_bound_ratio = std::max(verdict.max_bound_ratio, ratio);
    if (tensor == "out" && expected.bounds.magnitude[at] > 0x1p-960) {
      verdict.max_scaled_error =
          std::max(verdict.max_scaled_error.value_or(0.0),
                   error / (expected.unit_roundoff * expected.bounds.magnitude[at]));
    }
    if (!have_worst || ratio > verdict.worst.bound_ratio) {
      have_worst = true;
      verdict.worst = {Unflatten(flat, got.shape()), value, exact.nearest, ulp, ratio};
      verdict.non_finite_mismatch = !conforms && !comparable;
    }
  }
  return verdict;
}

}  // namespace attest
