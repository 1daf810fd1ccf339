// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "core/random.h"

namespace attest {
namespace {

constexpr Index kMaxElements = Index{1} << 28;

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

StatusOr<AttentionShape> ParseShape(const std::string& text) {
  std::vector<Index> sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  bool complete = false;
  while (!complete) {
    Index size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || size > kMaxElements) break;
    sizes.push_back(size);
    complete = next == end;
    if (!complete && *next != 'x') break;
    at = next + 1;
  }
  if (!complete || (sizes.size() != 3 && sizes.size() != 4)) {
    return InvalidArgument("shape '" + text +
                           "': expected heads x length x size, as 8x1024x64, or 8x1x1024x64 for "
                           "another number of queries than keys");
  }
  const std::size_t keys = sizes.size() - 2;
  const AttentionShape shape{sizes[0], sizes[1], sizes[keys], sizes[keys + 1], false};
  if (shape.queries > shape.keys) return InvalidArgument("shape '" + text + "': too many queries");
  if (shape.dim % 8 != 0) {
    return InvalidArgument("shape '" + text + "': the head size is no multiple of 8");
  }
  const auto product = [](Index a, Index b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  if (product(shape.queries, shape.keys) > kMaxElements ||
      product(shape.heads, shape.keys) * static_cast<double>(shape.dim) > kMaxElements) {
    return InvalidArgument("shape '" + text + "': more than 2^28 elements");
  }
  return shape;
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
          .seed = seed,
          .q = Drawn("q", shape.heads, shape.queries, shape.dim, seed),
          .k = Drawn("k", shape.heads, shape.keys, shape.dim, seed),
          .v = Drawn("v", shape.heads, shape.keys, shape.dim, seed)};
}

Tensor DrawGradient(const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  return Drawn("grad_out", shape.heads, shape.queries, shape.dim, problem.seed);
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
