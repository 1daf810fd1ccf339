// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "properties/faults/unit_case.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<SmallestInput> MaximumInputs() {
  std::vector<SmallestInput> list;
  const auto two_equal = [&](const char* fault, double score) {
    list.push_back(Exposing(fault, UnitCase({score, score}, {0, 4}), {2}));
  };
  two_equal("no-max-subtraction", 100);
  two_equal("constant-shift", 200);
  two_equal("constant-shift", -200);
  two_equal("max-seed-smallest-positive", -200);
  two_equal("max-seed-5e4", -60000);
  list.push_back(Exposing("correction-aliased", UnitCase({0, kLn3}, {0, 4}), {3}));
  list.push_back(Exposing("correction-aliased", UnitCase({kLn3, 0}, {4, 0}), {3}));
  Case poisoned = UnitCase({0, -200}, {9, 4});
  SetMask({0, 1}, &poisoned);
  list.push_back(Exposing("masked-tile-poisons-max", poisoned, {4}));
  return list;
}

// The keys of one row in two parts of one key each.
std::vector<SmallestInput> MergeInputs() {
  std::vector<SmallestInput> list;
  const Case rising = UnitCase({0, kLn3}, {0, 4});
  list.push_back(Exposing("base2-lse-merged-natural", rising, {3}));
  Case empty = UnitCase({0, 0}, {1, 1});
  SetMask({0, 0}, &empty);
  list.push_back(Exposing("merge-both-empty", empty, {0}));
  list.push_back(Exposing("merge-both-empty", empty, {-kInfinity}, "lse"));
  Case second = UnitCase({0, 0}, {1, 4});
  SetMask({0, 1}, &second);
  list.push_back(Exposing("empty-part-finite-lse", second, {4}));
  list.push_back(Exposing("merge-raw-exponentials", UnitCase({100, 100}, {0, 4}), {2}));
  list.push_back(Exposing("partial-lse-not-stored", rising, {3}));
  Case with_lse = rising;
  with_lse.contract.outputs = {"out", "lse"};
  list.push_back(Exposing("partial-lse-not-stored", with_lse, {3}));
  list.push_back(Exposing("empty-row-lse-zero", empty, {-kInfinity}, "lse"));
  list.push_back(Exposing("empty-row-lse-zero", second, {4}));
  return list;
}

std::vector<SmallestInput> SinkInputs() {
  std::vector<SmallestInput> list;
  const auto with_sink = [](Case problem, double sink) {
    SetTensor("sinks", DType::kF32, {1}, {sink}, &problem);
    return problem;
  };
  Case masked = UnitCase({0, 2}, {0, 4});
  SetMask({0, 1}, &masked);
  list.push_back(Exposing("sink-with-placeholder-max", with_sink(masked, 2), {2}));
  list.push_back(Exposing("sink-in-other-units", with_sink(UnitCase({0}, {1}), 0), {0.5}));
  list.push_back(Exposing("plus-one-without-shift", with_sink(UnitCase({kLn3}, {4}), 0), {3}));
  return list;
}

std::vector<SmallestInput> RoundingInputs() {
  std::vector<SmallestInput> list;
  Case wide = UnitCase({0, 0}, {0, 4}, 1, DType::kF16);
  wide.contract.shape.qk_dim = wide.contract.shape.k_dim = 64;
  wide.contract.scale = Scale{};
  SetTensor("q", DType::kF16, {1, 1, 1, 64}, std::vector<double>(64, 40.0), &wide);
  SetTensor("k", DType::kF16, {1, 1, 2, 64}, std::vector<double>(128, 40.0), &wide);
  list.push_back(Exposing("half-scores-before-scale", wide, {2}));
  list.push_back(Exposing("probs-rounded-before-pv", UnitCase({0, kLn2}, {1, 1}), {1}));
  const std::vector<double> zeros(4096, 0.0);
  const std::vector<double> ones(4096, 1.0);
  list.push_back(Exposing("half-denominator", UnitCase(zeros, ones, 1, DType::kF16), {1}));
  list.push_back(
      Exposing("fast-exponential", UnitCase({0, -0.5}, {0, 1}), {1.0 / (1.0 + std::exp(0.5))}));
  Case far = UnitCase({0, 0}, {0, 3e38});
  SetTensor("bias", DType::kF32, {1, 1, 1, 2}, {0, -1e30}, &far);
  list.push_back(Exposing("exponential-clamped-at-min", far, {0}));
  return list;
}

}  // namespace

std::vector<SmallestInput> SmallestSoftmaxInputs() {
  std::vector<SmallestInput> all = MaximumInputs();
  for (const auto& part : {MergeInputs(), SinkInputs(), RoundingInputs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace attest
