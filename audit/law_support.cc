// SPDX-License-Identifier: Apache-2.0
#include "audit/law_support.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "audit/case_slice.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsGradient(const std::string& output) { return output.starts_with("grad_"); }

bool AreAlike(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Which axis of a tensor or output is `axis`; nothing where it has none such.
std::optional<std::size_t> AxisOf(const std::string& name, Axis axis) {
  std::string tensor = name;
  if (IsGradient(name) && name != "grad_out" && name != "grad_lse") tensor = name.substr(5);
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), tensor) != names.end();
  };
  const bool of_scores = is({"mask", "bias", "keep", "weights"});
  const bool of_rows = is({"q", "out", "lse", "grad_out", "grad_lse", "local_center"});
  const bool of_keys = is({"k", "v"});
  switch (axis) {
    case Axis::kBatch:
      if (of_scores || of_rows || of_keys ||
          is({"kv_lengths", "q_lengths", "q_documents", "kv_documents"})) {
        return 0;
      }
      break;
    case Axis::kQueryHead:
      if (of_scores || of_rows) return 1;
      if (is({"sinks", "alibi_slopes"})) return 0;
      break;
    case Axis::kKeyHead:
      if (of_keys) return 1;
      break;
    case Axis::kQuery:
      if (of_scores || of_rows) return 2;
      if (is({"q_documents"})) return 1;
      break;
    case Axis::kKey:
      if (of_scores) return 3;
      if (of_keys) return 2;
      if (is({"kv_documents"})) return 1;
      break;
  }
  return std::nullopt;
}

// Whether an axis of length 1 of the tensor stands for the whole axis.
bool Broadcasts(const std::string& name) {
  return name == "mask" || name == "bias" || name == "keep" || name == "grad_bias";
}

Index& ExtentOf(Dimensions& shape, Axis axis) {
  switch (axis) {
    case Axis::kBatch:
      return shape.batch;
    case Axis::kQueryHead:
      return shape.q_heads;
    case Axis::kKeyHead:
      return shape.kv_heads;
    case Axis::kQuery:
      return shape.q_len;
    default:
      return shape.kv_len;
  }
}

// Calls move(to, from, count) for runs of elements that a selection along `axis` moves.
template <class Move>
void ForRuns(const Shape& shape, std::size_t axis, const std::vector<Index>& from,
             const Move& move) {
  Index outer = 1;
  Index inner = 1;
  for (std::size_t a = 0; a < shape.size(); ++a) {
    if (a < axis) outer *= shape[a];
    if (a > axis) inner *= shape[a];
  }
  Index to = 0;
  for (Index o = 0; o < outer; ++o) {
    for (const Index f : from) {
      if (f >= 0 && inner > 0) move(to, (o * shape[axis] + f) * inner, inner);
      to += inner;
    }
  }
}

}  // namespace

std::optional<TensorMap> RunOk(const Subject& subject, const Case& problem, LawResult* result,
                               const CallOptions& options) {
  if (problem.contract.outputs.empty()) return std::nullopt;
  Outcome outcome = subject.Run(problem, options);
  if (outcome.kind == Outcome::Kind::kFailed) {
    *result = {true, Violation{"", {}, kNaN, kNaN, outcome.message}, outcome.code};
    return std::nullopt;
  }
  if (outcome.kind != Outcome::Kind::kOk) return std::nullopt;
  for (const std::string& output : problem.contract.outputs) {
    if (!outcome.outputs.contains(output)) return std::nullopt;
  }
  return std::move(outcome.outputs);
}

bool HasFixedBits(const Subject& subject) {
  return subject.info().deterministic && subject.info().batch_invariant;
}

std::optional<Violation> FirstDifference(const TensorMap& got, const TensorMap& expected,
                                         const std::string& explanation) {
  for (const auto& [name, tensor] : got) {
    const auto other = expected.find(name);
    if (other == expected.end()) continue;
    for (Index i = 0; i < tensor.size(); ++i) {
      const double a = tensor.At(i);
      const double b = other->second.At(i);
      if (!AreAlike(a, b)) return Violation{name, Unflatten(i, tensor.shape()), a, b, explanation};
    }
  }
  return std::nullopt;
}

std::optional<Violation> FirstAboveBound(const Expectation& expected, const TensorMap& outputs,
                                         const std::string& explanation) {
  for (const auto& [name, tensor] : outputs) {
    const TensorVerdict verdict = Judge(expected, name, tensor);
    if (verdict.violations > 0) {
      return Violation{name, verdict.worst.index, verdict.worst.got, verdict.worst.expected,
                       explanation};
    }
  }
  return std::nullopt;
}

LawResult GivesTheSame(const Subject& subject, const Case& problem, const Case& variation,
                       bool bits, ExpectationCache& expectations, const std::string& explanation) {
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, variation, &result);
  if (!outputs) return result;
  if (bits) {
    const std::optional<TensorMap> original = RunOk(subject, problem, &result);
    if (!original) return result;
    return {true, FirstDifference(*outputs, *original, explanation)};
  }
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  return {true, FirstAboveBound(**expected, *outputs, explanation)};
}

std::optional<LawResult> Departs(const Subject& subject, const Case& problem,
                                 ExpectationCache& expectations, const std::string& explanation) {
  LawResult itself = StaysWithinBounds(subject, problem, expectations, explanation);
  if (itself.applied && !itself.violation) return std::nullopt;
  return itself;
}

LawResult EachGivesTheSame(const Subject& subject, const Case& problem,
                           const std::vector<Case>& variations, bool bits,
                           ExpectationCache& expectations, const std::string& explanation) {
  bool applied = false;
  for (const Case& variation : variations) {
    LawResult result = GivesTheSame(subject, problem, variation, bits, expectations, explanation);
    if (result.violation) return result;
    applied = applied || result.applied;
  }
  return {applied, std::nullopt};
}

LawResult StaysWithinBounds(const Subject& subject, const Case& variation,
                            ExpectationCache& expectations, const std::string& explanation) {
  return GivesTheSame(subject, variation, variation, false, expectations, explanation);
}

Case Forward(const Case& problem) {
  Case forward = problem;
  std::erase_if(forward.contract.outputs, IsGradient);
  forward.tensors.erase("grad_out");
  forward.tensors.erase("grad_lse");
  return forward;
}

std::vector<Index> Positions(Index first, Index last) {
  std::vector<Index> positions(static_cast<std::size_t>(last - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

std::vector<Index> Backwards(Index count) {
  std::vector<Index> positions = Positions(0, count);
  std::reverse(positions.begin(), positions.end());
  return positions;
}

Case Select(const Case& problem, const Selections& selections) {
  Case selected = problem;
  for (const Selection& s : selections) {
    ExtentOf(selected.contract.shape, s.axis) = static_cast<Index>(s.from.size());
    for (auto& [name, tensor] : selected.tensors) {
      const std::optional<std::size_t> axis = AxisOf(name, s.axis);
      if (!axis || (Broadcasts(name) && tensor.shape()[*axis] == 1)) continue;
      tensor = TakeEntries(tensor, *axis, s.from);
    }
  }
  return selected;
}

std::vector<Index> Sources(const Case& problem, const std::string& output,
                           const Selections& selections) {
  Shape shape = OutputShape(problem, output);
  std::vector<Index> sources = Positions(0, ElementCount(shape));
  for (const Selection& s : selections) {
    const std::optional<std::size_t> axis = AxisOf(output, s.axis);
    if (!axis || (Broadcasts(output) && shape[*axis] == 1)) continue;
    Shape moved_shape = shape;
    moved_shape[*axis] = static_cast<Index>(s.from.size());
    std::vector<Index> moved(static_cast<std::size_t>(ElementCount(moved_shape)), -1);
    ForRuns(shape, *axis, s.from, [&](Index to, Index source, Index count) {
      std::copy_n(sources.begin() + source, count, moved.begin() + to);
    });
    sources = std::move(moved);
    shape = moved_shape;
  }
  return sources;
}

std::optional<Violation> FirstAboveBound(const Expectation& expected, const Case& problem,
                                         const TensorMap& outputs, const Selections& selections,
                                         const std::string& explanation) {
  for (const auto& [name, tensor] : outputs) {
    const std::vector<Index> sources = Sources(problem, name, selections);
    for (Index i = 0; i < tensor.size(); ++i) {
      const double got = tensor.At(i);
      const Index source = sources[static_cast<std::size_t>(i)];
      const auto at = static_cast<std::size_t>(std::max<Index>(source, 0));
      if (source < 0 ? got == 0.0 : Conforms(expected, name, at, got)) continue;
      const double exact =
          source < 0 ? 0.0 : expected.certified.outputs.at(name).values[at].nearest;
      return Violation{name, Unflatten(i, tensor.shape()), got, exact, explanation};
    }
  }
  return std::nullopt;
}

std::optional<Violation> FirstDifference(const Case& problem, const TensorMap& outputs,
                                         const TensorMap& expected, const Selections& selections,
                                         const std::string& explanation) {
  for (const auto& [name, tensor] : outputs) {
    const auto other = expected.find(name);
    if (other == expected.end()) continue;
    const std::vector<Index> sources = Sources(problem, name, selections);
    for (Index i = 0; i < tensor.size(); ++i) {
      const Index source = sources[static_cast<std::size_t>(i)];
      const double a = tensor.At(i);
      const double b = source < 0 ? 0.0 : other->second.At(source);
      if (!AreAlike(a, b)) return Violation{name, Unflatten(i, tensor.shape()), a, b, explanation};
    }
  }
  return std::nullopt;
}

bool HasAlibi(const Case& problem) {
  const Alibi alibi = problem.contract.alibi;
  return alibi == Alibi::kDefault || alibi == Alibi::kTensor ||
         (alibi == Alibi::kUnset && problem.Find("alibi_slopes") != nullptr);
}

bool KeyPositionsMatter(const Case& problem) {
  const Contract& contract = problem.contract;
  return contract.causal != Causal::kNone || contract.window.left >= 0 ||
         contract.window.right >= 0 || contract.local || HasAlibi(problem) ||
         problem.Find("kv_lengths") != nullptr;
}

bool QueryPositionsMatter(const Case& problem) {
  const Contract& contract = problem.contract;
  return contract.causal != Causal::kNone || contract.window.left >= 0 ||
         contract.window.right >= 0 || HasAlibi(problem) || problem.Find("q_lengths") != nullptr;
}

namespace {
constexpr const char* kRuleTensors[] = {"mask", "kv_lengths", "q_lengths", "q_documents",
                                        "kv_documents"};
}

bool HasRules(const Case& problem) {
  const Contract& contract = problem.contract;
  return contract.causal != Causal::kNone || contract.window.left >= 0 ||
         contract.window.right >= 0 ||
         std::any_of(std::begin(kRuleTensors), std::end(kRuleTensors),
                     [&](const char* name) { return problem.Find(name) != nullptr; });
}

void RemoveRules(Case* problem) {
  problem->contract.causal = Causal::kNone;
  problem->contract.window = {};
  for (const char* name : kRuleTensors) problem->tensors.erase(name);
}

Tensor AllowedMask(const CaseData& data) {
  const Dimensions& s = data.contract().shape;
  Tensor mask(DType::kBool, {s.batch, s.q_heads, s.q_len, s.kv_len});
  auto* const element = mask.data<std::uint8_t>();
  for (Index i = 0; i < mask.size(); ++i) {
    element[i] = data.Allowed(RowAt(s, i / s.kv_len), i % s.kv_len) ? 1 : 0;
  }
  return mask;
}

std::vector<bool> InvisibleKeys(const CaseData& data) {
  const Dimensions& s = data.contract().shape;
  const Index group = s.q_heads / s.kv_heads;
  std::vector<bool> invisible;
  for (Index b = 0; b < s.batch; ++b) {
    for (Index g = 0; g < s.kv_heads; ++g) {
      for (Index j = 0; j < s.kv_len; ++j) {
        bool seen = false;
        for (Index h = g * group; h < (g + 1) * group; ++h) {
          for (Index i = 0; i < s.q_len && !seen; ++i) seen = data.Allowed({b, h, i}, j);
        }
        invisible.push_back(!seen);
      }
    }
  }
  return invisible;
}

Tensor Filled(DType dtype, const Shape& shape, double value) {
  Tensor tensor(dtype, shape);
  for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, value);
  return tensor;
}

Tensor Times(const Tensor& tensor, double factor) {
  Tensor product(tensor.dtype(), tensor.shape());
  for (Index i = 0; i < tensor.size(); ++i) product.Set(i, factor * tensor.At(i));
  return product;
}

Magnitudes MagnitudesOf(const Tensor& tensor) {
  Magnitudes m{kInfinity, 0.0, true};
  for (Index i = 0; i < tensor.size(); ++i) {
    const double magnitude = std::fabs(tensor.At(i));
    m.finite = m.finite && std::isfinite(magnitude);
    m.largest = std::max(m.largest, magnitude);
    if (magnitude > 0.0) m.smallest = std::min(m.smallest, magnitude);
  }
  return m;
}

Limits LimitsOf(const Contract& contract) {
  const ArithmeticModel model = ModelOf(contract);
  if (model.score_roundoff == 0.0) {
    return {model.unit_roundoff, model.smallest_normal, model.largest_finite};
  }
  // The -math profiles keep intermediate results in the tensors' type.
  const FloatFormat& format = FormatOf(contract.dtype);
  return {model.unit_roundoff, std::ldexp(1.0, format.min_exponent), format.largest_finite()};
}

std::optional<double> ExactScale(const Contract& contract) {
  if (!contract.scale.rsqrt_dk) return contract.scale.value;
  for (Index root = 1; root * root <= contract.shape.k_dim; root *= 2) {
    if (root * root == contract.shape.k_dim) return 1.0 / static_cast<double>(root);
  }
  return std::nullopt;
}

}  // namespace attest
