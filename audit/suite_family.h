// SPDX-License-Identifier: Apache-2.0
// Families of generated cases: each function adds the cases that ask one question.
#pragma once

#include <string>
#include <vector>

#include "audit/case_spec.h"

namespace attest {

struct FamilySpec {
  std::string family;
  CaseSpec spec;
};
using FamilySpecs = std::vector<FamilySpec>;

// Everything in a suite, in order. `standard` begins with `quick`.
FamilySpecs QuickSpecs();
FamilySpecs StandardSpecs();

// B x Hq.Hkv x Tq x Tk x D_k.D_v, as in the names of cases.
inline Dimensions Shaped(Index batch, Index q_heads, Index kv_heads, Index q_len, Index kv_len,
                         Index qk_dim, Index v_dim) {
  return {batch, q_heads, kv_heads, q_len, kv_len, qk_dim, qk_dim, v_dim};
}

// A mask of keys alone, and the sixteen ways to broadcast a mask or bias.
inline constexpr Broadcast kKeysOnly{true, true, true, false};
inline Broadcast BroadcastOf(unsigned bits) {
  return {(bits & 1u) != 0, (bits & 2u) != 0, (bits & 4u) != 0, (bits & 8u) != 0};
}

// suite_lengths.cc: where do loops over keys, queries, heads and dimensions end?
void AddTails(FamilySpecs* specs);
void AddHeads(FamilySpecs* specs);
void AddEveryLength(Index first, Index last, FamilySpecs* specs);
void AddEveryEnd(Index longest, FamilySpecs* specs);

// suite_masks.cc: which keys take part?
void AddMasks(FamilySpecs* specs);
void AddMaskPatterns(FamilySpecs* specs);
void AddBroadcasts(FamilySpecs* specs);
void AddWindows(Index q_len, Index kv_len, FamilySpecs* specs);
void AddDocumentsAndLocal(FamilySpecs* specs);
void AddJunk(FamilySpecs* specs);

// suite_ranges.cc: what happens to scores and values of any size, order and type?
void AddValues(FamilySpecs* specs, Index q_len, Index kv_len, Index dim);
void AddScoreLevels(FamilySpecs* specs);
void AddScoreOrders(Index kv_len, FamilySpecs* specs);
void AddSinks(FamilySpecs* specs);
void AddElementTypes(FamilySpecs* specs);
void AddStagnation(Index kv_len, FamilySpecs* specs);

// suite_features.cc: scale, soft cap, ALiBi, dropout, and the outputs that are asked for.
void AddScales(FamilySpecs* specs);
void AddAlibi(FamilySpecs* specs);
void AddDropout(FamilySpecs* specs);
void AddOutputs(FamilySpecs* specs);

// suite_gradients.cc: gradients, and the scores general and additive.
void AddGradients(FamilySpecs* specs);
void AddGradientBroadcasts(FamilySpecs* specs);
void AddSingleGradients(FamilySpecs* specs);
void AddScores(FamilySpecs* specs, Index q_len, Index kv_len, Index qk_dim, Index k_dim);
void AddLargerGradients(FamilySpecs* specs);

// suite_pairs.cc: every two features together, in f32 with the score `dot`; with gradients; and
// over all types, scores and outputs.
FamilySpecs ForwardPairs();
FamilySpecs GradientPairs();
FamilySpecs AllPairs();

}  // namespace attest
