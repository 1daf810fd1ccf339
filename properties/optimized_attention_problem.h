// SPDX-License-Identifier: Apache-2.0
// Small attention problems for tests of the optimized kernels, and their judge: attention in
// double, written here anew, with the bounds of the kernels' headers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "optimized/attention.h"

namespace attest {

inline constexpr double kU = 0x1p-24;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kJunk = -1234.5f;
using Shape4 = std::array<Index, 4>;

inline std::size_t Size(const Shape4& shape) {
  return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
}

template <class T>
View<T, 4> Dense(T* data, const Shape4& shape) {
  return {data, shape, ContiguousStrides(shape)};
}

// Dense tensors of one problem; an empty mask, bias or length is absent.
struct Problem {
  Index batch = 1, q_heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, qk_dim = 1, v_dim = 1;
  std::vector<float> q, k, v, bias;
  std::vector<std::uint8_t> mask;
  std::vector<std::int32_t> kv_lengths, q_lengths;
  Causal causal = Causal::kNone;
  EmptyRow empty_row = EmptyRow::kZero;
  std::optional<double> scale;

  Shape4 q_shape() const { return {batch, q_heads, q_len, qk_dim}; }
  Shape4 k_shape() const { return {batch, kv_heads, kv_len, qk_dim}; }
  Shape4 v_shape() const { return {batch, kv_heads, kv_len, v_dim}; }
  Shape4 out_shape() const { return {batch, q_heads, q_len, v_dim}; }
  Shape4 score_shape() const { return {batch, q_heads, q_len, kv_len}; }

  // Numbers in (-1, 1) times `amplitude`, repeatable.
  void Fill(double amplitude, std::uint32_t seed) {
    std::uint32_t state = seed * 2654435761u + 1u;
    const auto next = [&] {
      state = state * 1664525u + 1013904223u;
      return static_cast<double>(state) * 0x1p-31 - 1.0;
    };
    q.resize(Size(q_shape()));
    k.resize(Size(k_shape()));
    v.resize(Size(v_shape()));
    for (float& x : q) x = static_cast<float>(amplitude * next());
    for (float& x : k) x = static_cast<float>(next());
    for (float& x : v) x = static_cast<float>(next());
  }

  // Whether query i of (b, h) may look at key j: the definition, without its bias.
  bool Allowed(Index b, Index h, Index i, Index j) const {
    const Index rows = q_lengths.empty() ? q_len : q_lengths[static_cast<std::size_t>(b)];
    const Index keys = kv_lengths.empty() ? kv_len : kv_lengths[static_cast<std::size_t>(b)];
    if (i >= rows || j >= keys) return false;
    if (causal == Causal::kTopLeft && j > i) return false;
    if (causal == Causal::kBottomRight && j > i + keys - rows) return false;
    if (!mask.empty() && Dense(mask.data(), score_shape())(b, h, i, j) == 0) return false;
    return bias.empty() || Dense(bias.data(), score_shape())(b, h, i, j) != -kInfinity;
  }
};

struct Result {
  std::vector<float> out, lse, weights;
  bool operator==(const Result&) const = default;
};

inline AttentionArgs ArgsOf(const Problem& p) {
  AttentionArgs args;
  args.q = Dense(p.q.data(), p.q_shape());
  args.k = Dense(p.k.data(), p.k_shape());
  args.v = Dense(p.v.data(), p.v_shape());
  if (!p.mask.empty()) args.mask = Dense(p.mask.data(), p.score_shape());
  if (!p.bias.empty()) args.bias = Dense(p.bias.data(), p.score_shape());
  if (!p.kv_lengths.empty()) args.kv_lengths = p.kv_lengths.data();
  if (!p.q_lengths.empty()) args.q_lengths = p.q_lengths.data();
  args.causal = p.causal;
  args.empty_row = p.empty_row;
  args.scale = p.scale;
  return args;
}

// Runs into buffers full of junk; the element after each must survive.
inline Result Attend(AttentionAlgorithm algorithm, const AttentionArgs& args, const Problem& p,
                     bool with_weights = true) {
  Result r;
  const Shape4 rows{1, p.batch, p.q_heads, p.q_len};
  r.out.assign(Size(p.out_shape()) + 1, kJunk);
  r.lse.assign(Size(rows) + 1, kJunk);
  r.weights.assign(Size(p.score_shape()) + 1, kJunk);
  AttentionOutputs outputs{Dense(r.out.data(), p.out_shape()), std::nullopt, std::nullopt};
  const std::array<Index, 3> lse_shape{p.batch, p.q_heads, p.q_len};
  outputs.lse = {r.lse.data(), lse_shape, ContiguousStrides(lse_shape)};
  if (with_weights) outputs.weights = Dense(r.weights.data(), p.score_shape());
  const Status status = AttentionForward(algorithm, args, outputs);
  EXPECT_TRUE(status.ok()) << status.message();
  for (std::vector<float>* buffer : {&r.out, &r.lse, &r.weights}) {
    EXPECT_EQ(buffer->back(), kJunk);
    buffer->pop_back();
  }
  return r;
}

// The largest error/bound over what is finite. What is not has to agree exactly.
class Judge {
 public:
  std::map<std::string, double> worst;  // by tensor

  void Number(float got, double exact, double bound, const char* what, Index i) {
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(got)) << what << ", row " << i << ": " << got;
    } else if (std::isinf(exact)) {
      EXPECT_EQ(static_cast<double>(got), exact) << what << ", row " << i;
    } else {
      const double error = std::fabs(static_cast<double>(got) - exact);
      EXPECT_TRUE(error <= bound) << what << ", row " << i << ": " << got << " for " << exact
                                  << ", bound " << bound;
      if (bound > 0.0) worst[what] = std::max(worst[what], error / bound);
    }
  }
};

// One row in double with the terms of its bound; g = n u / (1 - n u).
inline void JudgeRow(AttentionAlgorithm algorithm, const Problem& p, const Result& r, Index b,
                     Index h, Index i, Judge& judge) {
  const auto n = static_cast<std::size_t>(p.kv_len);
  const Index g = h / (p.q_heads / p.kv_heads);
  const auto q = Dense(p.q.data(), p.q_shape());
  const auto k = Dense(p.k.data(), p.k_shape());
  const auto v = Dense(p.v.data(), p.v_shape());
  const double scale = p.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.qk_dim)));
  const double roundings = static_cast<double>(p.qk_dim + 3) * kU;
  const double gamma = roundings / (1.0 - roundings);

  std::vector<double> s(n);
  std::vector<bool> allowed(n);
  double max = -HUGE_VAL, score_error = 0.0, sum = 0.0, spread = 0.0;
  bool any = false, nan = false;
  for (std::size_t j = 0; j < n; ++j) {
    const auto key = static_cast<Index>(j);
    allowed[j] = p.Allowed(b, h, i, key);
    if (!allowed[j]) continue;
    double dot = 0.0, absolute = 0.0, largest_k = 0.0;
    for (Index c = 0; c < p.qk_dim; ++c) {
      const double product =
          static_cast<double>(q(b, h, i, c)) * static_cast<double>(k(b, g, key, c));
      dot += product;
      absolute += std::fabs(scale * product);
      largest_k = std::max(largest_k, std::fabs(static_cast<double>(k(b, g, key, c))));
    }
    s[j] = scale * dot;
    if (!p.bias.empty()) {
      const auto bias = static_cast<double>(Dense(p.bias.data(), p.score_shape())(b, h, i, key));
      s[j] += bias;
      absolute += std::fabs(bias);
    }
    any = true;
    nan = nan || std::isnan(s[j]) || s[j] == HUGE_VAL;
    if (s[j] == -HUGE_VAL) continue;
    max = std::max(max, s[j]);
    score_error = std::max(score_error, gamma * absolute + static_cast<double>(p.qk_dim) *
                                                               0x1p-149 * (1.0 + largest_k));
  }
  nan = nan || max == -HUGE_VAL;
  for (std::size_t j = 0; j < n && any && !nan; ++j) {
    if (!allowed[j]) continue;
    sum += std::exp(s[j] - max);
    if (max - s[j] <= 104.0) spread = std::max(spread, max - s[j]);
  }

  const double blocks = std::ceil(static_cast<double>(p.kv_len) / 64.0);
  const double range = spread + 2.0 * score_error;
  // Online and tiled rescale the sum, tiled also the output and the weights.
  const double rescaled = algorithm == AttentionAlgorithm::kMaterialised         ? 0.0
                          : algorithm == AttentionAlgorithm::kMaterialisedOnline ? 1.0
                                                                                 : 2.0;
  const double softmax_exponent =
      (2.0 * (range + 2.0) + blocks + 9.0 + rescaled * (range + 3.0 * blocks)) * kU;
  const double weight_exponent = 2.0 * score_error + softmax_exponent;
  const double exponent = weight_exponent + (64.0 + blocks) * kU;
  const bool uniform = !any && p.empty_row == EmptyRow::kUniform && n > 0;
  const bool nan_row = any ? nan : p.empty_row == EmptyRow::kNan;
  const double lse = nan_row ? std::nan("") : any ? max + std::log(sum) : -HUGE_VAL;
  const auto row = static_cast<std::size_t>((b * p.q_heads + h) * p.q_len + i);
  judge.Number(
      r.lse[row], lse,
      score_error + softmax_exponent + (std::fabs(lse) + score_error + softmax_exponent) * kU,
      "lse", i);

  // weight (e^exponent - 1), also where the weight underflows.
  const auto slack = [&](std::size_t j, double e) {
    if (!any || nan || !allowed[j]) return uniform ? kU / static_cast<double>(n) : 0.0;
    const double w = std::exp(s[j] - max) / sum;
    return e < 1.0 ? w * std::expm1(e) : std::exp(s[j] - max - std::log(sum) + e);
  };
  std::vector<double> weight(n, 0.0);
  for (std::size_t j = 0; j < n; ++j) {
    if (uniform) weight[j] = 1.0 / static_cast<double>(n);
    if (nan_row && (allowed[j] || !any)) weight[j] = std::nan("");
    if (any && !nan && allowed[j]) weight[j] = std::exp(s[j] - max) / sum;
    if (any && !allowed[j]) {
      EXPECT_EQ(r.weights[row * n + j], 0.0f) << "row " << i << ", key " << j;
    }
    judge.Number(r.weights[row * n + j], weight[j], slack(j, weight_exponent) + 0x1p-147, "weights",
                 i);
  }
  for (Index c = 0; c < p.v_dim; ++c) {
    double out = 0.0, absolute = 0.0, largest = 0.0;
    for (std::size_t j = 0; j < n; ++j) {
      if (!uniform && !allowed[j]) continue;
      const auto value = static_cast<double>(v(b, g, static_cast<Index>(j), c));
      out += weight[j] * value;
      absolute += value == 0.0 ? 0.0 : slack(j, exponent) * std::fabs(value);
      largest = std::max(largest, std::fabs(value));
    }
    if (nan_row) out = std::nan("");
    judge.Number(r.out[row * static_cast<std::size_t>(p.v_dim) + static_cast<std::size_t>(c)], out,
                 absolute + static_cast<double>(n + 1) * 0x1p-147 * (largest + 0x1p-2), "out", i);
  }
}

}  // namespace attest
