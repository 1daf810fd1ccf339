// SPDX-License-Identifier: Apache-2.0
// The problems that attention kernels are timed on, and the one interface through which they run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// One batch. A causal query i sees the keys up to keys - queries + i.
struct AttentionShape {
  Index heads = 1;
  Index queries = 1;
  Index keys = 1;
  Index dim = 1;  // of queries, keys and values
  bool causal = false;
};

// "8x1024x64", "8x1024x64 causal": heads, length, size; "8x1x8192x128" where queries differ from
// keys.
std::string NameOf(const AttentionShape& shape);

// The shape that NameOf calls so (never causal); InvalidArgument for texts of other forms, sizes
// that are not positive, more queries than keys, a head size that is no multiple of 8, or more than
// 2^28 elements in a tensor or a head's score matrix.
StatusOr<AttentionShape> ParseShape(const std::string& text);

// Scores that are needed, over all heads: n (n + 1) / 2 for each causal head of n queries and keys.
double ScoreCount(const AttentionShape& shape);

// Standard normal f32 tensors [1, heads, queries or keys, dim], scale 1/sqrt(dim).
struct AttentionProblem {
  AttentionShape shape;
  std::uint64_t seed = 0;
  Tensor q, k, v;
};

AttentionProblem DrawProblem(const AttentionShape& shape, std::uint64_t seed);

// The gradient of the output, likewise, for a backward pass.
Tensor DrawGradient(const AttentionProblem& problem);

float ScaleOf(const AttentionShape& shape);  // 1/sqrt(dim)

// A kernel, ours or a peer's, ready to run on one problem, which it may refer to: everything that
// is needed once has been done, every buffer exists.
class AttentionCall {
 public:
  virtual ~AttentionCall() = default;
  virtual Status Run() = 0;
  // Dense [heads, queries, dim] of the last run.
  virtual std::vector<float> Output() const = 0;
};

// [heads, length, dim] as [length, heads, dim], and back.
std::vector<float> HeadsLast(const float* x, Index heads, Index length, Index dim);
std::vector<float> HeadsFirst(const float* x, Index heads, Index length, Index dim);

}  // namespace attest
