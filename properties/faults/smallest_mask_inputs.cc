// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "properties/faults/unit_case.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two keys of which the second is masked.
Case SecondMasked(const std::vector<double>& scores, const std::vector<double>& values) {
  Case problem = UnitCase(scores, values);
  SetMask({1, 0}, &problem);
  return problem;
}

// A row of scores 0 and ln 3, and a row without an allowed key.
Case HalfMasked() {
  Case problem = UnitCase({0, kLn3}, {0, 4}, 2);
  SetMask({1, 1, 0, 0}, &problem);
  return problem;
}

std::vector<SmallestInput> EmptyRowInputs() {
  std::vector<SmallestInput> list;
  for (const char* fault : {"full-row-nan", "full-row-mean-of-v"}) {
    list.push_back(Exposing(fault, HalfMasked(), {3, 0}));
    list.push_back(Exposing(fault, HalfMasked(), {2 * kLn2, -kInfinity}, "lse"));
  }
  list.push_back(Exposing("guard-on-one-path-only", HalfMasked(), {3, 0}));
  Case both = HalfMasked();
  both.contract.outputs = {"out", "weights"};
  list.push_back(Exposing("guard-on-one-path-only", both, {3, 0}));
  list.push_back(Exposing("guard-on-one-path-only", both, {0.25, 0.75, 0, 0}, "weights"));
  list.push_back(Exposing("mask-via-inf-product", SecondMasked({0, 0}, {3, 5}), {3}));

  Case half = UnitCase({-20, -24}, {1, 1}, 1, DType::kF16);
  SetMask({0, 0}, &half);
  list.push_back(Exposing("finfo-min-overflow-half", half, {0}));
  Case below = SecondMasked({1, 0}, {1, 100});
  SetTensor("q", DType::kF32, {1, 1, 1, 1}, {-20000}, &below);
  list.push_back(Exposing("sentinel-beats-real-score", below, {1}));
  list.push_back(Exposing("mask-fill-near-zero", SecondMasked({0, kLn3}, {0, 4}), {0}));
  list.push_back(Exposing("plus-infinity-fill", SecondMasked({0, kLn3}, {0, 4}), {0}));
  return list;
}

std::vector<SmallestInput> MeaningInputs() {
  std::vector<SmallestInput> list;
  list.push_back(Exposing("bool-mask-added-as-number", SecondMasked({0, kLn3}, {0, 4}), {0}));
  list.push_back(Exposing("mask-polarity-inverted", SecondMasked({0, 0}, {0, 4}), {0}));
  Case bias = UnitCase({0, 0}, {4, 0});
  SetTensor("bias", DType::kF32, {1, 1, 1, 2}, {kLn3, 0}, &bias);
  list.push_back(Exposing("float-bias-thresholded", bias, {3}));

  Case causal = UnitCase({0, 0}, {0, 4}, 2);
  causal.contract.causal = Causal::kTopLeft;
  list.push_back(Exposing("causal-needs-a-mask", causal, {0, 2}));
  list.push_back(Exposing("causal-lost-when-weights-requested", causal, {0, 2}));
  causal.contract.outputs = {"out", "weights"};
  list.push_back(Exposing("causal-lost-when-weights-requested", causal, {0, 2}));
  list.push_back(Exposing("causal-always-on", UnitCase({0, 0}, {0, 4}, 2), {2, 2}));

  list.push_back(Exposing("explicit-mask-ignored", SecondMasked({0, 0}, {0, 4}), {0}));
  list.push_back(Exposing("mask-after-softmax", SecondMasked({0, 0}, {1, 1}), {1}));
  list.push_back(Exposing("mask-multiplies-scores", SecondMasked({kLn3, 5}, {0, 4}), {0}));
  Case holey = UnitCase({0, 0, 0}, {0, 9, 4});
  SetMask({1, 0, 1}, &holey);
  list.push_back(Exposing("holey-mask-as-length", holey, {2}));
  Case corner = UnitCase({0, 0, 0}, {0, 3, 9}, 2);
  SetMask({1, 1, 0, 1, 1, 1}, &corner);
  list.push_back(Exposing("mask-dropped-as-redundant", corner, {1.5, 4}));
  return list;
}

std::vector<SmallestInput> IndexInputs() {
  std::vector<SmallestInput> list;
  Case padded = UnitCase({0, 0}, {0, 4}, 2);
  SetTensor("mask", DType::kBool, {1, 1, 1, 2}, {1, 0}, &padded);
  list.push_back(Exposing("padding-on-query-axis", padded, {0, 0}));
  Case chunk = UnitCase({0, 0}, {0, 4}, 2);
  SetMask({1, 0, 0, 1}, &chunk);
  list.push_back(Exposing("first-row-of-chunk-mask", chunk, {0, 4}));
  Case batch = UnitCase({0, 0}, {0, 4});
  batch.contract.shape.batch = 2;
  SetTensor("q", DType::kF32, {2, 1, 1, 1}, {1, 1}, &batch);
  SetTensor("k", DType::kF32, {2, 1, 2, 1}, {0, 0, 0, 0}, &batch);
  SetTensor("v", DType::kF32, {2, 1, 2, 1}, {0, 4, 0, 4}, &batch);
  list.push_back(Exposing("later-batches-empty", batch, {2, 2}));
  return list;
}

}  // namespace

std::vector<SmallestInput> SmallestMaskInputs() {
  std::vector<SmallestInput> all = EmptyRowInputs();
  for (const auto& part : {MeaningInputs(), IndexInputs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace attest
