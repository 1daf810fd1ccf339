// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/unit_case.h"

namespace attest {
namespace {

Case Causally(Causal causal, const std::vector<double>& values, Index queries) {
  Case problem = UnitCase(std::vector<double>(values.size(), 0.0), values, queries);
  problem.contract.causal = causal;
  return problem;
}

Case Windowed(Causal causal, Window window, const std::vector<double>& values, Index queries) {
  Case problem = Causally(causal, values, queries);
  problem.contract.window = window;
  return problem;
}

}  // namespace

std::vector<SmallestInput> SmallestCausalInputs() {
  std::vector<SmallestInput> list;
  const auto add = [&](const char* fault, const Case& problem, const std::vector<double>& right) {
    list.push_back(Exposing(fault, problem, right));
  };
  const Causal top = Causal::kTopLeft;
  const Causal bottom = Causal::kBottomRight;
  add("causal-ignores-past", Causally(bottom, {0, 4}, 1), {2});
  add("causal-wrong-corner", Causally(top, {0, 4}, 1), {0});
  add("causal-sees-next", Causally(top, {0, 4}, 2), {0, 2});
  add("causal-drops-self", Causally(top, {2, 4}, 2), {2, 3});
  add("diagonal-tile-only", Causally(bottom, {0, 3, 9}, 2), {1.5, 4});

  add("window-plus-one", Windowed(top, {0, -1}, {0, 4}, 2), {0, 4});
  add("window-negative-means-all", Windowed(top, {1, -1}, {0, 6, 12}, 3), {0, 3, 9});
  add("window-future-leak", Windowed(Causal::kNone, {1, 0}, {0, 4}, 2), {0, 2});
  add("window-needs-a-mask", Windowed(Causal::kNone, {0, 0}, {0, 4}, 2), {0, 4});
  Case padded = Windowed(bottom, {1, -1}, {0, 4, 99, 99}, 1);
  SetTensor("kv_lengths", DType::kI32, {1}, {2}, &padded);
  add("window-from-padded-end", padded, {2});

  const Case tail = UnitCase({kLn2, kLn2, kLn2}, {1, 1, 1});
  add("zero-filled-tail-keys", tail, {1});
  add("tail-guard-needs-mask", tail, {1});
  Case masked = tail;
  SetMask({1, 1, 1}, &masked);
  add("tail-guard-needs-mask", masked, {1});
  add("tail-of-one", UnitCase({0, 0}, {0, 3}), {1.5});
  add("tail-of-one", UnitCase({0, 0, 0}, {0, 3, 9}), {4});
  add("tail-of-one", UnitCase({0, 0, 0, 0}, {0, 3, 9, 4}), {4});
  add("causal-loop-bound-short", Causally(top, {0, 4}, 2), {0, 2});
  return list;
}

}  // namespace attest
