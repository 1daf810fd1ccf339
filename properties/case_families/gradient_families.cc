// SPDX-License-Identifier: Apache-2.0
// Families of cases with gradients: each score, plain and with everything that reaches a gradient.
#include <algorithm>
#include <string>
#include <vector>

#include "properties/case_families/families.h"

namespace attest {
namespace {

// Sizes for gradients, which have elements for every key: small, and less wide where long.
void SetSizes(Draft& d) {
  if (d.is_long) {
    d.shape.q_len = d.dice.Between(1, 2);
    d.shape.kv_len = d.dice.Between(1000, 1500);
    d.shape.qk_dim = d.dice.Pick<Index>({1, 4});
    d.shape.v_dim = d.dice.Between(1, 6);
  } else {
    d.shape.q_len = d.dice.Between(1, 8);
    d.shape.kv_len = d.dice.Between(1, d.dice.Chance(0.1) ? 200 : 40);
    d.shape.qk_dim = d.dice.Between(1, 12);
    d.shape.v_dim = d.dice.Between(1, 12);
    d.shape.kv_heads = d.dice.Between(1, 2);
    d.shape.q_heads = d.shape.kv_heads * d.dice.Between(1, 2);
  }
  d.shape.k_dim = d.shape.qk_dim;
}

void AddParameters(Draft& d, ScoreKind score) {
  d.contract.score = score;
  if (score == ScoreKind::kDot) return;
  d.contract.scale = {false, d.dice.Pick({1.0, 1.0, 0.3, -2.0})};
  d.shape.k_dim = d.dice.Between(1, 8);
  if (score == ScoreKind::kGeneral) d.FillNormal("w", {d.shape.qk_dim, d.shape.k_dim}, 0.5);
  if (score == ScoreKind::kAdditive) {
    const Index units = d.dice.Between(1, 3);
    d.FillNormal("w_q", {units, d.shape.qk_dim}, 0.5);
    d.FillNormal("w_k", {units, d.shape.k_dim}, 0.5);
    d.FillNormal("v_a", {units});
    if (d.dice.Chance(0.5)) d.FillNormal("b", {units});
  }
}

void Plain(Draft& d, ScoreKind score) {
  SetSizes(d);
  AddParameters(d, score);
  d.FillQkv();
  d.AskForGradients();
}

void Masked(Draft& d, ScoreKind score) {
  SetSizes(d);
  AddParameters(d, score);
  d.FillQkv();
  d.AddSome(0.35);
  d.AskForGradients();
}

void GradDot(Draft& d) { Plain(d, ScoreKind::kDot); }
void GradDotMasked(Draft& d) { Masked(d, ScoreKind::kDot); }
void GradGeneral(Draft& d) { Plain(d, ScoreKind::kGeneral); }
void GradGeneralMasked(Draft& d) { Masked(d, ScoreKind::kGeneral); }
void GradAdditive(Draft& d) { Plain(d, ScoreKind::kAdditive); }
void GradAdditiveMasked(Draft& d) { Masked(d, ScoreKind::kAdditive); }

// Small integers in bf16: scores tie, products and sums are exact, gradients are often exactly 0 or
// the quotient of small numbers.
void GradIntegers(Draft& d) {
  d.contract.dtype = d.contract.out_dtype = DType::kBF16;
  d.contract.arithmetic.profile = DefaultProfile(DType::kBF16);
  SetSizes(d);
  d.FillQkv();
  const bool equal_scores = d.dice.Chance(0.4);
  const auto integer = [&](double, Index) { return static_cast<double>(d.dice.Between(-2, 2)); };
  for (const char* name : {"q", "k", "v"}) d.Change(name, integer);
  if (equal_scores) d.Change("q", [](double, Index) { return 0.0; });
  if (d.dice.Chance(0.3)) d.AddMask(0.6);
  d.AskForGradients();
  for (const char* name : {"grad_out", "grad_lse"}) {
    if (d.problem.Find(name) != nullptr) d.Change(name, integer);
  }
}

// Values, queries or gradients that are large, small or subnormal.
void GradExtremes(Draft& d) {
  SetSizes(d);
  // Scores within 200 of each other: the validation takes a gradient that is e^-200 from a midpoint
  // for a tie.
  d.FillQkv(d.dice.Pick({0x1p-20, 1.0, 4.0}), d.dice.Pick({0x1p-20, 1.0, 4.0}));
  d.AskForGradients();
  const double subnormal = d.format().smallest_subnormal();
  const double large = 0x1p-24 * d.format().largest_finite();
  for (const char* name : {"v", "grad_out", "grad_lse"}) {
    if (d.problem.Find(name) == nullptr) continue;
    const double factor = d.dice.Pick({8.0 * subnormal, 1.0, 0x1p-8, std::min(large, 0x1p40)});
    d.Change(name, [&](double x, Index) { return factor * x; });
  }
}

}  // namespace

const std::vector<Family>& GradientFamilies() {
  static const std::vector<Family> families{
      {"grad_dot", GradDot, 50},           {"grad_dot_masked", GradDotMasked, 50},
      {"grad_general", GradGeneral, 50},   {"grad_general_masked", GradGeneralMasked, 50},
      {"grad_additive", GradAdditive, 50}, {"grad_additive_masked", GradAdditiveMasked, 50},
      {"grad_integers", GradIntegers, 50}, {"grad_extremes", GradExtremes, 50},
  };
  return families;
}

}  // namespace attest
