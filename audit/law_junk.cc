// SPDX-License-Identifier: Apache-2.0
// Laws about what takes no part: it changes nothing, whatever it holds.
#include <algorithm>
#include <limits>
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kJunk[] = {kNaN, kInfinity, -kInfinity};

// The policy `uniform` averages v over all keys, whatever they hold.
bool AveragesEmptyRows(const Case& problem) {
  return problem.contract.empty_row == EmptyRow::kUniform;
}

// Keys beyond a length, or masked for every query of their group: by the contract they contribute
// nothing whatever they hold, so that not even a bit may change.
LawResult MaskedJunk(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok() || AveragesEmptyRows(problem)) return {};
  const std::vector<bool> invisible = InvisibleKeys(*data);
  if (std::find(invisible.begin(), invisible.end(), true) == invisible.end()) return {};
  Case junk = problem;
  for (const char* name : {"k", "v"}) {
    Tensor& tensor = junk.tensors.at(name);
    const Index width = tensor.shape()[3];
    for (Index i = 0; i < tensor.size(); ++i) {
      if (invisible[static_cast<std::size_t>(i / width)]) tensor.Set(i, kJunk[i % 3]);
    }
  }
  return GivesTheSame(subject, problem, junk, subject.info().deterministic, expectations,
                      "NaN and infinity in keys and values that no query may see change the "
                      "result");
}

// A key that some rows see and others do not: NaN in it reaches those that do, and no other.
LawResult PartlyMaskedJunk(const Subject& subject, const Case& problem,
                           ExpectationCache& expectations) {
  LawResult result;
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok() || AveragesEmptyRows(problem) || !problem.contract.Wants("out")) return {};
  const Dimensions& s = problem.contract.shape;
  const Index group = s.q_heads / s.kv_heads;
  Case junk = Forward(problem);
  std::vector<bool> sees_junk(static_cast<std::size_t>(s.batch * s.q_heads * s.q_len), false);
  bool any = false;
  for (Index head = 0; head < s.batch * s.kv_heads; ++head) {
    const Index b = head / s.kv_heads;
    const Index g = head % s.kv_heads;
    for (Index j = 0; j < s.kv_len; ++j) {
      std::vector<std::size_t> seeing;
      for (Index h = g * group; h < (g + 1) * group; ++h) {
        for (Index i = 0; i < s.q_len; ++i) {
          if (!data->Allowed({b, h, i}, j)) continue;
          seeing.push_back(static_cast<std::size_t>(FlatRow(s, {b, h, i})));
        }
      }
      if (seeing.empty() || static_cast<Index>(seeing.size()) == group * s.q_len) continue;
      any = true;
      for (const std::size_t row : seeing) sees_junk[row] = true;
      for (const char* name : {"k", "v"}) {
        Tensor& tensor = junk.tensors.at(name);
        const Index width = tensor.shape()[3];
        for (Index c = 0; c < width; ++c) {
          tensor.Set((head * s.kv_len + j) * width + c, kJunk[j % 3]);
        }
      }
      break;  // one key a head
    }
  }
  if (!any) return {};
  const std::optional<TensorMap> outputs = RunOk(subject, junk, &result);
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!outputs || !expected.ok()) return result;
  for (const auto& [name, tensor] : *outputs) {
    const Index width = tensor.size() / static_cast<Index>(sees_junk.size());
    for (Index i = 0; i < tensor.size(); ++i) {
      if (sees_junk[static_cast<std::size_t>(i / width)]) continue;
      const auto at = static_cast<std::size_t>(i);
      if (Conforms(**expected, name, at, tensor.At(i))) continue;
      return {true, Violation{name, Unflatten(i, tensor.shape()), tensor.At(i),
                              (*expected)->certified.outputs.at(name).values[at].nearest,
                              "NaN and infinity in a key change a row that may not see it"}};
    }
  }
  return {true, std::nullopt};
}

// Queries without an allowed key (those beyond a query length among them) give what the policy
// says, and gradients of 0.
LawResult EmptyQueryJunk(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return {};
  const Dimensions& s = problem.contract.shape;
  Case junk = problem;
  Tensor& q = junk.tensors.at("q");
  bool any = false;
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    if (data->Plan(RowAt(s, flat)).kind != RowPlan::Kind::kEmpty) continue;
    any = true;
    for (Index d = 0; d < s.qk_dim; ++d) q.Set(flat * s.qk_dim + d, kJunk[d % 3]);
  }
  if (!any) return {};
  return GivesTheSame(subject, problem, junk, subject.info().deterministic, expectations,
                      "NaN and infinity in queries without an allowed key change the result");
}

// Exclusion comes after the bias: the bias of a key that another rule forbids does not matter.
// Judged by the bound, because a maximum over all keys, forbidden ones included, is as right as any
// other.
LawResult MaskedBiasJunk(const Subject& subject, const Case& problem,
                         ExpectationCache& expectations) {
  if (problem.Find("bias") == nullptr) return {};
  Case without = Forward(problem);
  without.tensors.erase("bias");
  const StatusOr<CaseData> data = CaseData::Make(without);
  if (!data.ok()) return {};
  // Elements of the bias that an allowed score uses.
  const Dimensions& s = problem.contract.shape;
  Case junk = Forward(problem);
  Tensor& bias = junk.tensors.at("bias");
  std::vector<bool> used(static_cast<std::size_t>(bias.size()), false);
  const Shape& shape = bias.shape();
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    const RowId row = RowAt(s, flat);
    const Index b = shape[0] == 1 ? 0 : row.batch;
    const Index h = shape[1] == 1 ? 0 : row.head;
    const Index i = shape[2] == 1 ? 0 : row.query;
    const Index first = ((b * shape[1] + h) * shape[2] + i) * shape[3];
    for (Index j = 0; j < s.kv_len; ++j) {
      if (data->Allowed(row, j))
        used[static_cast<std::size_t>(first + (shape[3] == 1 ? 0 : j))] = true;
    }
  }
  bool any = false;
  for (Index i = 0; i < bias.size(); ++i) {
    if (used[static_cast<std::size_t>(i)]) continue;
    any = true;
    bias.Set(i, 8.0 - static_cast<double>(i % 5));
  }
  if (!any) return {};
  return GivesTheSame(subject, problem, junk, false, expectations,
                      "the bias of forbidden keys changes the result");
}

}  // namespace

std::vector<Law> JunkLaws() {
  return {
      {"masked-junk", "NaN and infinity in masked keys and values change no bit", MaskedJunk},
      {"partly-masked-junk", "NaN and infinity in a key reach no row that may not see it",
       PartlyMaskedJunk},
      {"empty-query-junk", "NaN and infinity in queries without keys change no bit",
       EmptyQueryJunk},
      {"masked-bias-junk", "the bias of forbidden keys does not matter", MaskedBiasJunk},
  };
}

}  // namespace attest
