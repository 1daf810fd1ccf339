// SPDX-License-Identifier: Apache-2.0
// Families by sizes and by which keys take part.
#include <algorithm>
#include <limits>

#include "properties/kernel_validation/kernel_families.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Both sides of vectors, of tiles and of the kernels' blocks of 192 keys.
Index EdgeLength(Dice& dice) {
  return dice.Pick<Index>({1,   2,   3,   5,   6,   7,   15,  16,  17,  31,  33,  63,  64, 65,
                           127, 128, 129, 191, 192, 193, 200, 255, 257, 383, 384, 385, 400});
}

void SetHeads(Draft& d, Index most_groups, Index most_heads_a_group) {
  d.shape.kv_heads = d.dice.Between(1, most_groups);
  d.shape.q_heads = d.shape.kv_heads * d.dice.Between(1, most_heads_a_group);
}

void SetWidths(Draft& d, Index qk_dim, Index v_dim) {
  d.shape.qk_dim = d.shape.k_dim = qk_dim;
  d.shape.v_dim = v_dim;
}

void AskForWeights(Draft& d, double chance) {
  d.contract.outputs = {"out", "lse"};
  if (d.dice.Chance(chance)) d.contract.outputs.emplace_back("weights");
}

void HeadSizes(Draft& d) {
  const auto width = [&] {
    if (d.dice.Chance(0.4)) return d.dice.Between(1, 257);
    return d.dice.Pick<Index>({1,  2,  3,  5,  6,  7,   11,  12,  13,  16,  17,  23,  31,  32, 33,
                               63, 64, 65, 95, 96, 127, 128, 129, 191, 192, 193, 255, 256, 257});
  };
  SetWidths(d, width(), width());
  d.shape.q_len = d.dice.Between(1, 8);
  d.shape.kv_len = d.dice.Pick<Index>({1, 2, 5, 13, 33, 64, 65, 130, 193});
  d.FillQkv();
  AskForWeights(d, 0.2);
}

void Lengths(Draft& d) {
  d.shape.kv_len = d.dice.Chance(0.08) ? 0 : EdgeLength(d.dice);
  d.shape.q_len = d.dice.Chance(0.05) ? 0 : d.dice.Pick<Index>({1, 2, 3, 7, 8, 9, 15, 16, 17});
  SetWidths(d, d.dice.Between(1, 33), d.dice.Between(1, 70));
  d.contract.empty_row = d.dice.Pick({EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform});
  d.FillQkv();
  AskForWeights(d, 0.2);
}

// More queries than one block of them.
void QueryBlocks(Draft& d) {
  d.shape.q_len = d.dice.Pick<Index>({15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 100});
  d.shape.kv_len = d.dice.Pick<Index>({1, 5, 31, 64, 65, 193});
  SetWidths(d, d.dice.Between(1, 20), d.dice.Between(1, 20));
  d.FillQkv();
  if (d.dice.Chance(0.5)) d.AddCausalOrWindow();
  AskForWeights(d, 0.2);
}

// Every mask, bias and rule, at lengths where blocks end.
void Rules(Draft& d) {
  d.shape.batch = d.dice.Between(1, 2);
  SetHeads(d, 2, 2);
  d.shape.q_len = d.dice.Between(1, 20);
  d.shape.kv_len = EdgeLength(d.dice);
  SetWidths(d, d.dice.Between(1, 16), d.dice.Between(1, 24));
  d.FillQkv();
  d.AddSome(0.3);
  AskForWeights(d, 0.2);
}

void CausalBlocks(Draft& d) {
  d.shape.kv_len = d.dice.Pick<Index>({64, 128, 191, 192, 193, 385});
  d.shape.q_len = d.dice.Chance(0.5) ? d.dice.Between(1, 64) : std::min<Index>(d.shape.kv_len, 130);
  SetWidths(d, d.dice.Between(1, 8), d.dice.Between(1, 16));
  d.FillQkv();
  d.contract.causal = d.dice.Pick({Causal::kTopLeft, Causal::kBottomRight});
  if (d.dice.Chance(0.5)) d.contract.window = {d.dice.Between(-1, 70), d.dice.Between(-1, 5)};
  if (d.dice.Chance(0.3)) d.AddLengths();
  d.contract.empty_row = d.dice.Pick({EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform});
  AskForWeights(d, 0.15);
}

// Blocks of keys of which a row needs nothing, one key, or all but one.
void SkippedBlocks(Draft& d) {
  d.shape.kv_len = d.dice.Between(380, 800);
  d.shape.q_len = d.dice.Between(1, 6);
  SetWidths(d, d.dice.Between(1, 16), d.dice.Between(1, 40));
  d.FillQkv();
  const Index block = d.dice.Pick<Index>({64, 192, 192});
  Tensor mask(DType::kBool, {1, 1, d.shape.q_len, d.shape.kv_len});
  for (Index i = 0; i < d.shape.q_len; ++i) {
    for (Index first = 0; first < d.shape.kv_len; first += block) {
      const Index kind = d.dice.Between(0, 3);
      const Index one = first + d.dice.Between(0, block - 1);
      for (Index j = first; j < std::min(first + block, d.shape.kv_len); ++j) {
        const bool allowed = kind == 0 || (kind == 1 && j == one) || (kind == 2 && j != one);
        mask.Set(i * d.shape.kv_len + j, allowed ? 1.0 : 0.0);
      }
    }
  }
  if (d.dice.Chance(0.5)) {
    d.problem.tensors["mask"] = std::move(mask);
  } else {
    Index at = 0;
    d.Fill("bias", mask.shape(), d.contract.wide_dtype(),
           [&] { return mask.At(at++) != 0.0 ? d.dice.Normal() : -kInfinity; });
  }
  d.contract.empty_row = d.dice.Pick({EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform});
  if (d.dice.Chance(0.3)) d.AddSinks();
  AskForWeights(d, 0.15);
}

void GroupedQueries(Draft& d) {
  d.shape.batch = d.dice.Between(1, 2);
  d.shape.kv_heads = d.dice.Between(1, 3);
  d.shape.q_heads = d.shape.kv_heads * d.dice.Pick<Index>({1, 2, 3, 4, 6, 8, 16});
  d.shape.q_len = d.dice.Between(1, 3);
  d.shape.kv_len = EdgeLength(d.dice);
  SetWidths(d, d.dice.Between(1, 20), d.dice.Between(1, 32));
  d.FillQkv();
  if (d.dice.Chance(0.3)) d.AddSome(0.2);
  AskForWeights(d, 0.15);
}

// One or two queries against many keys, as a model generates text.
void Decode(Draft& d) {
  d.shape.batch = d.dice.Between(1, 2);
  SetHeads(d, 2, 4);
  d.shape.q_len = d.dice.Between(1, 2);
  d.shape.kv_len = d.dice.Between(300, d.dice.Chance(0.3) ? 4096 : 1200);
  SetWidths(d, d.dice.Pick<Index>({8, 16, 32, 64}), d.dice.Pick<Index>({16, 32, 64, 128}));
  d.FillQkv();
  if (d.dice.Chance(0.5)) d.AddLengths();
  if (d.dice.Chance(0.5)) d.contract.causal = Causal::kBottomRight;
  if (d.dice.Chance(0.3)) d.contract.window = {d.dice.Between(1, 700), -1};
  if (d.dice.Chance(0.4)) d.AddSinks();
  AskForWeights(d, 0.1);
}

void LongRows(Draft& d) {
  d.shape.kv_len = d.dice.Between(1000, 5000);
  d.shape.q_len = d.dice.Between(1, 4);
  SetWidths(d, d.dice.Pick<Index>({1, 4, 16, 64}), d.dice.Between(32, 160));
  d.FillQkv(d.dice.Pick({0.25, 1.0, 4.0}));
  if (d.dice.Chance(0.3)) d.AddSome(0.2);
  AskForWeights(d, 0.2);
}

void SetScore(Draft& d, ScoreKind score, Index units) {
  d.contract.score = score;
  if (score == ScoreKind::kDot) return;
  d.contract.scale = {false, d.dice.Pick({1.0, 1.0, 0.3, -2.0})};
  if (score == ScoreKind::kGeneral) {
    d.FillNormal("w", {d.shape.qk_dim, d.shape.k_dim}, 0.3);
    return;
  }
  d.FillNormal("w_q", {units, d.shape.qk_dim}, 0.3);
  d.FillNormal("w_k", {units, d.shape.k_dim}, 0.3);
  d.FillNormal("v_a", {units});
  if (d.dice.Chance(0.6)) d.FillNormal("b", {units});
}

// The certified scores of these two cost hundreds of times those of `dot`: few pairs, many columns.
void GeneralScores(Draft& d) {
  SetWidths(d, d.dice.Between(1, 40), d.dice.Between(20, 100));
  d.shape.k_dim = d.dice.Between(1, 40);
  d.shape.q_len = d.dice.Between(1, 4);
  d.shape.kv_len = d.dice.Pick<Index>({1, 2, 17, 63, 65, 193});
  SetHeads(d, 2, 2);
  d.FillQkv();
  SetScore(d, ScoreKind::kGeneral, 0);
  if (d.dice.Chance(0.4)) d.AddSome(0.2);
  AskForWeights(d, 0.2);
}

void AdditiveScores(Draft& d) {
  SetWidths(d, d.dice.Between(1, 20), d.dice.Between(20, 100));
  d.shape.k_dim = d.dice.Between(1, 20);
  d.shape.q_len = d.dice.Between(1, 3);
  d.shape.kv_len = d.dice.Pick<Index>({1, 2, 17, 63, 65, 193});
  d.FillQkv();
  SetScore(d, ScoreKind::kAdditive, d.dice.Pick<Index>({1, 3, 5, 8, 17, 33}));
  if (d.dice.Chance(0.4)) d.AddSome(0.2);
  AskForWeights(d, 0.2);
}

// Everything that a contract can say at once.
void Everything(Draft& d) {
  d.shape.batch = d.dice.Between(1, 2);
  SetHeads(d, 2, 3);
  d.shape.q_len = d.dice.Between(1, 9);
  d.shape.kv_len = EdgeLength(d.dice);
  SetWidths(d, d.dice.Between(1, 24), d.dice.Between(1, 40));
  const ScoreKind score = d.dice.Chance(0.8)
                              ? ScoreKind::kDot
                              : d.dice.Pick({ScoreKind::kGeneral, ScoreKind::kAdditive});
  if (score != ScoreKind::kDot) {
    d.shape.batch = d.shape.q_heads = d.shape.kv_heads = 1;
    d.shape.k_dim = d.dice.Between(1, 12);
    d.shape.q_len = std::min<Index>(d.shape.q_len, 3);
  }
  d.contract.out_dtype = d.dice.Chance(0.2) ? DType::kF32 : d.contract.dtype;
  d.FillQkv();
  SetScore(d, score, d.dice.Between(1, 5));
  d.AddSome(0.5);
  AskForWeights(d, 0.15);
}

}  // namespace

const std::vector<Family>& ShapeFamilies() {
  static const std::vector<Family> families{
      {"head_sizes", HeadSizes},
      {"lengths", Lengths},
      {"query_blocks", QueryBlocks},
      {"rules", Rules},
      {"causal_blocks", CausalBlocks},
      {"skipped_blocks", SkippedBlocks},
      {"grouped_queries", GroupedQueries},
      {"decode", Decode},
      {"long_rows", LongRows},
      {"general_scores", GeneralScores},
      {"additive_scores", AdditiveScores},
      {"everything", Everything},
  };
  return families;
}

}  // namespace attest
