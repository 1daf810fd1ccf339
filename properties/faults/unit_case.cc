// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/unit_case.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace attest {

void SetTensor(const std::string& name, DType dtype, const Shape& shape,
               const std::vector<double>& elements, Case* problem) {
  Tensor tensor(dtype, shape);
  assert(static_cast<std::size_t>(tensor.size()) == elements.size());
  for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, elements[static_cast<std::size_t>(i)]);
  problem->tensors[name] = std::move(tensor);
}

Case UnitCase(const std::vector<double>& scores, const std::vector<double>& values, Index queries,
              DType dtype) {
  Case problem;
  const auto n = static_cast<Index>(scores.size());
  problem.contract.shape = {1, 1, 1, queries, n, 1, 1, 1};
  problem.contract.scale = {false, 1.0};
  problem.contract.dtype = problem.contract.out_dtype = dtype;
  problem.contract.arithmetic.profile = DefaultProfile(dtype);
  SetTensor("q", dtype, {1, 1, queries, 1},
            std::vector<double>(static_cast<std::size_t>(queries), 1.0), &problem);
  SetTensor("k", dtype, {1, 1, n, 1}, scores, &problem);
  SetTensor("v", dtype, {1, 1, n, 1}, values, &problem);
  return problem;
}

Case FourChannels(const std::vector<double>& firsts, const std::vector<double>& values) {
  Case problem = UnitCase(firsts, values);
  problem.contract.shape.qk_dim = problem.contract.shape.k_dim = 4;
  problem.contract.scale = Scale{};
  SetTensor("q", DType::kF32, {1, 1, 1, 4}, {2, 0, 0, 0}, &problem);
  std::vector<double> keys;
  for (const double first : firsts) keys.insert(keys.end(), {first, 0, 0, 0});
  SetTensor("k", DType::kF32, {1, 1, problem.contract.shape.kv_len, 4}, keys, &problem);
  return problem;
}

void SetMask(const std::vector<double>& allowed, Case* problem) {
  const Dimensions& s = problem->contract.shape;
  SetTensor("mask", DType::kBool, {1, 1, s.q_len, s.kv_len}, allowed, problem);
}

void SetGradient(const std::vector<double>& grad_out, const std::string& gradient, Case* problem) {
  const Dimensions& s = problem->contract.shape;
  SetTensor("grad_out", problem->contract.dtype, {s.batch, s.q_heads, s.q_len, s.v_dim}, grad_out,
            problem);
  problem->contract.outputs = {gradient};
}

SmallestInput Exposing(const std::string& fault, Case problem, const std::vector<double>& right,
                       const std::string& tensor) {
  std::vector<std::string>& outputs = problem.contract.outputs;
  if (std::find(outputs.begin(), outputs.end(), tensor) == outputs.end()) outputs.push_back(tensor);
  problem.name = "smallest input of " + fault;
  const Status finished = FinishCase(&problem);
  assert(finished.ok());
  static_cast<void>(finished);
  return {fault, std::move(problem), tensor, right, {}, 1};
}

}  // namespace attest
