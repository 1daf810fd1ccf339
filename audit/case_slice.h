// SPDX-License-Identifier: Apache-2.0
// Parts of a case: some entries of one axis of the attention problem, in every tensor that has it.
#pragma once

#include <vector>

#include "core/case.h"

namespace attest {

// kGroupMembers: the query heads that share a key/value head; the same members of every group.
// kScoreUnits: the units of an `additive` score. kKeyDims differs from kQueryDims where the score
// is not `dot`.
enum class CaseAxis {
  kBatch,
  kKvHeads,
  kGroupMembers,
  kQueries,
  kKeys,
  kQueryDims,
  kKeyDims,
  kValueDims,
  kScoreUnits,
};

// Number of entries; 0 where the case has no such axis.
Index Extent(const Case& problem, CaseAxis axis);

// The case of these entries (ascending, at least one) alone. Lengths count the entries that are
// left of what they counted; positions move up, so causal rules, windows and distances are those of
// the shorter case.
Case KeepEntries(const Case& problem, CaseAxis axis, const std::vector<Index>& entries);

// `tensor` with these entries of one of its axes: a part, a permutation, repetitions; -1 is an
// entry of zeros.
Tensor TakeEntries(const Tensor& tensor, std::size_t axis, const std::vector<Index>& entries);

}  // namespace attest
