// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "properties/faults/unit_case.h"

namespace attest {
namespace {

std::vector<SmallestInput> DropoutInputs() {
  std::vector<SmallestInput> list;
  Case kept = UnitCase({0}, {1});
  kept.contract.dropout_rate = 0.25;
  SetTensor("keep", DType::kBool, {1, 1, 1, 1}, {1}, &kept);
  SetGradient({1}, "grad_v", &kept);
  list.push_back(Exposing("dropout-backward-factor", kept, {4.0 / 3.0}, "grad_v"));
  Case inference = UnitCase(std::vector<double>(8, 0.0), std::vector<double>(8, 1.0));
  inference.contract.dropout_rate = 0.5;
  list.push_back(Exposing("dropout-in-inference", inference, {1}));
  list.back().calls = 2;
  return list;
}

// Scores 0; the gradient of `gradient`.
Case Backward(const std::vector<double>& values, const std::vector<double>& grad_out,
              const std::string& gradient) {
  Case problem = UnitCase(std::vector<double>(values.size(), 0.0), values,
                          static_cast<Index>(grad_out.size()));
  SetGradient(grad_out, gradient, &problem);
  return problem;
}

std::vector<SmallestInput> GradientInputs() {
  std::vector<SmallestInput> list;
  list.push_back(Exposing("backward-ignores-causal-flag", Backward({0, 4}, {1, 1}, "grad_v"),
                          {1, 1}, "grad_v"));
  Case shared = UnitCase({0}, {1});
  shared.contract.shape.q_heads = 2;
  SetTensor("q", DType::kF32, {1, 2, 1, 1}, {1, 1}, &shared);
  SetGradient({1, 2}, "grad_v", &shared);
  list.push_back(Exposing("grouped-gradient-not-summed", shared, {3}, "grad_v"));

  Case bias = Backward({0, 4}, {1, 1}, "grad_bias");
  SetTensor("bias", DType::kF32, {1, 1, 1, 2}, {0, 0}, &bias);
  list.push_back(Exposing("bias-gradient-last-writer", bias, {-2, 2}, "grad_bias"));
  list.push_back(Exposing("bias-gradient-zero", bias, {-2, 2}, "grad_bias"));
  Case bias_only = Backward({0, 4}, {1}, "grad_bias");
  SetTensor("bias", DType::kF32, {1, 1, 1, 2}, {0, 0}, &bias_only);
  list.push_back(Exposing("bias-only-gradient", bias_only, {-1, 1}, "grad_bias"));

  Case empty = Backward({0, 4}, {1, 0}, "grad_v");
  SetMask({1, 1, 0, 0}, &empty);
  list.push_back(Exposing("empty-row-nan-gradient", empty, {0.5, 0.5}, "grad_v"));
  empty.contract.outputs = {"grad_k"};
  list.push_back(Exposing("empty-row-nan-gradient", empty, {-1, 1}, "grad_k"));
  list.push_back(Exposing("split-backward-partial-statistics", Backward({0, 4}, {1}, "grad_v"),
                          {0.5, 0.5}, "grad_v"));
  list.push_back(Exposing("softmax-backward-without-row-term", Backward({1, 1}, {1}, "grad_k"),
                          {0, 0}, "grad_k"));
  Case wide = Backward({0, 0}, {1}, "grad_k");
  wide.contract.shape.v_dim = 2;
  SetTensor("v", DType::kF32, {1, 1, 2, 2}, {0, 0, 0, 4}, &wide);
  SetGradient({0, 1}, "grad_k", &wide);
  list.push_back(Exposing("dp-contracts-key-width", wide, {-1, 1}, "grad_k"));

  // Equal scores and values: every gradient by a score is 0, exactly.
  const std::size_t many = 4096;
  list.push_back(Exposing("unsynchronised-row-sum",
                          Backward(std::vector<double>(many, 1.0), {1}, "grad_k"),
                          std::vector<double>(many, 0.0), "grad_k"));
  list.back().calls = 50;
  return list;
}

std::vector<SmallestInput> EncoderDecoderInputs() {
  std::vector<SmallestInput> list;
  Case heads = UnitCase({0, 0}, {0, 4});
  heads.contract.shape.q_heads = heads.contract.shape.kv_heads = 2;
  SetTensor("q", DType::kF32, {1, 2, 1, 1}, {1, 1}, &heads);
  SetTensor("k", DType::kF32, {1, 2, 2, 1}, {0, kLn3, 0, 0}, &heads);
  SetTensor("v", DType::kF32, {1, 2, 2, 1}, {0, 4, 0, 4}, &heads);
  heads.contract.outputs = {"out", "weights"};
  list.push_back(Exposing("weights-averaged-over-heads", heads, {0.25, 0.75, 0.5, 0.5}, "weights"));

  Case additive = UnitCase({0, 0}, {4, 0});
  additive.contract.score = ScoreKind::kAdditive;
  SetTensor("q", DType::kF32, {1, 1, 1, 1}, {0}, &additive);
  for (const char* name : {"w_q", "w_k"}) SetTensor(name, DType::kF32, {1, 1}, {1}, &additive);
  SetTensor("v_a", DType::kF32, {1}, {1}, &additive);
  SetTensor("kv_lengths", DType::kI32, {1}, {1}, &additive);
  list.push_back(Exposing("additive-pads-attended", additive, {4}));

  Case columns = UnitCase({0, kLn3}, {0, 4}, 2);
  SetTensor("q", DType::kF32, {1, 1, 2, 1}, {1, 0}, &columns);
  list.push_back(Exposing("softmax-over-queries", columns, {3, 2}));
  list.push_back(Exposing("softmax-over-singleton", UnitCase({0, kLn3}, {0, 4}), {3}));
  return list;
}

}  // namespace

std::vector<SmallestInput> SmallestBackwardInputs() {
  std::vector<SmallestInput> all = DropoutInputs();
  for (const auto& part : {GradientInputs(), EncoderDecoderInputs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<SmallestInput> SmallestElementaryInputs() {
  std::vector<SmallestInput> list;
  Case scaled = FourChannels({0, kLn3}, {0, 4});
  SetGradient({1}, "grad_q", &scaled);
  list.push_back(Exposing("grad-q-without-scale", scaled, {0.375 * kLn3, 0, 0, 0}, "grad_q"));
  list.push_back(Exposing("accumulator-not-rescaled", UnitCase({0, kLn3}, {4, 0}), {1}));
  list.push_back(Exposing("lse-without-maximum", UnitCase({0, kLn3}, {0, 4}), {2 * kLn2}, "lse"));
  list.push_back(Exposing("values-in-reverse-order", UnitCase({0, kLn3}, {0, 4}), {3}));
  list.push_back(Exposing("last-key-dropped", UnitCase({0, 0}, {0, 4}), {2}));
  list.push_back(Exposing("key-counted-twice", UnitCase({0, 0}, {0, 4}), {2}));
  Case heads = UnitCase({0}, {0});
  heads.contract.shape.q_heads = heads.contract.shape.kv_heads = 2;
  SetTensor("q", DType::kF32, {1, 2, 1, 1}, {1, 1}, &heads);
  SetTensor("k", DType::kF32, {1, 2, 1, 1}, {0, 0}, &heads);
  SetTensor("v", DType::kF32, {1, 2, 1, 1}, {0, 4}, &heads);
  list.push_back(Exposing("head-output-shifted", heads, {0, 4}));
  list.push_back(Exposing("scale-off-by-one-percent", UnitCase({0, kLn3}, {0, 4}), {3}));
  list.push_back(Exposing("weights-off-by-one-thousandth", UnitCase({0}, {1}), {1}));
  list.push_back(Exposing("exponential-of-twelve-bits", UnitCase({0, -0.5}, {0, 1}),
                          {1.0 / (1.0 + std::exp(0.5))}));
  const std::vector<double> four(4, 0.0);
  list.push_back(Exposing("accumulation-in-bf16", UnitCase(four, {1000, 1, 1, 2}), {251}));
  list.push_back(Exposing("accumulation-in-f16", UnitCase(four, {8000, 1, 1, 2}), {2001}));
  list.push_back(Exposing("denominator-in-bf16",
                          UnitCase(std::vector<double>(300, 0.0), std::vector<double>(300, 1.0)),
                          {1}));
  list.push_back(Exposing("stale-output", UnitCase({0}, {4}), {4}));
  list.back().calls = 2;
  return list;
}

}  // namespace attest
