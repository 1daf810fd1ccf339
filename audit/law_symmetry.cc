// SPDX-License-Identifier: Apache-2.0
// Laws about order: batches, heads, queries and keys in another order, and rows by themselves.
#include <numeric>
#include <set>
#include <utility>

#include "audit/law_support.h"
#include "core/random.h"

namespace attest {
namespace {

// The case in another order gives the same, in that order: within the bounds of the case, which
// cover every order of operations, and bit by bit where `bits` (forward outputs; gradients of
// shared tensors are sums in some order).
LawResult Rearranged(const Subject& subject, const Case& problem, const Selections& selections,
                     bool bits, ExpectationCache& expectations, const std::string& explanation) {
  LawResult result;
  const std::optional<TensorMap> outputs = RunOk(subject, Select(problem, selections), &result);
  if (!outputs) return result;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  if (auto v = FirstAboveBound(**expected, problem, *outputs, selections, explanation)) {
    return {true, std::move(v)};
  }
  const Case forward = Forward(problem);
  if (!bits || forward.contract.outputs.empty()) return {true, std::nullopt};
  const std::optional<TensorMap> original = RunOk(subject, forward, &result);
  const std::optional<TensorMap> moved = RunOk(subject, Select(forward, selections), &result);
  if (!original || !moved) return result;
  return {true, FirstDifference(problem, *moved, *original, selections, explanation)};
}

// A row is a sum over its keys. (Other orders of a sum round differently.)
LawResult KeyOrder(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Index n = problem.contract.shape.kv_len;
  if (n < 2 || KeyPositionsMatter(problem)) return {};
  std::vector<Index> order = Positions(0, n);
  const RandomStream stream(0, problem.name, "key-order");
  for (std::size_t i = order.size() - 1; i > 0; --i) {  // Fisher-Yates
    std::swap(order[i], order[stream.Below(i, i + 1)]);
  }
  return Rearranged(subject, problem, {{Axis::kKey, order}}, false, expectations,
                    "another order of the keys, with their values and masks, gives another result");
}

// Rows do not know of each other.
LawResult QueryOrder(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Index m = problem.contract.shape.q_len;
  if (m < 2 || QueryPositionsMatter(problem)) return {};
  return Rearranged(subject, problem, {{Axis::kQuery, Backwards(m)}}, HasFixedBits(subject),
                    expectations, "another order of the queries gives other rows");
}

LawResult BatchOrder(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Index batch = problem.contract.shape.batch;
  if (batch < 2) return {};
  return Rearranged(subject, problem, {{Axis::kBatch, Backwards(batch)}}, HasFixedBits(subject),
                    expectations, "another order of the batch entries gives other entries");
}

// Slopes that are not given belong to the number of a head.
bool HeadsHaveNumbers(const Case& problem) {
  return HasAlibi(problem) && problem.Find("alibi_slopes") == nullptr;
}

// Groups in another order, and the heads within each.
LawResult HeadOrder(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Dimensions& s = problem.contract.shape;
  if (s.q_heads < 2 || HeadsHaveNumbers(problem)) return {};
  return Rearranged(
      subject, problem,
      {{Axis::kKeyHead, Backwards(s.kv_heads)}, {Axis::kQueryHead, Backwards(s.q_heads)}},
      HasFixedBits(subject), expectations, "another order of the heads gives other heads");
}

// Query heads that share a key/value head see the same as with copies of it.
LawResult GroupedHeads(const Subject& subject, const Case& problem,
                       ExpectationCache& expectations) {
  const Dimensions& s = problem.contract.shape;
  if (s.kv_heads == s.q_heads || s.kv_heads == 0) return {};
  const char* const explanation = "grouped heads differ from heads with keys and values repeated";
  if (auto departs = Departs(subject, problem, expectations, explanation)) return *departs;
  std::vector<Index> owner;
  for (Index h = 0; h < s.q_heads; ++h) owner.push_back(h / (s.q_heads / s.kv_heads));
  Case repeated = problem;
  // A copy gets its own query head's part of their gradients.
  std::erase(repeated.contract.outputs, "grad_k");
  std::erase(repeated.contract.outputs, "grad_v");
  repeated = Select(repeated, {{Axis::kKeyHead, owner}});
  return GivesTheSame(subject, problem, repeated, false, expectations, explanation);
}

// A part of the case alone; its rows' bits are those of the whole where that is declared, and
// within their bounds where not. `all` is the case that parts are taken from: `problem`, or the
// same function said in another way, without outputs that are sums over what is left out.
LawResult PartsAlone(const Subject& subject, const Case& problem, const Case& all,
                     const std::vector<Selections>& parts, ExpectationCache& expectations,
                     const std::string& explanation) {
  LawResult result;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  const bool bits = HasFixedBits(subject);
  const std::optional<TensorMap> whole = bits ? RunOk(subject, all, &result) : TensorMap();
  if (!whole) return result;
  for (const Selections& part : parts) {
    const std::optional<TensorMap> alone = RunOk(subject, Select(all, part), &result);
    if (!alone) return result;
    result.violation = bits ? FirstDifference(all, *alone, *whole, part, explanation)
                            : FirstAboveBound(**expected, all, *alone, part, explanation);
    result.applied = true;
    if (result.violation) return result;
  }
  return result;
}

LawResult BatchEntryAlone(const Subject& subject, const Case& problem,
                          ExpectationCache& expectations) {
  const Index batch = problem.contract.shape.batch;
  if (batch < 2) return {};
  Case own = problem;
  // Gradients of what batch entries share are sums over them.
  std::erase_if(own.contract.outputs, [](const std::string& name) {
    return name.starts_with("grad_") && name != "grad_q" && name != "grad_k" && name != "grad_v";
  });
  std::vector<Selections> parts;
  for (Index b = 0; b < batch; ++b) parts.push_back({{Axis::kBatch, {b}}});
  return PartsAlone(subject, problem, own, parts, expectations,
                    "a batch entry differs from the same entry alone");
}

LawResult HeadAlone(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Dimensions& s = problem.contract.shape;
  if (s.kv_heads < 2 || HeadsHaveNumbers(problem)) return {};
  const Index group = s.q_heads / s.kv_heads;
  std::vector<Selections> parts;
  for (const Index g : {Index{0}, s.kv_heads - 1}) {
    parts.push_back(
        {{Axis::kKeyHead, {g}}, {Axis::kQueryHead, Positions(g * group, (g + 1) * group)}});
  }
  return PartsAlone(subject, problem, Forward(problem), parts, expectations,
                    "a head differs from the same head alone");
}

// Rules about positions become a mask first, because a query alone stands elsewhere.
LawResult QueryAlone(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const Index m = problem.contract.shape.q_len;
  if (m < 2 || HasAlibi(problem)) return {};
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};
  Case masked = Forward(problem);
  if (HasRules(problem)) {
    RemoveRules(&masked);
    masked.tensors["mask"] = AllowedMask(*data);
  }
  std::vector<Selections> parts;
  for (const Index i : std::set<Index>{0, m / 3, m / 2, m - 1}) {
    parts.push_back({{Axis::kQuery, {i}}});
  }
  return PartsAlone(subject, problem, masked, parts, expectations,
                    "a query by itself gives another row than among others");
}

}  // namespace

std::vector<Law> SymmetryLaws() {
  return {
      {"key-order", "the order of the keys does not matter beyond the bound", KeyOrder},
      {"query-order", "the order of the queries does not matter", QueryOrder},
      {"batch-order", "the order of the batch entries does not matter", BatchOrder},
      {"head-order", "the order of the heads does not matter", HeadOrder},
      {"grouped-heads", "grouped heads equal heads with keys and values repeated", GroupedHeads},
      {"batch-entry-alone", "a batch entry alone gives the same (bit by bit where declared)",
       BatchEntryAlone},
      {"head-alone", "a head alone gives the same (bit by bit where declared)", HeadAlone},
      {"query-alone", "one query at a time gives the same (bit by bit where declared)", QueryAlone},
  };
}

}  // namespace attest
