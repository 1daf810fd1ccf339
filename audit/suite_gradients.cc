// SPDX-License-Identifier: Apache-2.0
// Gradients, and the scores general and additive with and without them.
#include <string>
#include <utility>

#include "audit/suite_family.h"

namespace attest {

// Gradients with every feature of the contract that they pass through, small.
void AddGradients(FamilySpecs* specs) {
  const auto add = [&](const char* family, CaseSpec spec) {
    spec.gradients = true;
    specs->push_back({std::string("gradients: ") + family, spec});
  };
  const Dimensions small = Shaped(1, 2, 2, 5, 7, 8, 8);
  add("plain", {.shape = small});
  add("plain", {.shape = Shaped(1, 1, 1, 3, 17, 4, 9)});
  add("causal", {.shape = Shaped(1, 2, 2, 9, 9, 8, 8), .causal = Causal::kTopLeft});
  add("causal", {.shape = Shaped(1, 2, 2, 5, 12, 8, 8), .causal = Causal::kBottomRight});
  add("grouped heads", {.shape = Shaped(2, 4, 2, 3, 6, 4, 6)});
  add("bias", {.shape = small, .bias = true});
  add("bias", {.shape = small, .broadcast_bias = true});
  add("sinks", {.shape = small, .sinks = true});
  add("soft cap", {.shape = small, .softcap = 2.0});
  add("dropout", {.shape = small, .dropout_rate = 0.25});
  add("LSE", {.shape = small, .grad_lse = true});
  add("lengths and empty rows", {.shape = Shaped(2, 2, 1, 6, 5, 4, 4),
                                 .causal = Causal::kBottomRight,
                                 .mask = true,
                                 .kv_lengths = true,
                                 .q_lengths = true});
  add("lengths and empty rows", {.shape = Shaped(2, 2, 1, 6, 3, 4, 4),
                                 .causal = Causal::kBottomRight,
                                 .kv_lengths = true,
                                 .sinks = true,
                                 .grad_lse = true});
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    add("element types", {.shape = small, .dtype = dtype});
    add("element types", {.shape = Shaped(1, 4, 2, 5, 9, 8, 4),
                          .dtype = dtype,
                          .causal = Causal::kBottomRight,
                          .sinks = true});
  }
}

// A bias summed over every choice of axes; masks of every kind beside it.
void AddGradientBroadcasts(FamilySpecs* specs) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    CaseSpec spec{.shape = Shaped(2, 2, 1, 3, 3, 2, 2), .gradients = true};
    spec.bias_pattern = bits % 2 == 0 ? BiasPattern::kNormal : BiasPattern::kExcluding;
    spec.bias_broadcast = BroadcastOf(bits);
    specs->push_back({"gradients: broadcast biases", spec});
  }
  for (const MaskPattern pattern :
       {MaskPattern::kAllTrue, MaskPattern::kAllFalse, MaskPattern::kEmptyRows, MaskPattern::kHoles,
        MaskPattern::kNotFirst, MaskPattern::kOnlyLast, MaskPattern::kOneKey}) {
    CaseSpec spec{.shape = Shaped(2, 2, 1, 4, 5, 4, 3), .gradients = true};
    spec.mask_pattern = pattern;
    specs->push_back({"gradients: masks", spec});
    spec.sinks = true;
    spec.grad_lse = true;
    specs->push_back({"gradients: masks", spec});
  }
}

// One gradient at a time, with the statistics that a forward pass gives and without them.
void AddSingleGradients(FamilySpecs* specs) {
  for (const char* name : {"grad_q", "grad_k", "grad_v", "grad_bias", "grad_sinks"}) {
    for (const bool with_out : {false, true}) {
      CaseSpec spec{
          .shape = Shaped(1, 2, 1, 3, 5, 4, 3), .bias = true, .sinks = true, .gradients = true};
      spec.outputs = {name};
      if (with_out) spec.outputs = {"out", "lse", name};
      specs->push_back({"gradients: one at a time", spec});
      spec.mask_pattern = MaskPattern::kEmptyRows;
      specs->push_back({"gradients: one at a time", spec});
    }
  }
  for (const auto& [qk, v] : {std::pair<Index, Index>{1, 2}, {2, 1}, {1, 1}, {3, 9}, {9, 3}}) {
    specs->push_back(
        {"gradients: head sizes", {.shape = Shaped(1, 1, 1, 2, 3, qk, v), .gradients = true}});
  }
  for (const Index n : {1, 2, 3, 4, 5, 8, 9, 16, 17, 33}) {
    specs->push_back(
        {"gradients: tails", {.shape = Shaped(1, 1, 1, 2, n, 2, 2), .gradients = true}});
    specs->push_back(
        {"gradients: tails", {.shape = Shaped(1, 1, 1, n, 2, 2, 2), .gradients = true}});
  }
  for (const double rate : {0.1, 0.5, 0.9}) {
    specs->push_back(
        {"gradients: dropout",
         {.shape = Shaped(1, 2, 1, 3, 5, 4, 3), .dropout_rate = rate, .gradients = true}});
  }
  CaseSpec no_keep{.shape = Shaped(1, 2, 1, 3, 5, 4, 3), .dropout_rate = 0.5, .gradients = true};
  no_keep.no_keep = true;
  specs->push_back({"gradients: dropout", no_keep});
  for (const auto& [q_heads, kv_heads] : {std::pair<Index, Index>{2, 1}, {6, 3}, {6, 2}}) {
    specs->push_back({"gradients: grouped heads",
                      {.shape = Shaped(1, q_heads, kv_heads, 2, 3, 2, 2), .gradients = true}});
  }
  specs->push_back(
      {"gradients: long rows", {.shape = Shaped(1, 1, 1, 8, 512, 4, 4), .gradients = true}});
}

// The scores general and additive, with and without gradients. D_q = D_k once each: there a
// transposed parameter still has the right shape.
void AddScores(FamilySpecs* specs, Index q_len, Index kv_len, Index qk_dim, Index k_dim) {
  for (const ScoreKind score : {ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, q_len, kv_len, qk_dim, qk_dim)};
    spec.score = score;
    const char* const family =
        score == ScoreKind::kGeneral ? "scores: general" : "scores: additive";
    specs->push_back({family, spec});
    spec.gradients = true;
    specs->push_back({family, spec});
    spec.shape.k_dim = k_dim;
    spec.causal = Causal::kBottomRight;
    specs->push_back({family, spec});
  }
}

// Gradients and scores of sizes where blocks end, and of structured values.
void AddLargerGradients(FamilySpecs* specs) {
  for (const Index n : {1, 16, 31, 33, 64, 65, 128}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, n, n + 3, 16, 24), .causal = Causal::kBottomRight};
    spec.gradients = spec.grad_lse = true;
    specs->push_back({"gradients: lengths", spec});
    spec.dtype = DType::kBF16;
    spec.sinks = true;
    specs->push_back({"gradients: lengths", spec});
  }
  for (const Values values :
       {Values::kOutliers, Values::kSmallIntegers, Values::kTies, Values::kOneHot, Values::kSpread,
        Values::kConstantValues, Values::kSubnormal, Values::kZero}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, 8, 40, 16, 16), .values = values};
    spec.gradients = true;
    specs->push_back({std::string("gradients: values: ") + NameOf(values), spec});
  }
  specs->push_back({"gradients: lengths",
                    {.shape = Shaped(1, 1, 1, 100, 512, 64, 64),
                     .causal = Causal::kBottomRight,
                     .mask = true,
                     .gradients = true}});
  AddScores(specs, 7, 33, 12, 8);
  AddScores(specs, 16, 17, 8, 12);
}

}  // namespace attest
