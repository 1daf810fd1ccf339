// SPDX-License-Identifier: Apache-2.0
// Masks, windows, lengths and documents: which keys take part, and which must leave no trace.
#include <utility>

#include "audit/suite_family.h"

namespace attest {
namespace {

constexpr Causal kEveryCausal[] = {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight};
constexpr EmptyRow kEveryPolicy[] = {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform};

}  // namespace

void AddMasks(FamilySpecs* specs) {
  for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{9, 9}, {5, 12}, {12, 5}, {1, 17}}) {
    for (const Causal causal : kEveryCausal) {
      CaseSpec spec{.shape = Shaped(2, 2, 2, q_len, kv_len, 8, 8), .causal = causal};
      specs->push_back({causal == Causal::kNone ? "plain" : "causal", spec});
      spec.kv_lengths = true;
      specs->push_back({"key lengths", spec});
      spec.q_lengths = true;
      specs->push_back({"key and query lengths", spec});
      spec.mask = spec.bias = true;
      specs->push_back({"mask, bias and lengths", spec});
    }
  }
  for (const EmptyRow policy : {EmptyRow::kNan, EmptyRow::kUniform}) {
    specs->push_back({"empty rows",
                      {.shape = Shaped(2, 1, 1, 6, 3, 4, 4),
                       .causal = Causal::kBottomRight,
                       .empty_row = policy,
                       .kv_lengths = true}});
    specs->push_back({"empty rows", {.shape = Shaped(1, 1, 1, 2, 0, 4, 4), .empty_row = policy}});
  }
  // Batch entries without keys or queries beside others.
  for (const EmptyRow policy : kEveryPolicy) {
    CaseSpec spec{.shape = Shaped(3, 2, 1, 3, 5, 4, 4), .empty_row = policy};
    spec.kv_length_list = {0, 1, 5};
    specs->push_back({"empty entries", spec});
    spec.q_length_list = {2, 0, 3};
    specs->push_back({"empty entries", spec});
    spec.causal = Causal::kBottomRight;
    spec.sinks = true;
    specs->push_back({"empty entries", spec});
  }
}

void AddMaskPatterns(FamilySpecs* specs) {
  for (const MaskPattern pattern :
       {MaskPattern::kAllTrue, MaskPattern::kAllFalse, MaskPattern::kEmptyRows, MaskPattern::kHoles,
        MaskPattern::kNotFirst, MaskPattern::kOnlyFirst, MaskPattern::kOnlyLast,
        MaskPattern::kCausalTopLeft, MaskPattern::kCausalBottomRight, MaskPattern::kOneKey,
        MaskPattern::kByHead}) {
    for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{2, 3}, {4, 4}, {9, 5}}) {
      CaseSpec spec{.shape = Shaped(2, 2, 1, q_len, kv_len, 4, 4)};
      spec.mask_pattern = pattern;
      if (pattern != MaskPattern::kByHead && pattern != MaskPattern::kOneKey) {
        spec.mask_broadcast = {true, true, false, false};
      }
      specs->push_back({"masks", spec});
    }
  }
  for (const MaskPattern pattern : {MaskPattern::kAllFalse, MaskPattern::kEmptyRows}) {
    for (const EmptyRow policy : kEveryPolicy) {
      CaseSpec spec{.shape = Shaped(2, 2, 1, 3, 33, 4, 4), .empty_row = policy};
      spec.mask_pattern = pattern;
      specs->push_back({"empty rows", spec});
      spec.sinks = true;
      specs->push_back({"empty rows", spec});
    }
  }
}

// Tq = Tk, so that an axis taken for another still has the right length; and all different.
void AddBroadcasts(FamilySpecs* specs) {
  for (const Dimensions& shape : {Shaped(3, 3, 3, 3, 3, 4, 4), Shaped(2, 4, 2, 3, 5, 4, 4)}) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      CaseSpec spec{.shape = shape};
      spec.mask_pattern = MaskPattern::kRandom;
      spec.mask_broadcast = BroadcastOf(bits);
      specs->push_back({"broadcast masks", spec});
      spec.mask_pattern = MaskPattern::kNone;
      spec.bias_pattern = bits % 2 == 0 ? BiasPattern::kNormal : BiasPattern::kExcluding;
      spec.bias_broadcast = BroadcastOf(bits);
      specs->push_back({"broadcast biases", spec});
    }
  }
  for (const BiasPattern pattern :
       {BiasPattern::kExcluding, BiasPattern::kLarge, BiasPattern::kFarBelow}) {
    CaseSpec spec{.shape = Shaped(2, 2, 1, 3, 9, 4, 4)};
    spec.bias_pattern = pattern;
    specs->push_back({"biases", spec});
    spec.mask_pattern = MaskPattern::kAllTrue;
    specs->push_back({"biases", spec});
    spec.mask_pattern = MaskPattern::kNone;
    spec.values = Values::kNearOverflow;  // a weight that should vanish shows
    specs->push_back({"biases", spec});
  }
}

void AddWindows(Index q_len, Index kv_len, FamilySpecs* specs) {
  for (const Causal causal : kEveryCausal) {
    for (const Index left : {-1, 0, 1, 3}) {
      for (const Index right : {-1, 0, 1, 2}) {
        if (left < 0 && right < 0) continue;
        CaseSpec spec{.shape = Shaped(1, 1, 1, q_len, kv_len, 4, 4), .causal = causal};
        spec.window = {left, right};
        specs->push_back({"windows", spec});
      }
    }
    for (const Window& window : {Window{1, -1}, Window{-1, 0}, Window{2, 1}}) {
      CaseSpec spec{.shape = Shaped(3, 1, 1, q_len, kv_len, 4, 4), .causal = causal};
      spec.window = window;
      spec.kv_length_list = {kv_len, kv_len / 2, 0};
      specs->push_back({"windows and lengths", spec});
      spec.q_length_list = {q_len, q_len - 1, q_len / 2};
      specs->push_back({"windows and lengths", spec});
    }
  }
}

void AddDocumentsAndLocal(FamilySpecs* specs) {
  for (const Causal causal : kEveryCausal) {
    for (const Documents documents :
         {Documents::kBlocks, Documents::kInterleaved, Documents::kApart}) {
      CaseSpec spec{.shape = Shaped(2, 2, 1, 6, 9, 4, 4), .causal = causal};
      spec.documents = documents;
      specs->push_back({"documents", spec});
    }
    for (const bool gaussian : {false, true}) {
      CaseSpec spec{.shape = Shaped(1, 2, 1, 4, 11, 4, 4), .causal = causal};
      spec.local = LocalWindow{causal == Causal::kNone ? 0.5 : 2.0, gaussian};
      specs->push_back({"local windows", spec});
      spec.local->half_width = 50.0;
      specs->push_back({"local windows", spec});
    }
  }
}

// NaN and infinity where no query, or not every query, may look.
void AddJunk(FamilySpecs* specs) {
  for (const Index kv_len : {4, 9, 33}) {
    const CaseSpec base{.shape = Shaped(2, 2, 1, 3, kv_len, 4, 4)};
    const auto add = [&](CaseSpec spec) {
      spec.junk = true;
      specs->push_back({"junk in hidden keys", spec});
    };
    CaseSpec spec = base;
    spec.kv_length_list = {kv_len / 2, 1};
    add(spec);
    spec.kv_length_list = {0, kv_len - 1};
    add(spec);
    spec = base;
    spec.mask_pattern = MaskPattern::kHoles;
    spec.mask_broadcast = kKeysOnly;
    add(spec);
    spec.mask_pattern = MaskPattern::kNotFirst;
    add(spec);
    spec = base;
    spec.causal = Causal::kTopLeft;
    add(spec);
    spec = base;
    spec.window = {0, -1};
    add(spec);
    spec = base;
    spec.bias_pattern = BiasPattern::kExcluding;
    spec.bias_broadcast = kKeysOnly;
    add(spec);
    spec = base;
    spec.documents = Documents::kApart;
    add(spec);
  }
  for (const Causal causal : {Causal::kTopLeft, Causal::kBottomRight}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, 5, 7, 4, 4), .causal = causal};
    for (const Index key : {0, 4, 6}) {
      spec.poisoned_key = key;
      specs->push_back({"a key of NaN", spec});
    }
  }
  for (const MaskPattern pattern :
       {MaskPattern::kHoles, MaskPattern::kOneKey, MaskPattern::kEmptyRows}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, 5, 7, 4, 4)};
    spec.mask_pattern = pattern;
    spec.poisoned_key = 3;
    specs->push_back({"a key of NaN", spec});
  }
}

}  // namespace attest
