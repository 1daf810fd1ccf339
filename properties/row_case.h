// SPDX-License-Identifier: Apache-2.0
// Cases (core/case.h) run by the row kernels: arguments, outputs and threads.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "core/case.h"
#include "optimized/row_kernels.h"
#include "reference/row_plan.h"

namespace attest {

// A kernel under test. `algorithm` is kDecode or one of the materialised ones.
struct RowKernel {
  AttentionAlgorithm algorithm = AttentionAlgorithm::kDecode;
  Mode mode = Mode::kFast;
  int threads = 1;
  Index parts = 0;
};

inline std::array<Index, 4> ScoreShape(const Dimensions& s) {
  return {s.batch, s.q_heads, s.q_len, s.kv_len};
}

// The arguments that a case stands for; they refer to its tensors, and to `slopes` for ALiBi's
// default ones.
inline AttentionArgs ArgsOf(const Case& problem, Tensor* slopes) {
  const Contract& contract = problem.contract;
  const Dimensions& shape = contract.shape;
  AttentionArgs args;
  args.q = InputOf<4>(*problem.Find("q"));
  args.k = InputOf<4>(*problem.Find("k"));
  args.v = InputOf<4>(*problem.Find("v"));
  args.score = contract.score;
  if (!contract.scale.rsqrt_dk) args.scale = contract.scale.value;
  args.softcap = contract.softcap;
  const auto read = [&]<std::size_t Rank>(const char* name, std::optional<Input<Rank>>& to) {
    if (const Tensor* tensor = problem.Find(name)) to = InputOf<Rank>(*tensor);
  };
  read("w", args.w);
  read("w_q", args.w_q);
  read("w_k", args.w_k);
  read("b", args.b);
  read("v_a", args.v_a);
  read("mask", args.mask);
  read("bias", args.bias);
  read("keep", args.keep);
  for (std::optional<Input<4>>* tensor : {&args.mask, &args.bias, &args.keep}) {
    if (*tensor) *tensor = BroadcastTo(**tensor, ScoreShape(shape));
  }
  read("sinks", args.sinks);
  read("kv_lengths", args.kv_lengths);
  read("q_lengths", args.q_lengths);
  read("q_documents", args.q_documents);
  read("kv_documents", args.kv_documents);
  read("local_center", args.local_center);
  args.local = contract.local;
  args.dropout_rate = contract.dropout_rate;
  args.causal = contract.causal;
  args.window = contract.window;
  args.empty_row = contract.empty_row;
  if (contract.alibi != Alibi::kNone) read("alibi_slopes", args.alibi_slopes);
  if (contract.alibi == Alibi::kDefault && !args.alibi_slopes) {
    *slopes = Tensor(contract.wide_dtype(), {shape.q_heads});
    for (Index h = 0; h < shape.q_heads; ++h) {
      slopes->Set(h, std::exp2(DefaultAlibiExponent(h, shape.q_heads)));
    }
    args.alibi_slopes = InputOf<1>(*slopes);
  }
  return args;
}

inline Status Forward(const RowKernel& kernel, const AttentionArgs& args,
                      const AttentionOutputs& outputs) {
  Execution execution(kernel.threads);
  const auto run = [&](auto policy) {
    if (kernel.algorithm == AttentionAlgorithm::kTiled) {
      return AttentionForward(policy, kernel.algorithm, args, outputs, execution);
    }
    return kernel.algorithm == AttentionAlgorithm::kDecode
               ? ForwardDecode(policy, args, outputs, execution, kernel.parts)
               : ForwardMaterialised(policy, kernel.algorithm, args, outputs, execution);
  };
  return kernel.mode == Mode::kFast           ? run(Fast())
         : kernel.mode == Mode::kReproducible ? run(Reproducible())
                                              : run(Accurate());
}

// Runs the kernel into tensors full of junk.
inline TensorMap RunCase(const RowKernel& kernel, const Case& problem) {
  TensorMap results;
  for (const char* name : {"out", "lse", "weights"}) {
    if (!problem.contract.Wants(name)) continue;
    Tensor tensor(OutputDType(problem, name), OutputShape(problem, name));
    for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, -1234.5);
    results[name] = std::move(tensor);
  }
  AttentionOutputs outputs;
  const auto find = [&](const char* name) {
    const auto found = results.find(name);
    return found == results.end() ? nullptr : &found->second;
  };
  if (Tensor* out = find("out")) outputs.out = OutputOf<4>(*out);
  if (Tensor* lse = find("lse")) outputs.lse = OutputOf<3>(*lse);
  if (Tensor* weights = find("weights")) outputs.weights = OutputOf<4>(*weights);
  Tensor slopes;
  const Status status = Forward(kernel, ArgsOf(problem, &slopes), outputs);
  EXPECT_TRUE(status.ok()) << status.message();
  return results;
}

// Every NaN becomes one and the same: its bits mean nothing.
inline void UnifyNans(TensorMap* tensors) {
  for (auto& [name, tensor] : *tensors) {
    for (Index i = 0; i < tensor.size(); ++i) {
      if (std::isnan(tensor.At(i))) tensor.Set(i, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

}  // namespace attest
