// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "properties/faults/unit_case.h"

namespace attest {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<SmallestInput> MaskedMemoryInputs() {
  std::vector<SmallestInput> list;
  for (const double junk : {kNan, kInfinity}) {
    Case unused = UnitCase({0, 0, 0, 0}, {0, 4, junk, junk});
    SetTensor("kv_lengths", DType::kI32, {1}, {2}, &unused);
    list.push_back(Exposing("nan-in-unused-value-slot", unused, {2}));
  }
  Case masked = UnitCase({0, kNan}, {3, 5});
  SetMask({1, 0}, &masked);
  list.push_back(Exposing("nan-in-masked-key", masked, {3}));
  list.push_back(Exposing("cache-hole", UnitCase({0, 0}, {0, 4}), {2}));
  return list;
}

std::vector<SmallestInput> LayoutInputs() {
  std::vector<SmallestInput> list;
  Case view = UnitCase({0, 0}, {0, 0});
  view.contract.shape.q_heads = view.contract.shape.kv_heads = 2;
  SetTensor("q", DType::kF32, {1, 2, 1, 1}, {1, 1}, &view);
  SetTensor("k", DType::kF32, {1, 2, 2, 1}, {0, 0, 0, 0}, &view);
  SetTensor("v", DType::kF32, {1, 2, 2, 1}, {0, 4, 1, 5}, &view);  // in memory 0, 1, 4, 5
  list.push_back(Exposing("strides-ignored", view, {2, 3}));
  list.back().options.layout = Layout::kTransposed;

  Case five = UnitCase({0, 0}, {0, 4});
  five.contract.shape.qk_dim = five.contract.shape.k_dim = 5;
  SetTensor("q", DType::kF32, {1, 1, 1, 5}, {0, 0, 0, 0, 1}, &five);
  SetTensor("k", DType::kF32, {1, 1, 2, 5}, {0, 0, 0, 0, 0, 0, 0, 0, 0, kLn3}, &five);
  list.push_back(Exposing("head-dim-fixed", five, {3}));
  Case wide = UnitCase({0, 0}, {0, 0});
  wide.contract.shape.v_dim = 2;
  SetTensor("v", DType::kF32, {1, 1, 2, 2}, {0, 10, 4, 20}, &wide);
  list.push_back(Exposing("value-width-from-key", wide, {2, 15}));
  return list;
}

// The layout puts the last row, or batch entry, beyond 2^31 elements.
std::vector<SmallestInput> AddressInputs() {
  std::vector<SmallestInput> list;
  std::vector<double> values;
  for (int j = 0; j < 17; ++j) values.push_back(j);
  list.push_back(Exposing("int32-row-offset", UnitCase(std::vector<double>(17, 0.0), values), {8}));
  Case batch = UnitCase({0}, {0});
  batch.contract.shape.batch = 2;
  SetTensor("q", DType::kF32, {2, 1, 1, 1}, {1, 1}, &batch);
  SetTensor("k", DType::kF32, {2, 1, 1, 1}, {0, 0}, &batch);
  SetTensor("v", DType::kF32, {2, 1, 1, 1}, {0, 4}, &batch);
  list.push_back(Exposing("int32-batch-offset", batch, {0, 4}));
  Case mask = UnitCase({0, 0}, {0, 4}, 3);
  SetMask({1, 1, 1, 1, 0, 1}, &mask);
  list.push_back(Exposing("int32-mask-offset", mask, {2, 2, 4}));
  for (SmallestInput& input : list) input.options.layout = Layout::kSparse;
  return list;
}

std::vector<SmallestInput> LengthInputs() {
  std::vector<SmallestInput> list;
  Case none = UnitCase({0.5}, {4});
  none.contract.shape.batch = 2;
  SetTensor("q", DType::kF32, {2, 1, 1, 1}, {1, 1}, &none);
  SetTensor("k", DType::kF32, {2, 1, 1, 1}, {0.5, 0.5}, &none);
  SetTensor("v", DType::kF32, {2, 1, 1, 1}, {4, 4}, &none);
  SetTensor("kv_lengths", DType::kI32, {2}, {0, 1}, &none);
  list.push_back(Exposing("zero-keys-unwritten", none, {0, 4}));
  list.push_back(Exposing("zero-keys-unwritten", none, {-kInfinity, 0.5}, "lse"));
  Case padded = UnitCase({0, 0}, {0, 4}, 2);
  SetTensor("q_lengths", DType::kI32, {1}, {1}, &padded);
  list.push_back(Exposing("padded-query-rows-garbage", padded, {2, 0}));
  return list;
}

}  // namespace

std::vector<SmallestInput> SmallestMemoryInputs() {
  std::vector<SmallestInput> all = MaskedMemoryInputs();
  for (const auto& part : {LayoutInputs(), AddressInputs(), LengthInputs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace attest
