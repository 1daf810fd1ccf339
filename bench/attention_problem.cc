// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"

namespace attest {
namespace {

Tensor Drawn(const char* name, Index heads, Index length, Index dim, std::uint64_t seed) {
  Tensor tensor(DType::kF32, {1, heads, length, dim});
  const RandomStream stream(seed, "attention-bench", name);
  float* data = tensor.data<float>();
  for (Index i = 0; i < tensor.size(); ++i) {
    data[i] = static_cast<float>(stream.Normal(static_cast<std::uint64_t>(i)));
  }
  return tensor;
}

}  // namespace

std::string NameOf(const AttentionShape& shape) {
  const std::string lengths = shape.queries == shape.keys
                                  ? fmt::format("{}", shape.keys)
                                  : fmt::format("{}x{}", shape.queries, shape.keys);
  return fmt::format("{}x{}x{}{}", shape.heads, lengths, shape.dim, shape.causal ? " causal" : "");
}

double ScoreCount(const AttentionShape& shape) {
  double count = 0.0;
  for (Index i = 0; i < shape.queries; ++i) {
    const Index seen = shape.causal ? shape.keys - shape.queries + i + 1 : shape.keys;
    count += static_cast<double>(std::clamp<Index>(seen, 0, shape.keys));
  }
  return count * static_cast<double>(shape.heads);
}

AttentionProblem DrawProblem(const AttentionShape& shape, std::uint64_t seed) {
  return {.shape = shape,
          .q = Drawn("q", shape.heads, shape.queries, shape.dim, seed),
          .k = Drawn("k", shape.heads, shape.keys, shape.dim, seed),
          .v = Drawn("v", shape.heads, shape.keys, shape.dim, seed),
          .grad_out = Drawn("grad_out", shape.heads, shape.queries, shape.dim, seed)};
}

float ScaleOf(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.dim)));
}

std::vector<float> HeadsLast(const float* x, Index heads, Index length, Index dim) {
  std::vector<float> y(static_cast<std::size_t>(heads * length * dim));
  for (Index h = 0; h < heads; ++h) {
    for (Index i = 0; i < length; ++i) {
      std::copy_n(x + (h * length + i) * dim, dim, y.data() + (i * heads + h) * dim);
    }
  }
  return y;
}

std::vector<float> HeadsFirst(const float* x, Index heads, Index length, Index dim) {
  return HeadsLast(x, length, heads, dim);  // the same exchange of two axes
}

}  // namespace attest
