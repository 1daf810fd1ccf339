// SPDX-License-Identifier: Apache-2.0
// Scores and values of any size, order and element type.
#include <limits>

#include "audit/suite_family.h"

namespace attest {

void AddValues(FamilySpecs* specs, Index q_len, Index kv_len, Index dim) {
  for (const Values values :
       {Values::kNormal, Values::kOutliers, Values::kSmallIntegers, Values::kTies, Values::kOneHot,
        Values::kSpread, Values::kConstantValues, Values::kSubnormal, Values::kZero, Values::kOnes,
        Values::kIdentity, Values::kExponents, Values::kMantissas, Values::kConstantRows,
        Values::kCancellation, Values::kLargeProducts, Values::kNearOverflow, Values::kTiny}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, q_len, kv_len, dim, dim), .values = values};
    const std::string family = std::string("values: ") + NameOf(values);
    specs->push_back({family, spec});
    spec.scale = {false, 1.0};
    spec.causal = Causal::kBottomRight;
    specs->push_back({family, spec});
  }
}

// Rows whose scores are all large, all small, or below what stands for "masked" elsewhere.
void AddScoreLevels(FamilySpecs* specs) {
  const auto add = [&](CaseSpec spec) { specs->push_back({"score levels", spec}); };
  for (const double level : {0.0, 10.0, -10.0, 88.0, 100.0, -100.0, 200.0, -200.0, 800.0, -800.0,
                             20000.0, -20000.0, 60000.0, -60000.0}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      CaseSpec spec{
          .shape = Shaped(1, 1, 1, 1, 2, 1, 2), .dtype = dtype, .values = Values::kSmallIntegers};
      spec.scores = {ScorePattern::kEqual, level};
      add(spec);
      // Key 0 would win with its score of 0, and is not allowed.
      spec.shape.kv_len = 5;
      spec.scores = {ScorePattern::kNeedle, level, -level, 0};
      spec.mask_pattern = MaskPattern::kNotFirst;
      add(spec);
    }
    CaseSpec spec{.shape = Shaped(34, 1, 1, 1, 33, 1, 1), .values = Values::kOnes};
    spec.scores = {ScorePattern::kEqual, level};
    spec.mask_pattern = MaskPattern::kSuffix;  // leading blocks without a key
    spec.mask_broadcast = {false, true, true, false};
    add(spec);
    spec.mask_pattern = MaskPattern::kPrefix;
    add(spec);
  }
  for (const double level : {-1e6, -1e10, 1e10}) {
    CaseSpec spec{.shape = Shaped(1, 1, 1, 2, 4, 1, 2), .dtype = DType::kF64};
    spec.scores = {ScorePattern::kNeedle, level, -level, 3};
    spec.kv_length_list = {3};
    add(spec);
  }
  // Rows without a key whose scores are small: nothing of them may be left.
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const MaskPattern pattern : {MaskPattern::kAllFalse, MaskPattern::kEmptyRows}) {
      CaseSpec spec{.shape = Shaped(1, 1, 1, 2, 2, 1, 1), .dtype = dtype};
      spec.scores = {ScorePattern::kZigzag, -20.0, -4.0};
      spec.mask_pattern = pattern;
      add(spec);
      spec.scores = {ScorePattern::kZigzag, 20.0, 4.0};
      add(spec);
    }
  }
}

// In which order the maximum is met: online softmax rescales at each new one.
void AddScoreOrders(Index kv_len, FamilySpecs* specs) {
  CaseSpec spec{.shape = Shaped(1, 1, 1, 1, kv_len, 1, 3)};
  const auto add = [&](const DirectScores& scores) {
    spec.scores = scores;
    specs->push_back({"score orders", spec});
  };
  for (const double step : {1.0986122886681098, 30.0, 100.0}) {
    add({ScorePattern::kIncreasing, -50.0, step});
    add({ScorePattern::kDecreasing, 50.0, step});
    add({ScorePattern::kZigzag, 0.0, step});
    add({ScorePattern::kZigzag, -200.0, -step});
  }
  for (const Index needle : {0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64}) {
    if (needle >= kv_len) continue;
    add({ScorePattern::kNeedle, 0.0, 100.0, needle});
    add({ScorePattern::kNeedle, -300.0, 20.0, needle});
    add({ScorePattern::kNeedle, 1.0, -100.0, needle});
  }
}

void AddSinks(FamilySpecs* specs) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double level : {0.0, 2.0, 30.0, 200.0, -200.0, -infinity}) {
    for (const double score : {0.0, -100.0, 100.0}) {
      CaseSpec spec{.shape = Shaped(1, 2, 1, 2, 5, 1, 2), .values = Values::kSmallIntegers};
      spec.sink_level = level;
      spec.scores = {ScorePattern::kZigzag, score, 1.0};
      specs->push_back({"sinks", spec});
      spec.mask_pattern = MaskPattern::kEmptyRows;
      specs->push_back({"sinks", spec});
    }
    CaseSpec spec{.shape = Shaped(10, 2, 2, 1, 9, 1, 1)};
    spec.sink_level = level;
    spec.mask_pattern = MaskPattern::kSuffix;
    spec.mask_broadcast = {false, true, true, false};
    specs->push_back({"sinks", spec});
  }
  specs->push_back({"sinks", {.shape = Shaped(2, 4, 2, 3, 17, 4, 4), .sinks = true}});
}

void AddElementTypes(FamilySpecs* specs) {
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    const auto add = [&](CaseSpec spec) {
      spec.dtype = dtype;
      specs->push_back({"element types", spec});
    };
    CaseSpec spec{.shape = Shaped(2, 2, 1, 5, 9, 8, 8)};
    add(spec);
    spec.causal = Causal::kBottomRight;
    add(spec);
    spec.kv_lengths = spec.q_lengths = spec.mask = spec.bias = true;
    add(spec);
    spec = {.shape = Shaped(1, 4, 2, 3, 33, 16, 4), .sinks = true, .softcap = 3.0};
    spec.alibi = Alibi::kDefault;
    add(spec);
    spec = {.shape = Shaped(1, 1, 1, 2, 8, 64, 4), .values = Values::kLargeProducts};
    add(spec);
    spec.shape.qk_dim = spec.shape.k_dim = 128;
    add(spec);
    for (const Values values : {Values::kExponents, Values::kMantissas, Values::kConstantValues,
                                Values::kCancellation, Values::kOnes, Values::kNearOverflow}) {
      add({.shape = Shaped(1, 1, 1, 2, 17, 8, 8), .values = values});
    }
    spec = {.shape = Shaped(1, 1, 1, 1, 9, 1, 2)};
    spec.scores = {ScorePattern::kIncreasing, -40.0, 10.0};
    add(spec);
    spec.scores = {ScorePattern::kDecreasing, 40.0, 10.0};
    add(spec);
    for (const EmptyRow policy : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
      spec = {.shape = Shaped(1, 1, 1, 3, 5, 4, 4), .empty_row = policy};
      spec.mask_pattern = MaskPattern::kEmptyRows;
      add(spec);
    }
  }
}

// So many equal scores that a sum kept in 16 bits stops growing, at 256 or 2048.
void AddStagnation(Index kv_len, FamilySpecs* specs) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CaseSpec spec{
        .shape = Shaped(1, 1, 1, 1, kv_len, 1, 1), .dtype = dtype, .values = Values::kOnes};
    spec.scores = {ScorePattern::kEqual, 0.0};
    specs->push_back({"long sums", spec});
  }
}

}  // namespace attest
