// SPDX-License-Identifier: Apache-2.0
// Laws about gradients: dS = p (dP - delta) and what follows from it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsGradient(const std::string& output) { return output.starts_with("grad_"); }

bool AsksForGradients(const Case& problem) {
  return std::any_of(problem.contract.outputs.begin(), problem.contract.outputs.end(), IsGradient);
}

// The case with gradients of L = sum grad_out * o alone, and no other outputs.
Case GradientsOfOut(const Case& problem) {
  Case gradients = problem;
  gradients.tensors.erase("grad_lse");
  std::erase_if(gradients.contract.outputs, [](const auto& name) { return !IsGradient(name); });
  return gradients;
}

// delta = sum p dP and the weights sum to 1, so that a row of dS adds up to 0; a sink takes part of
// both. The gradient of the bias is dS; a bias of 0 is added where there is none.
LawResult BiasGradientSums(const Subject& subject, const Case& problem,
                           ExpectationCache& expectations) {
  if (!AsksForGradients(problem) || problem.Find("grad_out") == nullptr ||
      problem.Find("sinks") != nullptr) {
    return {};
  }
  const Dimensions& s = problem.contract.shape;
  Case biased = GradientsOfOut(problem);
  biased.contract.outputs = {"grad_bias"};
  if (problem.Find("bias") == nullptr) {
    biased.tensors["bias"] =
        Tensor(problem.contract.wide_dtype(), {s.batch, s.q_heads, s.q_len, s.kv_len});
  }
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, biased, &result);
  if (!outputs) return result;
  const StatusOr<const Expectation*> expected = expectations.Of(biased);
  if (!expected.ok()) return {};
  const Tensor& gradient = outputs->at("grad_bias");
  const Index n = gradient.shape()[3];
  for (Index row = 0; n > 0 && row < gradient.size() / n; ++row) {
    double sum = 0.0;
    double magnitude = 0.0;
    double bound = 0.0;
    bool judged = true;
    for (Index i = row * n; i < (row + 1) * n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      judged = judged && IsJudged(**expected, "grad_bias", at);
      bound += BoundOf(**expected, "grad_bias", at) +
               (*expected)->certified.outputs.at("grad_bias").values[at].radius;
      sum += gradient.At(i);
      magnitude += std::fabs(gradient.At(i));
    }
    if (!judged) continue;
    result.applied = true;
    if (std::fabs(sum) <= bound + static_cast<double>(n) * 0x1p-52 * magnitude) continue;
    std::vector<Index> index = Unflatten(row * n, gradient.shape());
    index.pop_back();
    result.violation = Violation{"grad_bias", index, sum, 0.0,
                                 "a row of the scores' gradient does not add up to 0"};
    return result;
  }
  return result;
}

// Weights of 0 and rows that are not computed pass nothing on.
LawResult MaskedGradients(const Subject& subject, const Case& problem,
                          ExpectationCache& expectations) {
  if (!AsksForGradients(problem)) return {};
  const StatusOr<CaseData> data = CaseData::Make(problem);
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!data.ok() || !expected.ok() || !data->finite()) return {};
  for (const char* name : {"v", "grad_out"}) {
    const Tensor* tensor = problem.Find(name);
    if (tensor != nullptr && !MagnitudesOf(*tensor).finite) return {};
  }
  const Dimensions& s = problem.contract.shape;
  const std::vector<bool> invisible = InvisibleKeys(*data);
  std::vector<bool> empty;  // rows
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    empty.push_back(data->Plan(RowAt(s, flat)).kind == RowPlan::Kind::kEmpty);
  }
  if (std::find(invisible.begin(), invisible.end(), true) == invisible.end() &&
      std::find(empty.begin(), empty.end(), true) == empty.end()) {
    return {};
  }
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, problem, &result);
  if (!outputs) return result;
  const std::pair<const char*, const std::vector<bool>*> exact_zeros[] = {
      {"grad_q", &empty}, {"grad_k", &invisible}, {"grad_v", &invisible}};
  for (const auto& [name, which] : exact_zeros) {
    const auto found = outputs->find(name);
    if (found == outputs->end()) continue;
    result.applied = true;
    const Tensor& gradient = found->second;
    const Index width = gradient.shape()[3];
    for (Index i = 0; i < gradient.size(); ++i) {
      if (!(*which)[static_cast<std::size_t>(i / width)]) continue;
      if (!IsJudged(**expected, name, static_cast<std::size_t>(i)) || gradient.At(i) == 0.0)
        continue;
      result.violation = Violation{name, Unflatten(i, gradient.shape()), gradient.At(i), 0.0,
                                   "the gradient of what takes no part is not exactly 0"};
      return result;
    }
  }
  return result;
}

// With every value alike the output does not depend on the weights: their gradients vanish. (Not
// what a sink, dropout or a Gaussian leaves of them.)
LawResult ConstantValueGradients(const Subject& subject, const Case& problem,
                                 ExpectationCache& expectations) {
  if (!AsksForGradients(problem) || problem.Find("grad_out") == nullptr ||
      problem.Find("sinks") != nullptr || problem.Find("keep") != nullptr ||
      (problem.contract.local && problem.contract.local->gaussian)) {
    return {};
  }
  Case constant = GradientsOfOut(problem);
  std::erase(constant.contract.outputs, "grad_v");
  Tensor& v = constant.tensors.at("v");
  v = Filled(v.dtype(), v.shape(), 1.0);
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, constant, &result);
  if (!outputs) return result;
  const StatusOr<const Expectation*> expected = expectations.Of(constant);
  if (!expected.ok()) return {};
  for (const auto& [name, gradient] : *outputs) {
    for (Index i = 0; i < gradient.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!IsJudged(**expected, name, at)) continue;
      result.applied = true;
      const double radius = (*expected)->certified.outputs.at(name).values[at].radius;
      if (std::fabs(gradient.At(i)) <= BoundOf(**expected, name, at) + 2.0 * radius) continue;
      result.violation = Violation{name, Unflatten(i, gradient.shape()), gradient.At(i), 0.0,
                                   "with every value alike a gradient of the scores is not 0"};
      return result;
    }
  }
  return result;
}

// Whether no intermediate result of gradients whose grad_out and grad_lse are at most `most` can
// overflow: products of everything that takes part, summed up over two axes at most.
bool StaysFinite(const Case& problem, double most) {
  const Contract& contract = problem.contract;
  const Dimensions& s = contract.shape;
  const double terms = static_cast<double>(s.batch * s.q_heads * s.q_len + s.kv_len + s.qk_dim +
                                           s.k_dim + s.v_dim + 1);
  double largest = std::max(1.0, most) * terms * terms;
  if (!contract.scale.rsqrt_dk) largest *= std::max(1.0, std::fabs(contract.scale.value));
  for (const char* name : {"q", "k", "v", "w", "w_q", "w_k", "v_a"}) {
    const Tensor* tensor = problem.Find(name);
    if (tensor == nullptr) continue;
    const Magnitudes size = MagnitudesOf(*tensor);
    largest *= size.finite ? std::max(1.0, size.largest) : kInfinity;
  }
  if (problem.Find("keep") != nullptr) largest /= 1.0 - contract.dropout_rate;
  return largest <=
         std::min(ModelOf(contract).largest_finite, FormatOf(contract.dtype).largest_finite()) /
             4.0;
}

// Whether no intermediate result of gradients whose grad_out and grad_lse are at least `least` can
// fall below the normal numbers. Of what is multiplied up to an element, weights come in three
// times (in the output, which may be rescaled, and in dS), and five sums may cancel down to a last
// place: the output, dP, delta, their difference, and the element itself.
bool StaysNormal(const Case& problem, const Expectation& expected, double least) {
  const Contract& contract = problem.contract;
  if (contract.score != ScoreKind::kDot || contract.softcap > 0.0 || contract.local ||
      problem.Find("keep") != nullptr) {
    return false;
  }
  double p = 1.0;
  const Conditions& conditions = expected.certified.conditions;
  for (std::size_t i = 0; i < conditions.weight.size(); ++i) {
    if (conditions.allowed[i] != 0) p = std::min(p, conditions.weight[i]);
  }
  const double q = MagnitudesOf(*problem.Find("q")).smallest;
  const double k = MagnitudesOf(*problem.Find("k")).smallest;
  const double v = MagnitudesOf(*problem.Find("v")).smallest;
  const double scale = contract.scale.rsqrt_dk
                           ? 1.0 / std::sqrt(static_cast<double>(contract.shape.k_dim))
                           : std::fabs(contract.scale.value);
  const ArithmeticModel model = ModelOf(contract);
  const double normal =
      std::max(model.smallest_normal, std::ldexp(1.0, FormatOf(contract.dtype).min_exponent));
  return p * p * p * std::min(1.0, least) * std::min(1.0, v) * std::min({1.0, q, k}) *
             std::min(1.0, scale) * std::pow(model.unit_roundoff, 5) >=
         normal;
}

// Gradients are linear in grad_out and grad_lse together. The bounds of the case hold for a fourth
// of what four times those give (its share of underflow is smaller), and a power of two passes
// through every rounding to nearest of normal numbers.
LawResult ScaledGradients(const Subject& subject, const Case& problem,
                          ExpectationCache& expectations) {
  constexpr double kFactor = 4.0;
  if (!AsksForGradients(problem)) return {};
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  Case original = problem;
  std::erase_if(original.contract.outputs, [](const auto& name) { return !IsGradient(name); });
  Case scaled = original;
  double least = 1.0;
  double most = 0.0;
  for (const char* name : {"grad_out", "grad_lse"}) {
    const auto tensor = scaled.tensors.find(name);
    if (tensor == scaled.tensors.end()) continue;
    const Magnitudes size = MagnitudesOf(tensor->second);
    if (!size.finite) return {};
    least = std::min(least, size.smallest);
    most = std::max(most, kFactor * size.largest);
    tensor->second = Times(tensor->second, kFactor);
  }
  if (!StaysFinite(problem, most)) return {};
  LawResult result;
  std::optional<TensorMap> multiplied = RunOk(subject, scaled, &result);
  if (!multiplied) return result;
  for (auto& [name, tensor] : *multiplied) {
    // A fourth of a subnormal number is no number of the type.
    const double normal = std::ldexp(kFactor, FormatOf(tensor.dtype()).min_exponent);
    for (Index i = 0; i < tensor.size(); ++i) {
      const double got = tensor.At(i);
      const auto at = static_cast<std::size_t>(i);
      if (!IsJudged(**expected, name, at) || (got != 0.0 && std::fabs(got) < normal)) continue;
      result.applied = true;
      if (Conforms(**expected, name, at, got / kFactor)) continue;
      result.violation = Violation{name, Unflatten(i, tensor.shape()), got / kFactor,
                                   (*expected)->certified.outputs.at(name).values[at].nearest,
                                   "4 grad_out does not give 4 times the gradients"};
      return result;
    }
  }
  if (!subject.info().deterministic || !StaysNormal(problem, **expected, least)) {
    return result;
  }
  const std::optional<TensorMap> outputs = RunOk(subject, original, &result);
  if (!outputs) return result;
  for (auto& [name, tensor] : *multiplied) tensor = Times(tensor, 1.0 / kFactor);
  return {true, FirstDifference(*multiplied, *outputs,
                                "4 grad_out does not give exactly 4 times the gradients")};
}

// grad_out = a + b without rounding: a has the rows of even queries, b the others.
LawResult AddedGradients(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  if (!AsksForGradients(problem) || problem.Find("grad_out") == nullptr ||
      problem.contract.shape.q_len < 2) {
    return {};
  }
  const Case whole = GradientsOfOut(problem);
  std::vector<Case> cases{whole, whole, whole};
  const Index width = problem.contract.shape.v_dim;
  for (std::size_t part : {1u, 2u}) {
    Tensor& grad_out = cases[part].tensors.at("grad_out");
    for (Index i = 0; i < grad_out.size(); ++i) {
      const Index query = i / width % problem.contract.shape.q_len;
      if (query % 2 == static_cast<Index>(part) - 1) grad_out.Set(i, 0.0);
    }
  }
  LawResult result;
  std::vector<TensorMap> outputs;
  std::vector<const Expectation*> expected;
  for (const Case& c : cases) {
    std::optional<TensorMap> given = RunOk(subject, c, &result);
    const StatusOr<const Expectation*> certified = expectations.Of(c);
    if (!given || !certified.ok()) return result;
    outputs.push_back(*std::move(given));
    expected.push_back(*certified);
  }
  for (const auto& [name, sum] : outputs[0]) {
    for (Index i = 0; i < sum.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      double bound = 0.0;
      bool judged = true;
      for (std::size_t c = 0; c < 3; ++c) {
        judged = judged && IsJudged(*expected[c], name, at);
        bound += BoundOf(*expected[c], name, at) +
                 2.0 * expected[c]->certified.outputs.at(name).values[at].radius;
      }
      if (!judged) continue;
      result.applied = true;
      const double a = outputs[1].at(name).At(i);
      const double b = outputs[2].at(name).At(i);
      const double roundoff = 0x1p-52 * (std::fabs(a) + std::fabs(b) + std::fabs(sum.At(i)));
      if (std::fabs(sum.At(i) - (a + b)) <= bound + roundoff) continue;
      result.violation = Violation{name, Unflatten(i, sum.shape()), sum.At(i), a + b,
                                   "the gradients of two parts of grad_out do not add up"};
      return result;
    }
  }
  return result;
}

}  // namespace

std::vector<Law> GradientLaws() {
  return {
      {"bias-gradient-sums", "a row of the scores' gradient adds up to 0", BiasGradientSums,
       kLargestCertifiedVariation},
      {"masked-gradients", "gradients of masked keys and empty rows are exactly 0",
       MaskedGradients},
      {"constant-value-gradients", "with every value alike, gradients of the scores vanish",
       ConstantValueGradients, kLargestCertifiedVariation},
      {"scaled-gradients",
       "4 grad_out gives 4 times the gradients (exactly, where nothing underflows)",
       ScaledGradients},
      {"added-gradients", "gradients of a sum are sums of gradients", AddedGradients,
       kLargestCertifiedVariation},
  };
}

}  // namespace attest
