// SPDX-License-Identifier: Apache-2.0
#include "audit/law.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "audit/judge.h"
#include "core/random.h"
#include "reference/row_plan.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The first element that differs; equal values of either sign of zero, and any two NaN, are alike.
std::optional<Violation> FirstDifference(const std::string& name, const Tensor& got,
                                         const Tensor& expected, const std::string& explanation) {
  for (Index i = 0; i < got.size(); ++i) {
    const double a = got.At(i);
    const double b = expected.At(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    return Violation{name, Unflatten(i, got.shape()), a, b, explanation};
  }
  return std::nullopt;
}

std::optional<Violation> FirstDifference(const TensorMap& got, const TensorMap& expected,
                                         const std::string& explanation) {
  for (const auto& [name, tensor] : got) {
    const auto other = expected.find(name);
    if (other == expected.end()) continue;
    if (auto v = FirstDifference(name, tensor, other->second, explanation)) return v;
  }
  return std::nullopt;
}

// Runs a case; nothing where the subject does not take it or gives no `out`, and where it fails:
// then *result says so, because a law's variation of a case is a case like any other.
std::optional<TensorMap> RunOk(const Subject& subject, const Case& problem, LawResult* result,
                               const CallOptions& options = {}) {
  Outcome outcome = subject.Run(problem, options);
  if (outcome.kind == Outcome::Kind::kError || outcome.kind == Outcome::Kind::kTrespassed) {
    *result = {true, Violation{"", {}, kNaN, kNaN, outcome.message}};
    return std::nullopt;
  }
  if (outcome.kind != Outcome::Kind::kOk || !outcome.outputs.contains("out")) return std::nullopt;
  return std::move(outcome.outputs);
}

// The first output with an element above its bound, told by the worst of them.
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

// The outputs of a case that are not gradients: what a law varies is not what they are gradients
// of.
std::vector<std::string> ForwardOutputs(const Case& problem) {
  std::vector<std::string> outputs;
  for (const std::string& output : problem.contract.outputs) {
    if (!output.starts_with("grad_")) outputs.push_back(output);
  }
  return outputs;
}

LawResult WithinBound(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, problem, &result);
  if (!outputs) return result;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  return {true, FirstAboveBound(**expected, *outputs,
                                "an element is farther from the exact value than its bound")};
}

LawResult Repeatable(const Subject& subject, const Case& problem, ExpectationCache&) {
  LawResult result;
  if (!subject.info().deterministic) return {};
  const std::optional<TensorMap> first = RunOk(subject, problem, &result);
  const std::optional<TensorMap> second = RunOk(subject, problem, &result, {.junk = Junk::kHuge});
  if (!first || !second) return result;
  return {true, FirstDifference(*second, *first,
                                "the result depends on what the output buffer or the memory around "
                                "the tensors held before")};
}

// Keys that no query of their group may see, as [B, Hkv, Tk].
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

LawResult MaskedJunk(const Subject& subject, const Case& problem, ExpectationCache&) {
  LawResult result;
  const StatusOr<CaseData> data = CaseData::Make(problem);
  // The policy `uniform` averages v over all keys, whatever they hold.
  if (!data.ok() || !subject.info().deterministic ||
      problem.contract.empty_row == EmptyRow::kUniform) {
    return {};
  }
  const std::vector<bool> invisible = InvisibleKeys(*data);
  if (std::find(invisible.begin(), invisible.end(), true) == invisible.end()) return {};
  Case junk = problem;
  const double fills[] = {kNaN, kInfinity, -kInfinity};
  for (const char* name : {"k", "v"}) {
    Tensor& tensor = junk.tensors.at(name);
    const Index width = tensor.shape()[3];
    for (Index i = 0; i < tensor.size(); ++i) {
      if (invisible[static_cast<std::size_t>(i / width)]) tensor.Set(i, fills[i % 3]);
    }
  }
  const std::optional<TensorMap> clean = RunOk(subject, problem, &result);
  const std::optional<TensorMap> dirty = RunOk(subject, junk, &result);
  if (!clean || !dirty) return result;
  return {true, FirstDifference(*dirty, *clean,
                                "NaN and infinity in keys and values that no query may see change "
                                "the result")};
}

LawResult NegatedValues(const Subject& subject, const Case& problem, ExpectationCache&) {
  LawResult result;
  if (!subject.info().deterministic) return {};
  Case original = problem;
  original.contract.outputs = ForwardOutputs(problem);
  Case negated = original;
  Tensor& v = negated.tensors.at("v");
  for (Index i = 0; i < v.size(); ++i) v.Set(i, -v.At(i));
  const std::optional<TensorMap> outputs = RunOk(subject, original, &result);
  std::optional<TensorMap> mirrored = RunOk(subject, negated, &result);
  if (!outputs || !mirrored) return result;
  Tensor& out = mirrored->at("out");
  for (Index i = 0; i < out.size(); ++i) out.Set(i, -out.At(i));
  return {true, FirstDifference(*mirrored, *outputs,
                                "negating v does not exactly negate the output (rounding to "
                                "nearest is symmetric)")};
}

// The case that holds batch entry `batch` alone.
Case BatchEntry(const Case& problem, Index batch) {
  Case alone = problem;
  alone.contract.shape.batch = 1;
  for (auto& [name, tensor] : alone.tensors) {
    const bool of_heads_or_scores = name == "sinks" || name == "alibi_slopes" || name == "w" ||
                                    name == "w_q" || name == "w_k" || name == "v_a" || name == "b";
    if (of_heads_or_scores || tensor.shape()[0] == 1) continue;
    Shape shape = tensor.shape();
    shape[0] = 1;
    Tensor entry(tensor.dtype(), shape);
    if (entry.byte_size() > 0) {
      std::memcpy(entry.bytes(),
                  tensor.bytes() + static_cast<std::size_t>(batch) * entry.byte_size(),
                  entry.byte_size());
    }
    tensor = std::move(entry);
  }
  return alone;
}

LawResult BatchEntryAlone(const Subject& subject, const Case& problem, ExpectationCache&) {
  LawResult result;
  const Index batch = problem.contract.shape.batch;
  if (!subject.info().batch_invariant || batch < 2) return {};
  const std::optional<TensorMap> all = RunOk(subject, problem, &result);
  if (!all) return result;
  // Gradients of what batch entries share are sums over them.
  const auto of_one_entry = [&](const std::string& name) {
    return name == "grad_q" || name == "grad_k" || name == "grad_v" || !name.starts_with("grad_");
  };
  for (Index b = 0; b < batch; ++b) {
    const std::optional<TensorMap> one = RunOk(subject, BatchEntry(problem, b), &result);
    if (!one) return result;
    for (const auto& [name, tensor] : *one) {
      if (!of_one_entry(name)) continue;
      const Tensor& whole = all->at(name);
      for (Index i = 0; i < tensor.size(); ++i) {
        const double alone = tensor.At(i);
        const double together = whole.At(b * tensor.size() + i);
        if (alone == together || (std::isnan(alone) && std::isnan(together))) continue;
        return {true, Violation{name, Unflatten(b * tensor.size() + i, whole.shape()), together,
                                alone, "a batch entry has other bits than the same entry alone"}};
      }
    }
  }
  return {true, std::nullopt};
}

LawResult OptionalOutputs(const Subject& subject, const Case& problem, ExpectationCache&) {
  LawResult result;
  if (!subject.info().deterministic || problem.contract.outputs.size() < 2) return {};
  Case only_out = problem;
  only_out.contract.outputs = {"out"};
  const std::optional<TensorMap> full = RunOk(subject, problem, &result);
  const std::optional<TensorMap> bare = RunOk(subject, only_out, &result);
  if (!full || !bare) return result;
  return {true,
          FirstDifference(*full, *bare, "asking for the weights or the LSE changes the output")};
}

LawResult IdentityValues(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  LawResult result;
  Case reading = problem;
  const Index n = problem.contract.shape.kv_len;
  if (n == 0 || problem.contract.empty_row != EmptyRow::kZero) return {};
  reading.contract.shape.v_dim = n;
  reading.contract.outputs = {"out"};
  reading.tensors.erase("grad_out");
  reading.tensors.erase("grad_lse");
  Tensor identity(problem.contract.dtype,
                  {problem.contract.shape.batch, problem.contract.shape.kv_heads, n, n});
  for (Index i = 0; i < identity.size(); ++i) identity.Set(i, i / n % n == i % n ? 1.0 : 0.0);
  reading.tensors["v"] = std::move(identity);
  const StatusOr<CaseData> data = CaseData::Make(reading);
  const StatusOr<const Expectation*> weights = expectations.Of(reading);
  const std::optional<TensorMap> outputs = RunOk(subject, reading, &result);
  if (!data.ok() || !weights.ok() || !outputs) return result;
  const Tensor& out = outputs->at("out");
  const Dimensions& s = reading.contract.shape;
  for (Index i = 0; i < out.size(); ++i) {
    const Index flat = i / n;
    const RowId row = RowAt(s, flat);
    if (!IsJudged(**weights, "out", static_cast<std::size_t>(i))) continue;
    if (data->Plan(row).kind != RowPlan::Kind::kFinite) continue;
    if (!data->Allowed(row, i % n) && !(out.At(i) == 0.0)) {
      return {true, Violation{"out", Unflatten(i, out.shape()), out.At(i), 0.0,
                              "with v = identity the output shows weight on a forbidden key"}};
    }
  }
  return {true, FirstAboveBound(**weights, *outputs,
                                "with v = identity the output is not the row of weights")};
}

LawResult MaskAsBooleans(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  LawResult result;
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};
  const Dimensions& s = problem.contract.shape;
  Case masked = problem;
  masked.contract.causal = Causal::kNone;
  masked.contract.window = {};
  for (const char* name : {"kv_lengths", "q_lengths", "q_documents", "kv_documents"}) {
    masked.tensors.erase(name);
  }
  Tensor mask(DType::kBool, {s.batch, s.q_heads, s.q_len, s.kv_len});
  for (Index i = 0; i < mask.size(); ++i) {
    const std::vector<Index> at = Unflatten(i, mask.shape());
    mask.Set(i, data->Allowed({at[0], at[1], at[2]}, at[3]) ? 1.0 : 0.0);
  }
  masked.tensors["mask"] = std::move(mask);
  const std::optional<TensorMap> outputs = RunOk(subject, masked, &result);
  if (!outputs) return result;
  // Judged by the original case: both contracts mean the same function.
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  return {true, FirstAboveBound(**expected, *outputs,
                                "causal rule and lengths, written as one boolean mask, give "
                                "another result")};
}

// `tensor` with the entries of `axis` in another order; an axis of length 1 stays.
Tensor Permuted(const Tensor& tensor, std::size_t axis, const std::vector<Index>& order) {
  if (tensor.shape()[axis] == 1) return tensor;
  Tensor result(tensor.dtype(), tensor.shape());
  Index inner = 1;
  for (std::size_t a = axis + 1; a < tensor.rank(); ++a) inner *= tensor.shape()[a];
  const Index extent = tensor.shape()[axis];
  for (Index i = 0; i < tensor.size(); ++i) {
    const Index outer = i / (inner * extent);
    const Index from = order[static_cast<std::size_t>(i / inner % extent)];
    result.Set(i, tensor.At((outer * extent + from) * inner + i % inner));
  }
  return result;
}

LawResult KeyOrder(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  LawResult result;
  const Index n = problem.contract.shape.kv_len;
  // Rules about positions do not survive a new order of keys.
  const Contract& contract = problem.contract;
  if (n < 2 || contract.causal != Causal::kNone || contract.window.left >= 0 ||
      contract.window.right >= 0 || contract.local || contract.alibi == Alibi::kDefault ||
      problem.Find("alibi_slopes") != nullptr || problem.Find("kv_lengths") != nullptr) {
    return {};
  }
  std::vector<Index> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), Index{0});
  const RandomStream stream(0, problem.name, "key-order");
  for (std::size_t i = order.size() - 1; i > 0; --i) {  // Fisher-Yates
    std::swap(order[i], order[stream.Below(i, i + 1)]);
  }
  Case shuffled = problem;
  for (auto& [name, tensor] : shuffled.tensors) {
    if (name == "k" || name == "v") tensor = Permuted(tensor, 2, order);
    if (name == "mask" || name == "bias" || name == "keep") tensor = Permuted(tensor, 3, order);
    if (name == "kv_documents") tensor = Permuted(tensor, 1, order);
  }
  shuffled.contract.outputs = {"out", "lse"};
  const std::optional<TensorMap> outputs = RunOk(subject, shuffled, &result);
  if (!outputs) return result;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  return {true, FirstAboveBound(**expected, *outputs,
                                "another order of the keys, with their values and masks, gives "
                                "another result")};
}

LawResult ConvexHull(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  LawResult result;
  // Sinks, dropout and a Gaussian leave weights that do not sum to 1.
  const std::optional<LocalWindow>& local = problem.contract.local;
  if (problem.Find("sinks") != nullptr || problem.Find("keep") != nullptr ||
      (local && local->gaussian)) {
    return {};
  }
  const StatusOr<CaseData> data = CaseData::Make(problem);
  const std::optional<TensorMap> outputs = RunOk(subject, problem, &result);
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!data.ok() || !outputs || !expected.ok()) return result;
  const Tensor& out = outputs->at("out");
  const Dimensions& s = problem.contract.shape;
  for (Index i = 0; i < out.size(); ++i) {
    const Index flat = i / s.v_dim;
    const RowId row = RowAt(s, flat);
    const RowPlan plan = data->Plan(row);
    if (plan.kind != RowPlan::Kind::kFinite) continue;
    double lowest = kInfinity;
    double highest = -kInfinity;
    bool finite = true;
    for (const KeyTerm& term : plan.terms) {
      const double value = data->Value(row, term.key)[static_cast<std::size_t>(i % s.v_dim)];
      lowest = std::min(lowest, value);
      highest = std::max(highest, value);
      finite = finite && std::isfinite(value);
    }
    if (!finite) continue;
    const double bound = (*expected)->bounds.out[static_cast<std::size_t>(i)];
    if (std::isinf(bound)) continue;  // not judged
    const double got = out.At(i);
    if (!(got >= lowest - bound && got <= highest + bound)) {
      return {true,
              Violation{"out", Unflatten(i, out.shape()), got, got < lowest ? lowest : highest,
                        "the output leaves the range of the allowed values"}};
    }
  }
  return {true, std::nullopt};
}

}  // namespace

const std::vector<Law>& Laws() {
  static const std::vector<Law> laws{
      {"within-bound", "every element is within its derived bound of the certified value",
       WithinBound},
      {"repeatable",
       "the same call gives the same bits, whatever lay in the buffers (where declared)",
       Repeatable},
      {"masked-junk", "NaN and infinity in masked keys and values change no bit", MaskedJunk},
      {"negated-values", "negating v negates the output exactly", NegatedValues},
      {"batch-entry-alone", "a batch entry alone has the same bits (where declared)",
       BatchEntryAlone},
      {"optional-outputs", "asking for weights and LSE does not change the output",
       OptionalOutputs},
      {"identity-values", "v = identity reads back the weights, exactly 0 on forbidden keys",
       IdentityValues},
      {"mask-as-booleans", "causal rule and lengths equal the same boolean mask", MaskAsBooleans},
      {"key-order", "the order of the keys does not matter beyond the bound", KeyOrder},
      {"convex-hull", "the output lies between the smallest and largest allowed value", ConvexHull},
  };
  return laws;
}

}  // namespace attest
