// SPDX-License-Identifier: Apache-2.0
#include "properties/gradient_case.h"

#include <cassert>
#include <cstdint>
#include <string>

#include "core/random.h"
#include "properties/combined_case.h"

namespace attest {

Tensor NormalTensor(DType dtype, const Shape& shape, const char* name, double factor) {
  const RandomStream stream(0, "textbook gradient", name);
  Tensor tensor(dtype, shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, factor * stream.Normal(static_cast<std::uint64_t>(i)));
  }
  return tensor;
}

Case CombinedWithGradients(unsigned features, ScoreKind score, DType dtype,
                           const Dimensions& shape) {
  Case problem = Combined(features, dtype, shape);
  Contract& contract = problem.contract;
  contract.empty_row = EmptyRow::kZero;
  const Dimensions s = contract.shape;
  const auto add = [&](const char* name, const Shape& extents, double factor = 1.0) {
    problem.tensors[name] = NormalTensor(dtype, extents, name, factor);
  };
  contract.score = score;
  if (score != ScoreKind::kDot) {
    contract.shape.k_dim = 4;
    add("k", {s.batch, s.kv_heads, s.kv_len, 4});
    contract.scale = {false, features % 2 == 0 ? 1.0 : -0.75};
  }
  if (score == ScoreKind::kGeneral) add("w", {s.qk_dim, 4}, 0.5);
  if (score == ScoreKind::kAdditive) {
    add("w_q", {2, s.qk_dim}, 0.5);
    add("w_k", {2, 4}, 0.5);
    add("v_a", {2});
    if (features % 3 != 0) add("b", {2});
  }
  if (features % 5 != 1) add("grad_out", {s.batch, s.q_heads, s.q_len, s.v_dim});
  if (features % 5 != 2) add("grad_lse", {s.batch, s.q_heads, s.q_len});
  contract.outputs = {"out", "lse"};
  for (const char* name : {"q", "k", "v", "bias", "sinks", "w", "w_q", "w_k", "v_a", "b"}) {
    if (problem.Find(name) != nullptr) contract.outputs.push_back(std::string("grad_") + name);
  }
  const Status finished = FinishCase(&problem);
  assert(finished.ok());
  static_cast<void>(finished);
  return problem;
}

}  // namespace attest
