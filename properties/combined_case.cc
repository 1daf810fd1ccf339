// SPDX-License-Identifier: Apache-2.0
#include "properties/combined_case.h"

#include <cassert>
#include <utility>

#include "audit/case_spec.h"
#include "core/random.h"

namespace attest {

Case Combined(unsigned features, DType dtype, const Dimensions& shape) {
  CaseSpec spec{.shape = shape, .dtype = dtype};
  spec.causal = static_cast<Causal>(features % 3);
  spec.empty_row = static_cast<EmptyRow>(features / 3 % 3);
  const auto on = [&](unsigned bit) { return ((features >> bit) & 1u) != 0; };
  spec.mask = on(0);
  spec.bias = on(1);
  spec.kv_lengths = on(2);
  spec.q_lengths = on(3);
  Case problem = MakeCase(spec, features);
  Contract& contract = problem.contract;
  const RandomStream stream(features, "combined", "extras");
  const auto fill = [&](DType type, const Shape& extents, double scale) {
    Tensor tensor(type, extents);
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.Set(i, scale * stream.Normal(static_cast<std::uint64_t>(i)));
    }
    return tensor;
  };
  if (on(4)) contract.window = {2, on(5) ? -1 : 1};
  if (on(5)) contract.softcap = 1.5;
  if (on(6)) contract.alibi = Alibi::kDefault;
  if (on(7)) problem.tensors["alibi_slopes"] = fill(contract.wide_dtype(), {shape.q_heads}, 0.5);
  if (on(8)) problem.tensors["sinks"] = fill(contract.wide_dtype(), {shape.q_heads}, 1.0);
  if (on(9)) {
    for (const auto& [name, length] :
         {std::pair{"q_documents", shape.q_len}, std::pair{"kv_documents", shape.kv_len}}) {
      Tensor documents(DType::kI32, {shape.batch, length});
      for (Index i = 0; i < documents.size(); ++i) {
        documents.Set(i, static_cast<double>(i % length / 3));
      }
      problem.tensors[name] = std::move(documents);
    }
  }
  if (on(10)) {
    contract.local = LocalWindow{2.5, on(11)};
    Tensor centers = fill(contract.wide_dtype(), {shape.batch, shape.q_heads, shape.q_len}, 1.0);
    for (Index i = 0; i < centers.size(); ++i) centers.Set(i, 3.0 + centers.At(i));
    problem.tensors["local_center"] = std::move(centers);
  }
  if (on(11)) {
    contract.dropout_rate = 0.25;
    if (on(10)) {
      Tensor keep(DType::kBool, {shape.batch, 1, shape.q_len, shape.kv_len});
      for (Index i = 0; i < keep.size(); ++i) keep.Set(i, i % 4 == 0 ? 0.0 : 1.0);
      problem.tensors["keep"] = std::move(keep);
    }
  }
  if (on(1) && on(2)) contract.scale = {false, -0.75};
  const Status finished = FinishCase(&problem);
  assert(finished.ok());
  static_cast<void>(finished);
  return problem;
}

}  // namespace attest
