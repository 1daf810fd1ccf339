// SPDX-License-Identifier: Apache-2.0
// Laws about which keys are allowed: the same set, said in another way, gives the same result.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The variation is a part of the case whose rows see the same keys at the same distances.
std::optional<LawResult> PartGivesTheSame(const Subject& subject, const Case& problem,
                                          const Case& part, const Selections& selections,
                                          const Expectation& expected,
                                          const std::string& explanation) {
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, part, &result);
  if (!outputs) return result;
  if (auto v = FirstAboveBound(expected, problem, *outputs, selections, explanation)) {
    return LawResult{true, std::move(v)};
  }
  return std::nullopt;  // go on
}

// Both contracts mean the same function, so that the bounds of one hold for the other.
LawResult MaskAsBooleans(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};
  const char* const explanation =
      "causal rule, window, documents and lengths, written as one boolean mask, give another "
      "result";
  if (auto departs = Departs(subject, problem, expectations, explanation)) return *departs;
  Case masked = problem;
  RemoveRules(&masked);
  masked.tensors["mask"] = AllowedMask(*data);
  return GivesTheSame(subject, problem, masked, false, expectations, explanation);
}

// A bias of -infinity excludes its key, and 0 adds nothing to the others.
LawResult MaskAsBias(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok() || !HasRules(problem)) return {};
  const char* const explanation =
      "the masks, written as a bias of 0 and -infinity, give another result";
  if (auto departs = Departs(subject, problem, expectations, explanation)) return *departs;
  const Dimensions& s = problem.contract.shape;
  const Tensor* given = problem.Find("bias");
  Case masked = problem;
  RemoveRules(&masked);
  std::erase(masked.contract.outputs, "grad_bias");  // of another tensor
  Tensor bias(given != nullptr ? given->dtype() : problem.contract.wide_dtype(),
              {s.batch, s.q_heads, s.q_len, s.kv_len});
  for (Index i = 0; i < bias.size(); ++i) {
    const RowId row = RowAt(s, i / s.kv_len);
    const Index j = i % s.kv_len;
    bias.Set(i, data->Allowed(row, j) ? data->BiasAt(row, j) : -kInfinity);
  }
  masked.tensors["bias"] = std::move(bias);
  return GivesTheSame(subject, problem, masked, false, expectations, explanation);
}

// A batch entry of n keys and m queries in larger buffers is the same as in buffers of its own
// size. (ALiBi counts from the end of the buffers.)
LawResult PaddingRemoved(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  const Tensor* kv_lengths = problem.Find("kv_lengths");
  const Tensor* q_lengths = problem.Find("q_lengths");
  if ((kv_lengths == nullptr && q_lengths == nullptr) || HasAlibi(problem) ||
      problem.contract.empty_row == EmptyRow::kUniform) {
    return {};
  }
  const char* const explanation = "a batch entry without its padding gives another result";
  if (auto departs = Departs(subject, problem, expectations, explanation)) return *departs;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  const Dimensions& s = problem.contract.shape;
  Case unpadded = Forward(problem);
  unpadded.tensors.erase("kv_lengths");
  unpadded.tensors.erase("q_lengths");
  bool any = false;
  for (Index b = 0; b < s.batch; ++b) {
    const auto length = [&](const Tensor* lengths, Index all) {
      return lengths == nullptr ? all : static_cast<Index>(lengths->At(b));
    };
    const Selections part{{Axis::kBatch, {b}},
                          {Axis::kKey, Positions(0, length(kv_lengths, s.kv_len))},
                          {Axis::kQuery, Positions(0, length(q_lengths, s.q_len))}};
    if (part[2].from.empty()) continue;
    any = true;
    if (auto result = PartGivesTheSame(subject, problem, Select(unpadded, part), part, **expected,
                                       explanation)) {
      return *result;
    }
  }
  return {any, std::nullopt};
}

// A causal row sees a prefix of the keys, at whose end it stands: attention of that one query to
// the prefix, without a causal rule.
LawResult CausalPrefix(const Subject& subject, const Case& problem,
                       ExpectationCache& expectations) {
  const Contract& contract = problem.contract;
  const Dimensions& s = contract.shape;
  if (contract.causal == Causal::kNone || contract.empty_row == EmptyRow::kUniform ||
      problem.Find("kv_lengths") != nullptr || problem.Find("q_lengths") != nullptr) {
    return {};
  }
  const bool top_left = contract.causal == Causal::kTopLeft;
  // ALiBi is aligned to the last query and key whatever the causal rule.
  if (HasAlibi(problem) && top_left && s.q_len != s.kv_len) return {};
  const char* const explanation = "a causal row differs from attention to its prefix";
  if (auto departs = Departs(subject, problem, expectations, explanation)) return *departs;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  Case plain = Forward(problem);
  plain.contract.causal = Causal::kNone;
  bool any = false;
  for (const Index i : std::set<Index>{0, s.q_len / 3, s.q_len / 2, s.q_len - 1}) {
    const Index n = i + 1 + (top_left ? 0 : s.kv_len - s.q_len);
    if (i < 0 || i >= s.q_len || n < 1 || n > s.kv_len) continue;
    any = true;
    const Selections part{{Axis::kQuery, {i}}, {Axis::kKey, Positions(0, n)}};
    if (auto result = PartGivesTheSame(subject, problem, Select(plain, part), part, **expected,
                                       explanation)) {
      return *result;
    }
  }
  return {any, std::nullopt};
}

// exp(-infinity) = 0 is added to the denominator.
LawResult SinkOfMinusInfinity(const Subject& subject, const Case& problem,
                              ExpectationCache& expectations) {
  if (problem.Find("sinks") != nullptr) return {};
  Case sinks = problem;
  sinks.tensors["sinks"] =
      Filled(problem.contract.wide_dtype(), {problem.contract.shape.q_heads}, -kInfinity);
  return GivesTheSame(subject, problem, sinks, false, expectations,
                      "sinks of -infinity give another result than no sinks");
}

// A window over everything, one document, full lengths and a mask of true are no rule at all.
LawResult IdleRules(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Contract& contract = problem.contract;
  const Dimensions& s = contract.shape;
  std::vector<Case> variations;
  const auto vary = [&]() -> Case& { return variations.emplace_back(problem); };
  if (contract.window.left < 0 && contract.window.right < 0) {
    vary().contract.window = {s.q_len + s.kv_len, s.q_len + s.kv_len};
  }
  if (problem.Find("q_documents") == nullptr) {
    Case& idle = vary();
    idle.tensors["q_documents"] = Filled(DType::kI32, {s.batch, s.q_len}, 3.0);
    idle.tensors["kv_documents"] = Filled(DType::kI32, {s.batch, s.kv_len}, 3.0);
  }
  if (problem.Find("kv_lengths") == nullptr) {
    vary().tensors["kv_lengths"] = Filled(DType::kI32, {s.batch}, static_cast<double>(s.kv_len));
  }
  if (problem.Find("mask") == nullptr) {
    vary().tensors["mask"] = Filled(DType::kBool, {1, 1, s.q_len, 1}, 1.0);
  }
  return EachGivesTheSame(subject, problem, variations, false, expectations,
                          "a rule that excludes nothing changes the result");
}

}  // namespace

std::vector<Law> MaskLaws() {
  return {
      {"mask-as-booleans", "causal rule, window, documents and lengths equal the same boolean mask",
       MaskAsBooleans},
      {"mask-as-bias", "masks equal a bias of 0 and -infinity", MaskAsBias},
      {"padding-removed", "a padded batch entry equals the same entry without padding",
       PaddingRemoved},
      {"causal-prefix", "a causal row equals attention of its query to its prefix", CausalPrefix},
      {"no-sink", "sinks of -infinity equal none", SinkOfMinusInfinity},
      {"idle-rules", "rules that exclude nothing equal none", IdleRules},
  };
}

}  // namespace attest
