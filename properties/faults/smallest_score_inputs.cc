// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "properties/faults/unit_case.h"

namespace attest {
namespace {

std::vector<SmallestInput> ScaleInputs() {
  std::vector<SmallestInput> list;
  for (const char* fault : {"scale-missing", "scale-inverted", "scale-on-probabilities"}) {
    list.push_back(Exposing(fault, FourChannels({0, kLn3}, {0, 4}), {3}));
  }
  Case heads = UnitCase({0, kLn9}, {0, 10});
  heads.contract.scale = Scale{};
  list.push_back(Exposing("scale-from-padded-dim", heads, {9}));
  heads.contract.shape.q_heads = heads.contract.shape.kv_heads = 4;
  SetTensor("q", DType::kF32, {1, 4, 1, 1}, {1, 1, 1, 1}, &heads);
  SetTensor("k", DType::kF32, {1, 4, 2, 1}, {0, kLn9, 0, kLn9, 0, kLn9, 0, kLn9}, &heads);
  SetTensor("v", DType::kF32, {1, 4, 2, 1}, {0, 10, 0, 10, 0, 10, 0, 10}, &heads);
  list.push_back(Exposing("scale-full-model-dim", heads, {9, 9, 9, 9}));
  Case biased = FourChannels({0, 0}, {0, 10});
  SetTensor("bias", DType::kF32, {1, 1, 1, 2}, {0, kLn9}, &biased);
  list.push_back(Exposing("bias-scaled-with-scores", biased, {9}));
  SetMask({1, 1}, &biased);
  list.push_back(Exposing("bias-scaled-with-scores", biased, {9}));
  return list;
}

// 1 / (1 + exp(-x)): the weight of the second of two keys whose scores differ by x.
double Logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

std::vector<SmallestInput> SoftcapInputs() {
  std::vector<SmallestInput> list;
  Case masked = UnitCase({0, 0}, {0, 1});
  SetMask({1, 0}, &masked);
  masked.contract.softcap = 1.0;
  list.push_back(Exposing("softcap-after-mask", masked, {0}));
  Case large = UnitCase({0, 10}, {0, 1});
  large.contract.softcap = 1.0;
  list.push_back(Exposing("softcap-wrong-factor", large, {Logistic(std::tanh(10.0))}));
  Case larger = UnitCase({0, 100}, {0, 1});
  larger.contract.softcap = 1.0;
  list.push_back(Exposing("tanh-by-exponentials", larger, {Logistic(1.0)}));
  Case scaled = FourChannels({0, 1}, {0, 1});
  scaled.contract.softcap = 1.0;
  list.push_back(Exposing("softcap-before-scale", scaled, {Logistic(std::tanh(1.0))}));
  return list;
}

std::vector<SmallestInput> AlibiInputs() {
  std::vector<SmallestInput> list;
  Case sign = UnitCase({0, 0}, {4, 0}, 2);
  sign.contract.causal = Causal::kTopLeft;
  SetTensor("alibi_slopes", DType::kF32, {1}, {kLn3}, &sign);
  list.push_back(Exposing("alibi-sign", sign, {4, 1}));
  Case decode = UnitCase({0, 0}, {4, 0});
  SetTensor("alibi_slopes", DType::kF32, {1}, {kLn3}, &decode);
  list.push_back(Exposing("alibi-lost-in-decode", decode, {1}));
  list.push_back(Exposing("zero-slope-times-nan", UnitCase({0, 0}, {0, 4}), {2}));

  Case slopes = UnitCase({0, 0}, {1, 0});
  slopes.contract.shape.q_heads = 8;
  slopes.contract.causal = Causal::kBottomRight;
  slopes.contract.alibi = Alibi::kDefault;
  SetTensor("q", DType::kF32, {1, 8, 1, 1}, std::vector<double>(8, 1.0), &slopes);
  std::vector<double> right;
  for (int h = 0; h < 8; ++h) right.push_back(Logistic(-std::ldexp(1.0, -h - 1)));
  list.push_back(Exposing("alibi-slope-exponent", slopes, right));
  return list;
}

// One key, whose value is the number of its key/value head times `step`.
Case Grouped(Index q_heads, Index kv_heads, double step) {
  Case problem = UnitCase({0}, {0});
  problem.contract.shape.q_heads = q_heads;
  problem.contract.shape.kv_heads = kv_heads;
  const auto heads = static_cast<std::size_t>(kv_heads);
  SetTensor("q", DType::kF32, {1, q_heads, 1, 1},
            std::vector<double>(static_cast<std::size_t>(q_heads), 1.0), &problem);
  SetTensor("k", DType::kF32, {1, kv_heads, 1, 1}, std::vector<double>(heads, 0.0), &problem);
  std::vector<double> values;
  for (std::size_t g = 0; g < heads; ++g) values.push_back(step * static_cast<double>(g));
  SetTensor("v", DType::kF32, {1, kv_heads, 1, 1}, values, &problem);
  return problem;
}

}  // namespace

std::vector<SmallestInput> SmallestScoreInputs() {
  std::vector<SmallestInput> all = ScaleInputs();
  for (const auto& part : {SoftcapInputs(), AlibiInputs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  all.push_back(Exposing("gqa-tiled-heads", Grouped(4, 2, 4.0), {0, 0, 4, 4}));
  all.push_back(Exposing("gqa-wrong-divisor", Grouped(6, 3, 1.0), {0, 0, 1, 1, 2, 2}));
  return all;
}

}  // namespace attest
