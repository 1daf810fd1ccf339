// SPDX-License-Identifier: Apache-2.0
// Families of forward cases: each aims at one way in which a certified value could go wrong.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "properties/case_families/families.h"

namespace attest {
namespace {

void Gaussian(Draft& d) { d.FillQkv(); }

// Scores up to 1e12: they have few correct digits in doubles, and one key has all the weight.
void HugeLogits(Draft& d) {
  d.FillQkv(std::ldexp(1.0, static_cast<int>(d.dice.Between(0, 20))),
            std::ldexp(1.0, static_cast<int>(d.dice.Between(0, 20))));
}

// All keys alike: every weight is 1/n, every output the mean of v.
void EqualKeys(Draft& d) {
  d.FillQkv();
  std::vector<double> key(static_cast<std::size_t>(d.shape.k_dim));
  for (double& x : key) x = d.dice.Normal();
  d.Change("k", [&](double, Index c) { return key[static_cast<std::size_t>(c)]; });
  if (d.dice.Chance(0.5))
    d.FillV([&] { return 0.125 * static_cast<double>(d.dice.Between(-8, 8)); });
}

// Values one ulp apart under nearly equal weights: every output is next to a midpoint.
void NearMidpoints(Draft& d) {
  if (!d.is_long && d.dice.Chance(0.5)) d.shape.kv_len = 2;
  d.FillQkv(1.0, std::ldexp(1.0, -static_cast<int>(d.dice.Between(0, 40))));
  Index drawn = 0;
  const Index columns = d.shape.v_dim;
  d.FillV([&] { return d.AboveOne((drawn++ / columns) % 2); });
}

// Pairs of equal keys whose values average to a midpoint; up to three groups of keys.
void MidpointGroups(Draft& d) {
  d.shape.kv_len += d.shape.kv_len % 2;
  d.FillQkv();
  const Index groups = d.dice.Between(1, 3);
  const Index width = d.shape.k_dim;
  Tensor& k = d.problem.tensors.at("k");
  for (Index j = 0; j < d.shape.kv_len; ++j) {
    const Index source = std::min(j / 2 % groups * 2, d.shape.kv_len - 1);
    for (Index c = 0; c < width; ++c) k.Set(j * width + c, k.At(source * width + c));
  }
  Index drawn = 0;
  const Index columns = d.shape.v_dim;
  const bool far_pairs = d.dice.Chance(0.3);  // the pair lies around the midpoint, not next to it
  d.FillV([&] {
    const Index row = drawn / columns;
    const Index ulps = drawn++ % columns % 9;
    const Index away = far_pairs ? 3 : 0;
    return d.AboveOne(row % 2 == 0 ? ulps - away : ulps + 1 + away);
  });
}

void SubnormalValues(Draft& d) {
  d.FillQkv();
  d.FillV([&] {
    return static_cast<double>(d.dice.Between(-50, 50)) * d.format().smallest_subnormal();
  });
}

// q of subnormal numbers; k large, so that scores are of size 1, or small, so that they vanish.
void SubnormalQueries(Draft& d) {
  const bool large = d.dice.Chance(0.5);
  d.FillQkv(1.0,
            large ? d.format().largest_finite() / 16.0 : d.format().smallest_subnormal() * 64.0);
  d.Change("q", [&](double, Index) {
    return static_cast<double>(d.dice.Between(-500, 500)) * d.format().smallest_subnormal();
  });
  if (d.dice.Chance(0.3)) d.contract.scale = {false, 0x1p20};
}

void ScaleZero(Draft& d) {
  d.FillQkv();
  d.contract.scale = {false, 0.0};
}

// Exponents over most of the type's range, element by element.
void WideExponents(Draft& d) {
  d.FillQkv();
  const int lowest = std::max(-140, d.format().min_exponent - 14);
  const int highest = std::min(100, d.format().max_exponent - 2);
  const auto spread = [&](int from, int to) {
    return [&d, from, to](double x, Index) {
      return std::ldexp(x, static_cast<int>(d.dice.Between(from, to)));
    };
  };
  d.Change("q", spread(std::max(-60, lowest), 10));
  d.Change("k", spread(std::max(-60, lowest), 10));
  d.Change("v", spread(lowest, highest));
}

void OneHotLogits(Draft& d) { d.FillQkv(30.0, 30.0); }

// Values in pairs that cancel, exactly or up to one ulp, under equal or nearly equal weights.
void Cancellation(Draft& d) {
  d.shape.kv_len += d.shape.kv_len % 2;
  d.FillQkv();
  const double factor = d.dice.Chance(0.5) ? 1.0 : d.AboveOne(1);
  Tensor& v = d.problem.tensors.at("v");
  for (Index j = 0; j < d.shape.kv_len; j += 2) {
    for (Index c = 0; c < d.shape.v_dim; ++c) {
      const Index at = j * d.shape.v_dim + c;
      v.Set(at + d.shape.v_dim, -factor * v.At(at));
    }
  }
  if (d.dice.Chance(0.6)) {
    d.contract.scale = {false, d.dice.Chance(0.5) ? 0.0 : 0x1p-40};
  }
}

void BooleanMask(Draft& d) {
  d.FillQkv();
  d.AddMask(d.dice.Pick({0.05, 0.3, 0.6, 0.9}));
}

void CausalAndWindow(Draft& d) {
  d.FillQkv();
  d.AddCausalOrWindow();
}

void LengthsAndDocuments(Draft& d) {
  d.shape.batch = d.is_long ? 1 : d.dice.Between(1, 3);
  d.FillQkv();
  d.AddLengths();
  if (d.dice.Chance(0.6)) d.AddDocuments();
  if (d.dice.Chance(0.5)) d.AddCausalOrWindow();
}

// One key: out is v, the weight 1 and the LSE the score, which is often a midpoint itself.
void SingleKey(Draft& d) {
  d.shape.kv_len = 1;
  d.FillQkv();
  if (d.dice.Chance(0.5)) return;
  d.contract.scale = {false, 1.0};
  const double half_ulp = std::ldexp(1.0, -FormatOf(d.contract.wide_dtype()).precision);
  d.Change("q", [&](double, Index c) {
    return c == 0 ? 1.0 : c == 1 ? half_ulp * static_cast<double>(d.dice.Between(0, 7)) : 0.0;
  });
  d.Change("k", [](double, Index) { return 1.0; });
}

// Two keys whose scores differ by down to 2^-120, with values one ulp apart.
void ScoreGaps(Draft& d) {
  d.shape.kv_len = 2;
  d.FillQkv(std::ldexp(1.0, -static_cast<int>(d.dice.Between(0, 60))),
            std::ldexp(1.0, -static_cast<int>(d.dice.Between(0, 60))));
  const Index columns = d.shape.v_dim;
  Index drawn = 0;
  d.FillV([&] {
    const Index row = drawn / columns;
    return d.AboveOne(row + drawn++ % columns % 5);
  });
}

void NearOverflow(Draft& d) {
  d.FillQkv();
  const double largest = d.format().largest_finite();
  d.FillV([&] {
    if (d.dice.Chance(0.3)) return d.dice.Chance(0.5) ? largest : -largest;
    return 0.1 * largest * d.dice.Normal();
  });
}

// Wider inputs than outputs: an output rounded twice goes wrong.
void NarrowOutput(Draft& d) {
  d.contract.dtype = d.dice.Pick({DType::kF32, DType::kF64});
  d.contract.out_dtype = d.contract.dtype == DType::kF64
                             ? d.dice.Pick({DType::kF32, DType::kBF16, DType::kF16})
                             : d.dice.Pick({DType::kBF16, DType::kF16});
  d.contract.arithmetic.profile = DefaultProfile(d.contract.dtype);
  d.FillQkv(1.0, d.dice.Pick({1.0, 0x1p-8, 0x1p-16}));
  if (d.dice.Chance(0.5)) {
    const double half_ulp = std::ldexp(1.0, -FormatOf(d.contract.out_dtype).precision);
    d.FillV([&] { return 1.0 + half_ulp * static_cast<double>(d.dice.Between(0, 4)); });
  }
}

void BiasAndAlibi(Draft& d) {
  d.shape.q_heads = d.shape.kv_heads = d.is_long ? 1 : d.dice.Pick<Index>({1, 2, 3});
  d.FillQkv();
  if (d.dice.Chance(0.7)) d.AddBias();
  if (d.dice.Chance(0.7)) d.AddAlibi();
}

void Sinks(Draft& d) {
  d.FillQkv();
  d.AddSinks();
  if (d.dice.Chance(0.3)) d.AddMask(0.3);
}

void SoftCap(Draft& d) {
  d.FillQkv(4.0);
  d.AddSoftcap();
}

void DropoutAndLocal(Draft& d) {
  d.FillQkv();
  if (d.dice.Chance(0.7)) d.AddDropout();
  if (d.dice.Chance(0.7)) d.AddLocal();
}

void GroupedHeads(Draft& d) {
  const Index groups = d.dice.Between(1, 2);
  d.shape.kv_heads = groups;
  d.shape.q_heads = groups * d.dice.Between(2, 3);
  d.shape.q_len = std::min<Index>(d.shape.q_len, 3);
  d.FillQkv();
  if (d.dice.Chance(0.3)) d.AddCausalOrWindow();
}

void General(Draft& d) {
  d.contract.score = ScoreKind::kGeneral;
  d.contract.scale = {false, d.dice.Pick({1.0, 1.0, 0.3, -2.0})};
  d.shape.k_dim = d.dice.Pick<Index>({1, 2, 3, 8, 16});
  d.FillQkv();
  d.FillNormal("w", {d.shape.qk_dim, d.shape.k_dim}, 0.5);
}

void Additive(Draft& d) {
  d.contract.score = ScoreKind::kAdditive;
  d.contract.scale = {false, d.dice.Pick({1.0, 1.0, 0.3, -2.0})};
  d.shape.k_dim = d.dice.Pick<Index>({1, 2, 3, 8, 16});
  d.shape.q_len = std::min<Index>(d.shape.q_len, 3);
  d.FillQkv();
  const Index units = d.is_long ? 1 : d.dice.Between(1, 4);
  d.FillNormal("w_q", {units, d.shape.qk_dim}, 0.5);
  d.FillNormal("w_k", {units, d.shape.k_dim}, 0.5);
  d.FillNormal("v_a", {units});
  if (d.dice.Chance(0.5)) d.FillNormal("b", {units});
}

// Some rows of one head of recorded activations.
void Activations(Draft& d) {
  static const std::vector<Case> files = [] {
    std::vector<Case> read;
    for (const char* name : {"batch_L0", "batch_L1", "long_L0", "long_L1"}) {
      StatusOr<Case> file =
          ReadCase(std::string(ATTEST_SOURCE_DIR "/cases/use_lite/") + name + ".safetensors");
      if (file.ok()) read.push_back(*std::move(file));
    }
    return read;
  }();
  if (files.size() != 4) return;  // q, k and v are missing then, which FinishCase reports
  const Case& file = files[static_cast<std::size_t>(d.dice.Between(0, 3))];
  d.contract = file.contract;
  const Dimensions from = file.contract.shape;
  const Index b = d.dice.Between(0, from.batch - 1);
  const Index h = d.dice.Between(0, from.q_heads - 1);
  d.shape.batch = d.shape.q_heads = d.shape.kv_heads = 1;
  d.shape.q_len = d.dice.Between(1, 4);
  d.contract.outputs = {"out", "lse"};
  if (d.dice.Chance(0.2)) d.contract.outputs.emplace_back("weights");
  const auto copy = [&](const char* name, Index first, const Shape& shape) {
    Index at = first;
    d.Fill(name, shape, DType::kF32, [&] { return file.Find(name)->At(at++); });
  };
  const Index head = b * from.q_heads + h;
  const Index row = d.dice.Between(0, from.q_len - d.shape.q_len);
  copy("q", (head * from.q_len + row) * from.qk_dim, {1, 1, d.shape.q_len, from.qk_dim});
  copy("k", head * from.kv_len * from.k_dim, {1, 1, from.kv_len, from.k_dim});
  copy("v", head * from.kv_len * from.v_dim, {1, 1, from.kv_len, from.v_dim});
  copy("bias", b * from.kv_len, {1, 1, 1, from.kv_len});
}

}  // namespace

const std::vector<Family>& ForwardFamilies() {
  static const std::vector<Family> families{
      {"gaussian", Gaussian, 5},
      {"huge_logits", HugeLogits, 6},
      {"equal_keys", EqualKeys, 6},
      {"near_midpoints", NearMidpoints, 6},
      {"midpoint_groups", MidpointGroups, 6},
      {"subnormal_values", SubnormalValues, 6},
      {"subnormal_queries", SubnormalQueries, 6},
      {"scale_zero", ScaleZero, 6},
      {"wide_exponents", WideExponents, 6},
      {"one_hot_logits", OneHotLogits, 6},
      {"cancellation", Cancellation, 6},
      {"boolean_mask", BooleanMask, 6},
      {"causal_and_window", CausalAndWindow, 6},
      {"lengths_and_documents", LengthsAndDocuments, 6},
      {"single_key", SingleKey},
      {"score_gaps", ScoreGaps},
      {"near_overflow", NearOverflow, 6},
      {"narrow_output", NarrowOutput, 6},
      {"activations", Activations},
      {"bias_and_alibi", BiasAndAlibi, 6},
      {"sinks", Sinks, 6},
      {"soft_cap", SoftCap, 6},
      {"dropout_and_local", DropoutAndLocal, 6},
      {"grouped_heads", GroupedHeads},
      {"general", General, 6},
      {"additive", Additive, 10},
  };
  return families;
}

}  // namespace attest
