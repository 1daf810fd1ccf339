// SPDX-License-Identifier: Apache-2.0
// Families by values: adversarial for online softmax, masks, ranges; and those with gradients.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "properties/kernel_validation/kernel_families.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Rows of up to three blocks of keys, a few queries.
void SetSizes(Draft& d) {
  d.shape.q_len = d.dice.Between(1, 10);
  d.shape.kv_len = d.dice.Pick<Index>({2, 7, 33, 64, 100, 192, 193, 300, 385, 577});
  d.shape.qk_dim = d.shape.k_dim = d.dice.Pick<Index>({1, 2, 4, 8, 16, 33, 64});
  d.shape.v_dim = d.dice.Between(8, 64);
  d.contract.outputs = {"out", "lse"};
  if (d.dice.Chance(0.2)) d.contract.outputs.emplace_back("weights");
}

// A bias of every key by a function of its number.
template <class F>
void BiasByKey(Draft& d, const F& bias_of) {
  Index key = 0;
  d.Fill("bias", {1, 1, 1, d.shape.kv_len}, d.contract.wide_dtype(),
         [&] { return bias_of(key++); });
}

// Scores that rise, fall, or jump between blocks: every rescaling of an online softmax.
void RisingScores(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  const double step = d.dice.Pick({0.01, 0.5, 3.0, 80.0});
  const double block = d.dice.Pick({1.0, 64.0, 192.0});
  const Index kind = d.dice.Between(0, 3);
  BiasByKey(d, [&](Index j) {
    const double at = std::floor(static_cast<double>(j) / block);
    if (kind == 0) return step * at;
    if (kind == 1) return -step * at;
    if (kind == 2) return std::fmod(at, 2.0) == 0.0 ? step : -step;
    return step * d.dice.Normal();
  });
}

// Weights that underflow, or nearly, under values that make them visible.
void VanishingWeights(Draft& d) {
  SetSizes(d);
  d.FillQkv(0.1);
  const double depth = d.contract.dtype == DType::kF64 ? 710.0 : 88.0;
  BiasByKey(d, [&](Index j) { return j % 7 == 3 ? 0.0 : -depth * (0.9 + 0.3 * d.dice.Normal()); });
  if (d.dice.Chance(0.5)) {
    const double large = std::min(0x1p60, d.format().largest_finite() / 64.0);
    d.FillV([&] { return large * d.dice.Normal(); });
  }
}

void Outliers(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  const double share = d.dice.Pick({0.001, 0.01});
  for (const char* name : {"q", "k", "v"}) {
    d.Change(name, [&](double x, Index) {
      return d.dice.Chance(share) ? x + 10.0 * d.dice.Normal() : x;
    });
  }
}

void Scales(Draft& d) {
  SetSizes(d);
  const int exponent = static_cast<int>(d.dice.Between(-30, 30));
  d.FillQkv(std::ldexp(1.0, d.contract.dtype == DType::kF16 ? exponent / 4 : exponent));
  const double inverse = std::ldexp(d.dice.Pick({1.0, -1.0, 0.7}), -exponent);
  d.contract.scale = {false,
                      d.dice.Chance(0.6) ? inverse : d.dice.Pick({0x1p-100, -8.0, 16.0, 0.0})};
}

void TiedScores(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  for (const char* name : {"q", "k"}) {
    d.Change(name, [&](double, Index) { return static_cast<double>(d.dice.Between(-1, 1)); });
  }
  d.contract.scale = {false, d.dice.Pick({1.0, 0.5, 20.0})};
}

// Keys and queries along axes: a query sees few keys, with all the weight or with none.
void OneHotKeys(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  const double size = d.dice.Pick({1.0, 8.0, 100.0});
  for (const char* name : {"q", "k"}) {
    Index row = 0;
    d.Change(name, [&](double, Index c) {
      if (c == 0) row = d.dice.Between(0, d.shape.qk_dim - 1);
      return c == row ? size : 0.0;
    });
  }
}

void CappedScores(Draft& d) {
  SetSizes(d);
  d.FillQkv(d.dice.Pick({0x1p-6, 1.0, 16.0, 1000.0}));
  d.contract.softcap = d.dice.Pick({0x1p-10, 0.5, 5.0, 50.0, 1e4});
  if (d.dice.Chance(0.3)) d.AddBias();
}

// Biases that mask without excluding, as models write them.
void FarBiases(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  const double far = d.dice.Pick({-1e4, -1e9, -30.0, 100.0});
  const bool all = d.dice.Chance(0.1);
  d.Fill("bias", {1, 1, d.shape.q_len, d.shape.kv_len}, d.contract.wide_dtype(),
         [&] { return all || d.dice.Chance(0.6) ? far : d.dice.Normal(); });
}

void AlibiSlopes(Draft& d) {
  SetSizes(d);
  d.shape.kv_heads = d.dice.Between(1, 3);
  d.shape.q_heads = d.shape.kv_heads * d.dice.Between(1, 2);
  d.FillQkv();
  d.contract.alibi = d.dice.Pick({Alibi::kDefault, Alibi::kTensor});
  if (d.contract.alibi == Alibi::kTensor) {
    d.Fill("alibi_slopes", {d.shape.q_heads}, d.contract.wide_dtype(),
           [&] { return d.dice.Pick({0.0, -0.125, 0.5, 1.0, 30.0}) * d.dice.Normal(); });
  }
  if (d.dice.Chance(0.5)) d.contract.causal = Causal::kBottomRight;
  if (d.dice.Chance(0.3)) d.AddLengths();
}

void ExtremeSinks(Draft& d) {
  SetSizes(d);
  d.shape.q_heads = d.shape.kv_heads = d.dice.Between(1, 4);
  d.FillQkv();
  d.Fill("sinks", {d.shape.q_heads}, d.contract.wide_dtype(), [&] {
    return d.dice.Pick({0.0, 1.0, 50.0, 200.0, -50.0, -200.0, -1e30, -kInfinity, kInfinity, kNaN});
  });
  if (d.dice.Chance(0.4)) d.AddMask(d.dice.Pick({0.02, 0.5}));
}

void LocalAndDropped(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  if (d.dice.Chance(0.8)) {
    d.AddLocal();
    if (d.dice.Chance(0.3)) d.contract.local->half_width = d.dice.Pick({0.5, 1.0, 2.5});
  }
  if (d.dice.Chance(0.6)) d.AddDropout();
}

// Numbers near the largest of the output's type, which may round to infinity.
void NearOverflow16(Draft& d) {
  d.contract.dtype = d.contract.out_dtype = d.dice.Pick({DType::kF16, DType::kBF16});
  SetSizes(d);
  d.FillQkv();
  const double largest = d.contract.dtype == DType::kF16 ? 65504.0 : 0x1p120;
  d.FillV([&] { return largest * (1.0 - 0x1p-6 * std::fabs(d.dice.Normal())); });
}

// NaN, infinities and huge numbers in k and v of keys that take no part, for every row or for some.
void ForbiddenJunk(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  std::vector<std::uint8_t> junk(static_cast<std::size_t>(d.shape.kv_len));
  const double share = d.dice.Pick({0.03, 0.3, 0.8});
  for (std::uint8_t& is_junk : junk) is_junk = d.dice.Chance(share) ? 1 : 0;
  const auto is_junk = [&](Index j) { return junk[static_cast<std::size_t>(j)] != 0; };
  Index key = 0;
  switch (d.dice.Between(0, 4)) {
    case 0:
      d.Fill("mask", {1, 1, 1, d.shape.kv_len}, DType::kBool,
             [&] { return is_junk(key++) ? 0.0 : 1.0; });
      break;
    case 1:
      BiasByKey(d, [&](Index j) { return is_junk(j) ? -kInfinity : d.dice.Normal(); });
      break;
    case 2:
      d.Fill("q_documents", {1, d.shape.q_len}, DType::kI32, [] { return 1.0; });
      d.Fill("kv_documents", {1, d.shape.kv_len}, DType::kI32,
             [&] { return is_junk(key++) ? 2.0 : 1.0; });
      break;
    case 3: {  // the tail
      const Index length = d.dice.Between(0, d.shape.kv_len);
      d.Fill("kv_lengths", {1}, DType::kI32, [&] { return static_cast<double>(length); });
      for (Index j = 0; j < d.shape.kv_len; ++j) {
        junk[static_cast<std::size_t>(j)] = j >= length ? 1 : 0;
      }
      break;
    }
    default:  // the tail, but rows need more and more of it
      d.contract.causal = d.dice.Pick({Causal::kTopLeft, Causal::kBottomRight});
      for (Index j = 0; j < d.shape.kv_len; ++j) {
        const Index from =
            d.contract.causal == Causal::kTopLeft ? 0 : d.shape.kv_len - d.shape.q_len;
        junk[static_cast<std::size_t>(j)] = j >= from + d.shape.q_len / 2 ? 1 : 0;
      }
  }
  d.contract.empty_row = d.dice.Pick({EmptyRow::kZero, EmptyRow::kNan});
  const double large = d.format().largest_finite();
  for (const char* name : {"k", "v"}) {
    Tensor& tensor = d.problem.tensors.at(name);
    const Index width = tensor.shape().back();
    for (Index i = 0; i < tensor.size(); ++i) {
      if (!is_junk(i / width) || d.dice.Chance(0.5)) continue;
      tensor.Set(i, d.dice.Pick({kNaN, kInfinity, -kInfinity, large, -large}));
    }
  }
}

// NaN and infinities where they count: a few elements of q, k, v, bias.
void NonFinite(Draft& d) {
  SetSizes(d);
  d.FillQkv();
  if (d.dice.Chance(0.4)) d.AddBias();
  if (d.dice.Chance(0.3)) d.AddMask(0.8);
  if (d.dice.Chance(0.3)) d.contract.causal = Causal::kBottomRight;
  if (d.dice.Chance(0.2)) d.AddSoftcap();
  if (d.dice.Chance(0.2)) d.AddSinks();
  const char* const where = d.dice.Pick({"q", "k", "v", "v", "bias"});
  if (d.problem.Find(where) == nullptr) return;
  Tensor& tensor = d.problem.tensors.at(where);
  for (Index count = d.dice.Between(1, 3); count > 0 && tensor.size() > 0; --count) {
    tensor.Set(d.dice.Between(0, tensor.size() - 1), d.dice.Pick({kNaN, kInfinity, -kInfinity}));
  }
}

// Gradients over blocks of queries and keys, plain or with everything that reaches them.
void Gradients(Draft& d, ScoreKind score, double chance) {
  const bool dot = score == ScoreKind::kDot;
  d.shape.batch = dot ? d.dice.Between(1, 2) : 1;
  d.shape.kv_heads = d.dice.Between(1, 2);
  d.shape.q_heads = d.shape.kv_heads * d.dice.Between(1, 3);
  d.shape.q_len = dot ? d.dice.Pick<Index>({1, 2, 5, 15, 16, 17, 33}) : d.dice.Between(1, 6);
  d.shape.kv_len = dot ? d.dice.Pick<Index>({1, 3, 16, 17, 63, 64, 65, 100, 192, 193})
                       : d.dice.Pick<Index>({1, 5, 17, 33});
  d.shape.qk_dim = d.shape.k_dim = d.dice.Pick<Index>({1, 3, 4, 6, 7, 8, 16, 17});
  d.shape.v_dim = d.dice.Pick<Index>({1, 3, 5, 6, 8, 13, 16, 20});
  d.contract.score = score;
  if (!dot) {
    d.contract.scale = {false, d.dice.Pick({1.0, 0.3, -2.0})};
    d.shape.k_dim = d.dice.Between(1, 9);
  }
  d.FillQkv();
  if (score == ScoreKind::kGeneral) d.FillNormal("w", {d.shape.qk_dim, d.shape.k_dim}, 0.5);
  if (score == ScoreKind::kAdditive) {
    const Index units = d.dice.Between(1, 6);
    d.FillNormal("w_q", {units, d.shape.qk_dim}, 0.5);
    d.FillNormal("w_k", {units, d.shape.k_dim}, 0.5);
    d.FillNormal("v_a", {units});
    if (d.dice.Chance(0.5)) d.FillNormal("b", {units});
  }
  d.AddSome(chance);
  d.AskForGradients();
}

void BlockGradients(Draft& d) { Gradients(d, ScoreKind::kDot, 0.0); }
void BlockGradientsOfRules(Draft& d) { Gradients(d, ScoreKind::kDot, 0.3); }
void BlockGradientsGeneral(Draft& d) { Gradients(d, ScoreKind::kGeneral, 0.2); }
void BlockGradientsAdditive(Draft& d) { Gradients(d, ScoreKind::kAdditive, 0.2); }

}  // namespace

const std::vector<Family>& ValueFamilies() {
  static const std::vector<Family> families{
      {"rising_scores", RisingScores},
      {"vanishing_weights", VanishingWeights},
      {"outliers", Outliers},
      {"scales", Scales},
      {"tied_scores", TiedScores},
      {"one_hot_keys", OneHotKeys},
      {"capped_scores", CappedScores},
      {"far_biases", FarBiases},
      {"alibi_slopes", AlibiSlopes},
      {"extreme_sinks", ExtremeSinks},
      {"local_and_dropped", LocalAndDropped},
      {"near_overflow_16", NearOverflow16},
      {"forbidden_junk", ForbiddenJunk},
      {"non_finite", NonFinite},
  };
  return families;
}

const std::vector<Family>& KernelGradientFamilies() {
  static const std::vector<Family> families{
      {"block_gradients", BlockGradients},
      {"block_gradients_of_rules", BlockGradientsOfRules},
      {"block_gradients_general", BlockGradientsGeneral},
      {"block_gradients_additive", BlockGradientsAdditive},
  };
  return families;
}

}  // namespace attest
