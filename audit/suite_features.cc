// SPDX-License-Identifier: Apache-2.0
// Scale, soft cap, ALiBi and dropout, and the outputs that a call asks for.
#include <utility>

#include "audit/suite_family.h"

namespace attest {

void AddScales(FamilySpecs* specs) {
  for (const double scale : {1.0, 0.0, -0.75, 0.3, 16.0}) {
    specs->push_back(
        {"scales", {.shape = Shaped(1, 4, 2, 3, 6, 4, 4), .scale = {false, scale}, .bias = true}});
  }
  for (const Index dim : {1, 2, 3, 5, 6, 16}) {
    CaseSpec spec{.shape = Shaped(1, 4, 4, 2, 5, dim, 3)};
    spec.mask_pattern = MaskPattern::kAllTrue;
    spec.bias_pattern = BiasPattern::kNormal;
    specs->push_back({"scales", spec});
  }
  for (const double cap : {0.5, 1.0, 30.0}) {
    CaseSpec spec{.shape = Shaped(2, 2, 1, 4, 9, 16, 4), .softcap = cap};
    specs->push_back({"soft cap", spec});
    spec.scale = {false, 1.0};
    specs->push_back({"soft cap", spec});
    spec.mask_pattern = MaskPattern::kEmptyRows;
    spec.bias_pattern = BiasPattern::kExcluding;
    specs->push_back({"soft cap", spec});
    spec = {.shape = Shaped(1, 1, 1, 2, 5, 1, 2), .softcap = cap};
    for (const double far : {10.0, 100.0, 3000.0}) {
      spec.scores = {ScorePattern::kZigzag, 0.0, far};
      specs->push_back({"soft cap", spec});
      spec.scores = {ScorePattern::kZigzag, -far, 0.5};
      specs->push_back({"soft cap", spec});
    }
  }
}

void AddAlibi(FamilySpecs* specs) {
  for (const Index heads : {1, 2, 3, 5, 6, 8, 12}) {
    CaseSpec spec{.shape = Shaped(1, heads, 1, 2, 5, 2, 2)};
    spec.alibi = Alibi::kDefault;
    specs->push_back({"ALiBi", spec});
    spec.alibi = Alibi::kTensor;
    specs->push_back({"ALiBi", spec});
  }
  for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{1, 7}, {7, 7}, {7, 4}, {4, 17}}) {
    for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
      CaseSpec spec{.shape = Shaped(2, 2, 1, q_len, kv_len, 4, 4), .causal = causal};
      spec.alibi = causal == Causal::kNone ? Alibi::kTensor : Alibi::kDefault;
      specs->push_back({"ALiBi", spec});
      spec.kv_lengths = spec.q_lengths = true;
      specs->push_back({"ALiBi", spec});
    }
  }
  CaseSpec off{.shape = Shaped(1, 2, 1, 3, 5, 4, 4)};
  off.alibi = Alibi::kNone;
  specs->push_back({"ALiBi", off});
}

void AddDropout(FamilySpecs* specs) {
  for (const double rate : {0.1, 0.25, 0.5, 0.9}) {
    CaseSpec spec{.shape = Shaped(2, 2, 1, 3, 9, 4, 4), .dropout_rate = rate};
    specs->push_back({"dropout", spec});
    spec.mask = true;
    spec.causal = Causal::kTopLeft;
    specs->push_back({"dropout", spec});
    spec = {.shape = Shaped(2, 2, 1, 3, 9, 4, 4), .values = Values::kOnes, .dropout_rate = rate};
    spec.no_keep = true;
    specs->push_back({"dropout", spec});
  }
  for (unsigned bits = 1; bits < 16; ++bits) {
    CaseSpec spec{.shape = Shaped(3, 3, 3, 3, 3, 2, 2), .dropout_rate = 0.5};
    spec.keep_broadcast = BroadcastOf(bits);
    specs->push_back({"dropout", spec});
  }
}

// Paths that differ by what they must write.
void AddOutputs(FamilySpecs* specs) {
  const std::vector<std::vector<std::string>> subsets{{"out"}, {"out", "lse"}, {"out", "weights"},
                                                      {"lse"}, {"weights"},    {"lse", "weights"}};
  for (const std::vector<std::string>& outputs : subsets) {
    const auto add = [&](CaseSpec spec) {
      spec.outputs = outputs;
      specs->push_back({"outputs", spec});
    };
    for (const Index kv_len : {2, 9, 33}) add({.shape = Shaped(2, 2, 1, 3, kv_len, 4, 4)});
    for (const Causal causal : {Causal::kTopLeft, Causal::kBottomRight}) {
      add({.shape = Shaped(1, 2, 1, 5, 9, 4, 4), .causal = causal});
    }
    CaseSpec spec{.shape = Shaped(2, 2, 1, 3, 9, 4, 4)};
    spec.mask_pattern = MaskPattern::kEmptyRows;
    add(spec);
    spec.sinks = true;
    spec.kv_lengths = true;
    add(spec);
    spec = {
        .shape = Shaped(1, 4, 2, 3, 9, 4, 4), .bias = true, .softcap = 2.0, .dropout_rate = 0.25};
    spec.window = {4, 2};
    add(spec);
  }
}

}  // namespace attest
