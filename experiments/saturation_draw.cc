// SPDX-License-Identifier: Apache-2.0
#include "experiments/saturation_draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/random.h"
#include "reference/certify.h"

namespace attest {
namespace {

double Norm(const std::vector<double>& x) {
  double squares = 0.0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

template <class Values, class IsZero>
double Share(const Values& values, const IsZero& is_zero) {
  const auto zeros = std::count_if(values.begin(), values.end(), is_zero);
  return static_cast<double>(zeros) / static_cast<double>(values.size());
}

// All but the shares.
SaturationValues ValuesOf(const std::vector<double>& weights, const std::vector<double>& grad_q,
                          const std::vector<double>& grad_k) {
  double largest = 0.0, squares = 0.0, entropy = 0.0, norm = 0.0;
  for (const double p : weights) {
    largest = std::max(largest, p);
    squares += p * p;
    norm = std::max(norm, 2.0 * p * (1.0 - p));
    if (p > 0.0) entropy -= p * std::log(p);
  }
  return {largest, squares, entropy, norm, Norm(grad_q), Norm(grad_k), 0.0, 0.0};
}

}  // namespace

Case DrawSaturation(Index dim, Index keys, std::uint64_t seed, int draw) {
  Case problem;
  problem.name = fmt::format("saturation d{} n{} draw {}", dim, keys, draw);
  Contract& contract = problem.contract;
  contract.shape = {1, 1, 1, 1, keys, dim, dim, 1};
  contract.outputs = {"weights", "grad_q", "grad_k"};
  const auto add = [&](const char* name, Index rows, Index columns) {
    Tensor tensor(DType::kF32, {1, 1, rows, columns});
    const RandomStream stream(seed, problem.name, name);
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.Set(i, stream.Normal(static_cast<std::uint64_t>(i)));
    }
    problem.tensors[name] = std::move(tensor);
  };
  add("q", 1, dim);
  add("k", keys, dim);
  add("v", keys, 1);
  problem.tensors["grad_out"] = Tensor(DType::kF32, {1, 1, 1, 1});
  problem.tensors["grad_out"].Set(0, 1.0);
  return problem;
}

Case Variant(const Case& drawn, DType dtype, bool scaled) {
  Case problem = drawn;
  Contract& contract = problem.contract;
  contract.scale = {scaled, 1.0};
  contract.dtype = contract.out_dtype = dtype;
  contract.arithmetic.profile = DefaultProfile(dtype);
  if (dtype == DType::kF32) return problem;
  for (auto& [name, tensor] : problem.tensors) {
    Tensor rounded(dtype, tensor.shape());
    for (Index i = 0; i < tensor.size(); ++i) rounded.Set(i, tensor.At(i));
    tensor = std::move(rounded);
  }
  return problem;
}

StatusOr<SaturationValues> ExactSaturation(const Case& problem, RowTheorems* theorems) {
  CertifyOptions options;
  options.conditions = theorems != nullptr;
  StatusOr<Certified> certified = Certify(problem, options);
  if (!certified.ok()) return certified.status();
  if (theorems != nullptr) *theorems = TheoremsOf(certified->conditions.log_weight);
  const auto exact = [&](const char* name) {
    std::vector<double> values;
    for (const CertifiedValue& value : certified->outputs.at(name).values) {
      values.push_back(value.hi);
    }
    return values;
  };
  const auto rounds_to_zero = [](const CertifiedValue& value) { return value.nearest == 0.0; };
  SaturationValues values = ValuesOf(exact("weights"), exact("grad_q"), exact("grad_k"));
  values[6] = Share(certified->outputs.at("weights").values, rounds_to_zero);
  values[7] = Share(certified->outputs.at("grad_k").values, rounds_to_zero);
  return values;
}

StatusOr<SaturationValues> ComputedSaturation(const Case& problem, const Subject& forward,
                                              const Subject& backward) {
  std::vector<std::vector<double>> outputs;
  const auto run = [&](const Subject& subject, const std::vector<std::string>& names) {
    Case part = problem;
    part.contract.outputs = names;
    const Outcome outcome = subject.Run(part, {});
    if (outcome.kind != Outcome::Kind::kOk) return InvalidArgument(outcome.message);
    for (const std::string& name : names) {
      const auto found = outcome.outputs.find(name);
      if (found == outcome.outputs.end()) {
        return InvalidArgument(fmt::format("{}: no {}", subject.info().name, name));
      }
      outputs.push_back(ToDoubles(found->second));
    }
    return Status();
  };
  if (Status s = run(forward, {"weights"}); !s.ok()) return s;
  if (Status s = run(backward, {"grad_q", "grad_k"}); !s.ok()) return s;
  const auto is_zero = [](double value) { return value == 0.0; };
  SaturationValues values = ValuesOf(outputs[0], outputs[1], outputs[2]);
  values[6] = Share(outputs[0], is_zero);
  values[7] = Share(outputs[2], is_zero);
  return values;
}

}  // namespace attest
