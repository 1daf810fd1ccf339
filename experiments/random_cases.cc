// SPDX-License-Identifier: Apache-2.0
#include "experiments/random_cases.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "audit/case_spec.h"
#include "core/random.h"

namespace attest {
namespace {

struct Feature {
  std::string name;
  bool usual = false;  // see RandomCases
  CaseSpec spec;
};

std::vector<Feature> Features(bool large) {
  const Index n = large ? 64 : 32;
  const Index m = large ? 48 : 20;
  const Index d = large ? 32 : 12;
  const Dimensions square{2, 4, 4, n, n, d, d, d};
  const Dimensions cross{2, 4, 2, m,
                         n, d, d, d / 2};         // grouped heads, a width of values of its own
  const Dimensions tall{2, 4, 2, n, m, d, d, d};  // more queries than keys
  const Dimensions decode{2, 4, 2, 1, n, d, d, d};
  const Index window = n / 5;
  return {
      {"self", true, {.shape = square}},
      {"grouped", true, {.shape = cross}},
      {"decode", true, {.shape = decode}},
      {"odd lengths", false, {.shape = {1, 4, 2, m + 1, n + 1, d, d, d}}},
      {"scale 1/2", false, {.shape = cross, .scale = {false, 0.5}}},
      {"causal", true, {.shape = square, .causal = Causal::kTopLeft}},
      {"causal cross", false, {.shape = cross, .causal = Causal::kTopLeft}},
      {"causal bottom-right", true, {.shape = cross, .causal = Causal::kBottomRight}},
      {"causal tall", false, {.shape = tall, .causal = Causal::kBottomRight}},
      {"mask", true, {.shape = cross, .mask = true}},
      {"padding mask",
       false,
       {.shape = square,
        .mask_pattern = MaskPattern::kRandom,
        .mask_broadcast = {false, true, true, false}}},
      {"mask and causal", false, {.shape = square, .causal = Causal::kTopLeft, .mask = true}},
      {"mask and bias", false, {.shape = cross, .mask = true, .bias = true}},
      {"bias", true, {.shape = cross, .bias = true}},
      {"lengths", true, {.shape = cross, .kv_lengths = true}},
      {"both lengths", false, {.shape = square, .kv_lengths = true, .q_lengths = true}},
      {"window", false, {.shape = square, .window = {window, window / 2}}},
      {"causal window",
       true,
       {.shape = cross, .causal = Causal::kBottomRight, .window = {window, 0}}},
      {"documents", false, {.shape = square, .documents = Documents::kBlocks}},
      {"soft cap", true, {.shape = cross, .softcap = 4.0}},
      {"soft cap and mask", false, {.shape = cross, .mask = true, .softcap = 4.0}},
      {"ALiBi", true, {.shape = square, .causal = Causal::kTopLeft, .alibi = Alibi::kDefault}},
      {"ALiBi decode", false, {.shape = decode, .alibi = Alibi::kDefault}},
      {"sinks", true, {.shape = cross, .sinks = true}},
      {"dropout", false, {.shape = cross, .dropout_rate = 0.1}},
      {"additive", false, {.shape = cross, .kv_lengths = true, .score = ScoreKind::kAdditive}},
      {"general", false, {.shape = cross, .score = ScoreKind::kGeneral}},
      {"gradients", true, {.shape = cross, .gradients = true}},
      {"causal gradients",
       false,
       {.shape = cross, .causal = Causal::kBottomRight, .gradients = true}},
      {"bias gradients", false, {.shape = cross, .broadcast_bias = true, .gradients = true}},
      {"dropout gradients", false, {.shape = cross, .dropout_rate = 0.1, .gradients = true}},
  };
}

// q, k and v drawn anew from U(-1, 1).
void MakeUniform(std::uint64_t seed, Case* problem) {
  for (const char* const name : {"q", "k", "v"}) {
    Tensor& tensor = problem->tensors.at(name);
    const RandomStream stream(seed, problem->name, name);
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.Set(i, 2.0 * stream.Uniform(static_cast<std::uint64_t>(i)) - 1.0);
    }
  }
}

}  // namespace

std::vector<Case> RandomCases(bool large, std::uint64_t seed) {
  std::vector<Case> cases;
  for (const Feature& feature : Features(large)) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (dtype != DType::kF32 && !feature.usual) continue;
      for (const bool uniform : {false, true}) {
        if (uniform && !large && (dtype != DType::kF32 || !feature.usual)) continue;
        CaseSpec spec = feature.spec;
        spec.dtype = dtype;
        Case problem = MakeCase(spec, seed);
        problem.name =
            fmt::format("{} {} {}", feature.name, NameOf(dtype), uniform ? "U(-1, 1)" : "N(0, 1)");
        if (uniform) MakeUniform(seed, &problem);
        cases.push_back(std::move(problem));
      }
    }
  }
  return cases;
}

}  // namespace attest
