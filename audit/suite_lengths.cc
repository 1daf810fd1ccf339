// SPDX-License-Identifier: Apache-2.0
// Lengths, head sizes and head counts: both sides of every place where a loop may end.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "audit/suite_family.h"

namespace attest {
namespace {

std::vector<Index> UpTo(Index last) {
  std::vector<Index> list(static_cast<std::size_t>(last) + 1);
  std::iota(list.begin(), list.end(), Index{0});
  return list;
}

}  // namespace

// 0, 1, and both sides of 4, 8, 16, 32, 64.
void AddTails(FamilySpecs* specs) {
  for (const Index n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    specs->push_back({"lengths", {.shape = Shaped(1, 1, 1, 2, n, 4, 4)}});
    if (n > 0) specs->push_back({"head sizes", {.shape = Shaped(1, 1, 1, 2, 5, n, n + 1)}});
  }
  specs->push_back({"lengths", {.shape = Shaped(1, 1, 1, 0, 3, 4, 4)}});
  for (const auto& [qk, v] : {std::pair<Index, Index>{1, 5}, {5, 1}, {3, 8}, {8, 3}, {65, 2}}) {
    specs->push_back({"head sizes", {.shape = Shaped(1, 2, 1, 3, 5, qk, v)}});
  }
}

void AddHeads(FamilySpecs* specs) {
  for (const auto& [q_heads, kv_heads] :
       {std::pair<Index, Index>{4, 2}, {6, 3}, {4, 1}, {6, 2}, {8, 2}, {12, 4}, {5, 5}, {3, 1}}) {
    specs->push_back(
        {"grouped heads", {.shape = Shaped(2, q_heads, kv_heads, 3, 6, 4, 6), .bias = true}});
  }
}

// Keys, queries, and both under the causal rule.
void AddEveryLength(Index first, Index last, FamilySpecs* specs) {
  for (Index n = first; n <= last; ++n) {
    specs->push_back({"every length", {.shape = Shaped(1, 1, 1, 2, n, 1, 2)}});
    specs->push_back({"every length", {.shape = Shaped(1, 1, 1, n, 3, 1, 2)}});
    specs->push_back({"every length",
                      {.shape = Shaped(1, 1, 1, n, n + 1, 2, 1), .causal = Causal::kBottomRight}});
  }
}

// One batch entry for every place at which a length or a mask may end or begin.
void AddEveryEnd(Index longest, FamilySpecs* specs) {
  const Index batch = longest + 1;
  const Broadcast by_entry{false, true, true, false};
  CaseSpec keys{.shape = Shaped(batch, 1, 1, 1, longest, 2, 2)};
  for (const bool ones : {true, false}) {
    keys.values = ones ? Values::kOnes : Values::kNormal;
    CaseSpec lengths = keys;
    lengths.kv_length_list = UpTo(longest);
    lengths.junk = !ones;
    specs->push_back({"every end", lengths});
    for (const MaskPattern pattern : {MaskPattern::kPrefix, MaskPattern::kSuffix}) {
      CaseSpec masked = keys;
      masked.mask_pattern = pattern;
      masked.mask_broadcast = by_entry;
      specs->push_back({"every end", masked});
    }
  }
  CaseSpec queries{.shape = Shaped(batch, 1, 1, longest, 3, 1, 1)};
  queries.q_length_list = UpTo(longest);
  specs->push_back({"every end", queries});
  queries.causal = Causal::kBottomRight;
  specs->push_back({"every end", queries});
}

}  // namespace attest
