// SPDX-License-Identifier: Apache-2.0
// The attention kernels of every SIMD target: within the bounds of their headers, and exact in
// masks, empty rows, special values and views.
#include "optimized/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "optimized/kernels.h"
#include "optimized/targets.h"
#include "properties/optimized_attention_problem.h"

namespace attest {
namespace {

using Param = std::tuple<std::string_view, std::string_view>;

std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  std::string name =
      std::string(std::get<0>(info.param)) + "_" + std::string(std::get<1>(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Attention : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    StatusOr<ScopedTarget> forced = ScopedTarget::Force(std::get<0>(GetParam()));
    ASSERT_TRUE(forced.ok()) << forced.status().message();
    scope_.emplace(std::move(forced).value());
  }

  static AttentionAlgorithm algorithm() {
    return FindKernel(std::get<1>(GetParam())).value().algorithm;
  }

  // Runs, judges every element, checks that weights do not change the rest; returns the result.
  Result Check(const Problem& p) {
    const Result r = Attend(algorithm(), ArgsOf(p), p);
    Judge judge;
    for (Index b = 0; b < p.batch; ++b) {
      for (Index h = 0; h < p.q_heads; ++h) {
        for (Index i = 0; i < p.q_len; ++i) JudgeRow(algorithm(), p, r, b, h, i, judge);
      }
    }
    for (const auto& [name, ratio] : judge.worst) worst_[name] = std::max(worst_[name], ratio);
    const Result plain = Attend(algorithm(), ArgsOf(p), p, false);
    EXPECT_TRUE(SameBits(plain.out, r.out) && SameBits(plain.lse, r.lse));
    return r;
  }

  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
  }

  std::map<std::string, double> worst_;  // error/bound by tensor

 private:
  std::optional<ScopedTarget> scope_;
};

Problem MakeProblem(Index q_len, Index kv_len, Index qk_dim, Index v_dim, double amplitude = 3.0) {
  Problem p;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.qk_dim = qk_dim;
  p.v_dim = v_dim;
  p.Fill(amplitude, static_cast<std::uint32_t>(q_len * 31 + kv_len * 7 + qk_dim + v_dim));
  return p;
}

TEST_P(Attention, StaysWithinItsBoundForEverySize) {
  for (Index t = 0; t <= 70; ++t) Check(MakeProblem(2, t, 5, 3));
  for (Index d = 1; d <= 70; ++d) Check(MakeProblem(2, 9, d, 71 - d));
  for (Index t = 0; t <= 40; ++t) Check(MakeProblem(t, 11, 4, 4));
  for (const double amplitude : {0.0, 1e-3, 30.0, 1000.0, 1e20}) {
    Check(MakeProblem(20, 300, 17, 33, amplitude));
  }
  std::printf("attention %s: largest error/bound: out %.3f, lse %.3f, weights %.3f\n",
              NameOf(::testing::TestParamInfo<Param>(GetParam(), 0)).c_str(), worst_["out"],
              worst_["lse"], worst_["weights"]);
}

TEST_P(Attention, CausalCornersFollowTheLengths) {
  for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
    for (Index size = 0; size < 25; ++size) {
      Problem p = MakeProblem(size % 5, size / 5, 2, 2, 0.0);
      p.causal = causal;
      Check(p);
      for (Index lengths = 0; lengths < (p.q_len + 1) * (p.kv_len + 1); ++lengths) {
        p.q_lengths = {static_cast<std::int32_t>(lengths % (p.q_len + 1))};
        p.kv_lengths = {static_cast<std::int32_t>(lengths / (p.q_len + 1))};
        const Result r = Check(p);
        for (Index i = 0; i < p.q_len; ++i) {  // equal scores: exactly 1/count
          Index count = 0;
          for (Index j = 0; j < p.kv_len; ++j) count += p.Allowed(0, 0, i, j) ? 1 : 0;
          for (Index j = 0; j < p.kv_len; ++j) {
            EXPECT_EQ(r.weights[static_cast<std::size_t>(i * p.kv_len + j)],
                      p.Allowed(0, 0, i, j) ? 1.0f / static_cast<float>(count) : 0.0f);
          }
        }
      }
    }
    Problem p = MakeProblem(150, 140, 8, 8);  // several blocks of keys and of queries
    p.causal = causal;
    Check(p);
  }
}

TEST_P(Attention, ForbiddenKeysAreNeverRead) {
  Problem p = MakeProblem(19, 150, 7, 20);
  p.batch = 2;
  p.Fill(2.0, 5);
  p.kv_lengths = {100, 131};
  p.bias.assign(Size(p.score_shape()), 0.25f);
  p.mask.assign(Size(p.score_shape()), 1);
  for (std::size_t n = 0; n < p.mask.size(); ++n) {
    const std::size_t j = n % 150;
    if (j % 5 == 2 || (j >= 64 && j < 128)) p.mask[n] = 0;
    if (j % 7 == 3) p.bias[n] = -kInfinity;
  }
  const Result clean = Check(p);
  for (const float junk : {kNan, kInfinity, -kInfinity, 3e38f}) {
    for (Index b = 0; b < 2; ++b) {
      for (Index j = 0; j < 150; ++j) {
        if (p.Allowed(b, 0, 0, j)) continue;
        for (Index c = 0; c < 7; ++c) Dense(p.k.data(), p.k_shape())(b, 0, j, c) = junk;
        for (Index c = 0; c < 20; ++c) Dense(p.v.data(), p.v_shape())(b, 0, j, c) = junk;
      }
    }
    for (std::size_t n = 0; n < p.bias.size(); ++n) {
      if (p.mask[n] == 0) p.bias[n] = junk;
    }
    EXPECT_EQ(Check(p), clean) << junk;
  }
}

TEST_P(Attention, EmptyRowsFollowTheirPolicy) {
  for (const EmptyRow policy : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
    for (const Index kv_len : {0, 1, 4, 70}) {
      Problem p = MakeProblem(5, kv_len, 3, 18);
      p.empty_row = policy;
      p.q_lengths = {3};  // rows 3 and 4
      p.mask.assign(Size(p.score_shape()), 1);
      for (Index j = 0; j < kv_len; ++j) p.mask[static_cast<std::size_t>(kv_len + j)] = 0;  // row 1
      p.bias.assign(p.mask.size(), 0.0f);
      for (Index j = 0; j < kv_len; ++j) p.bias[static_cast<std::size_t>(j)] = -kInfinity;  // row 0
      Check(p);
      if (kv_len == 0) continue;
      p.v[0] = 3e38f;  // a mean whose plain float sum would overflow
      for (std::size_t j = 1; j < static_cast<std::size_t>(kv_len); ++j) p.v[j * 18] = 3e38f;
      p.kv_lengths = {0};
      Check(p);
      p.v[1] = kNan;
      p.v[2] = kInfinity;
      const Result r = Check(p);
      EXPECT_EQ(std::isnan(r.out[1]), policy != EmptyRow::kZero);
      if (policy == EmptyRow::kUniform) {
        EXPECT_EQ(r.out[2], kInfinity);
      }
    }
  }
}

TEST_P(Attention, SpecialScoresAndValuesFollowIeee) {
  for (const Index place : {0, 5, 63, 64, 129}) {
    for (const float special : {kNan, kInfinity, -kInfinity}) {
      Problem p = MakeProblem(3, 130, 1, 17);
      p.q = {1.0f, -1.0f, 0.0f};  // scores +-special, NaN
      p.causal = Causal::kNone;
      p.mask.assign(Size(p.score_shape()), 1);
      p.mask[7] = p.mask[130 + 100] = 0;
      p.k[static_cast<std::size_t>(place)] = special;
      Check(p);
      p.k[static_cast<std::size_t>(place)] = 0.5f;
      p.v[static_cast<std::size_t>(place) * 17 + 4] = special;
      Check(p);
      p.bias.assign(p.mask.size(), 0.0f);
      p.bias[static_cast<std::size_t>(place)] = special;  // NaN takes part, -inf excludes
      Check(p);
    }
    // Weight 0, by underflow, times NaN.
    Problem p = MakeProblem(1, 130, 1, 2, 0.0);
    p.bias.assign(130, 0.0f);
    p.bias[static_cast<std::size_t>(place)] = -500.0f;
    p.v[static_cast<std::size_t>(place) * 2] = kNan;
    const Result r = Check(p);
    EXPECT_TRUE(std::isnan(r.out[0]));
    EXPECT_EQ(r.weights[static_cast<std::size_t>(place)], 0.0f);
  }
  // All allowed scores -inf: NaN, unlike an empty row.
  for (const Index kv_len : {1, 64, 65, 200}) {
    Problem p = MakeProblem(2, kv_len, 1, 3);
    p.k.assign(p.k.size(), -kInfinity);
    p.q = {1.0f, 1.0f};
    p.kv_lengths = {static_cast<std::int32_t>(kv_len - kv_len / 4)};
    const Result r = Check(p);
    EXPECT_TRUE(std::isnan(r.out[0]) && std::isnan(r.lse[0]) && std::isnan(r.weights[0]));
  }
}

TEST_P(Attention, ScaleAvoidsOverflow) {
  Problem p = MakeProblem(3, 70, 4, 4);
  for (const double scale : {0.0, 1.0, -0.75, 3.0, -1e3, 0.1}) {
    p.scale = scale;
    Check(p);
  }
  Problem small_scale = p;  // unscaled products exceed the largest float
  for (float& x : small_scale.q) x *= 1e30f;
  for (float& x : small_scale.k) x *= 1e9f;
  small_scale.scale = 2e-38;
  Check(small_scale);
  Problem large_scale = p;  // scaled queries exceed it
  for (float& x : large_scale.q) x *= 1e14f;
  for (float& x : large_scale.k) x *= 1e-37f;
  large_scale.scale = 1e25;
  Check(large_scale);
}

TEST_P(Attention, HeadsShareKeysInGroups) {
  Problem p = MakeProblem(2, 5, 3, 17);
  p.batch = 2;
  p.q_heads = 6;
  p.kv_heads = 3;
  p.Fill(2.0, 9);
  Check(p);
  for (std::size_t n = 0; n < p.v.size(); ++n) {
    const std::size_t head = n / (std::size_t{5} * 17);  // b * 3 + g
    p.v[n] = static_cast<float>(head + 1);
  }
  for (float& x : p.q) x = 0.0f;
  p.kv_lengths = {4, 4};
  const Result r = Check(p);
  for (std::size_t n = 0; n < r.out.size(); ++n) {
    const std::size_t shared = n / (std::size_t{2} * 17) / 2;  // (b * 6 + h) / 2
    EXPECT_EQ(r.out[n], static_cast<float>(shared + 1));
  }
}

TEST_P(Attention, OneHotWeightsCopyValues) {
  Problem p = MakeProblem(64, 64, 64, 19);
  p.q.assign(p.q.size(), 0.0f);
  p.k.assign(p.k.size(), 0.0f);
  for (std::size_t i = 0; i < 64; ++i) p.q[i * 65] = p.k[i * 65] = 64.0f;
  const Result r = Check(p);
  EXPECT_EQ(r.out, p.v);
}

TEST_P(Attention, ReadsStridedAndBroadcastViews) {
  Problem p = MakeProblem(5, 70, 6, 18);
  p.batch = 2;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.Fill(2.0, 21);
  p.mask.assign(Size(p.score_shape()), 1);
  p.bias.assign(Size(p.score_shape()), 0.0f);
  std::vector<std::uint8_t> row_mask(70);
  std::vector<float> head_bias = {0.5f, -1.0f, 0.0f, 2.0f}, key_bias(70);
  for (std::size_t j = 0; j < 70; ++j) row_mask[j] = j % 4 != 1;
  for (std::size_t n = 0; n < p.mask.size(); ++n) {
    p.mask[n] = row_mask[n % 70];
    p.bias[n] = head_bias[n / (std::size_t{5} * 70) % 4];
  }
  const Result dense = Check(p);

  AttentionArgs args = ArgsOf(p);
  args.mask =
      BroadcastTo(View<const std::uint8_t, 4>{row_mask.data(), {1, 1, 1, 70}, {70, 70, 70, 1}},
                  p.score_shape());
  args.bias = BroadcastTo(View<const float, 4>{head_bias.data(), {1, 4, 1, 1}, {4, 1, 1, 1}},
                          p.score_shape());
  EXPECT_EQ(Attend(algorithm(), args, p), dense);

  // q and v stored as [B, T, H, D] with gaps, k backwards in j.
  const auto store = [](const std::vector<float>& from, const Shape4& shape,
                        std::vector<float>& to) {
    const Index pad = shape[3] + 3;
    to.assign(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * pad), kNan);
    const View<float, 4> view{
        to.data(), shape, {shape[2] * shape[1] * pad, pad, shape[1] * pad, 1}};
    for (std::size_t n = 0; n < from.size(); ++n) {
      const auto at = static_cast<Index>(n);
      view(at / (shape[1] * shape[2] * shape[3]), at / (shape[2] * shape[3]) % shape[1],
           at / shape[3] % shape[2], at % shape[3]) = from[n];
    }
    return view;
  };
  std::vector<float> q, k, v;
  args.q = store(p.q, p.q_shape(), q);
  args.v = store(p.v, p.v_shape(), v);
  const Shape4 k_shape = p.k_shape();
  std::vector<float> reversed(p.k.size());
  for (std::size_t n = 0; n < p.k.size(); ++n) {
    const std::size_t block = std::size_t{70} * 6, j = n % block / 6;
    reversed[n / block * block + (69 - j) * 6 + n % 6] = p.k[n];
  }
  args.k = Dense<const float>(reversed.data() + std::ptrdiff_t{69} * 6, k_shape);
  args.k.strides[2] = -6;
  EXPECT_EQ(Attend(algorithm(), args, p), dense);

  // One key/value head for all, and one key for all positions, by stride 0.
  Problem same = p;
  for (std::size_t n = 0; n < p.v.size(); ++n) {
    same.k[n % p.k.size()] = p.k[n % p.k.size() % 6];
    same.v[n] = p.v[n % 18];
  }
  args = ArgsOf(same);
  args.k.strides = args.v.strides = {0, 0, 0, 1};
  EXPECT_EQ(Attend(algorithm(), args, same), Check(same));

  // Outputs of any strides: out as [B, Tq, Hq, Dv], weights with keys outermost.
  Result r;
  r.out.assign(dense.out.size(), kJunk);
  r.weights.assign(dense.weights.size(), kJunk);
  const View<float, 4> out{r.out.data(), p.out_shape(), {360, 18, 72, 1}};
  const View<float, 4> weights{r.weights.data(), p.score_shape(), {20, 5, 1, 40}};
  ASSERT_TRUE(AttentionForward(algorithm(), ArgsOf(p), {out, std::nullopt, weights}).ok());
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 4; ++h) {
      for (Index i = 0; i < 5; ++i) {
        for (Index c = 0; c < 18; ++c) {
          EXPECT_EQ(out(b, h, i, c), Dense(dense.out.data(), p.out_shape())(b, h, i, c));
        }
        for (Index j = 0; j < 70; ++j) {
          EXPECT_EQ(weights(b, h, i, j), Dense(dense.weights.data(), p.score_shape())(b, h, i, j));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Attention,
                         ::testing::Combine(::testing::ValuesIn(RunnableTargets()),
                                            ::testing::Values("materialised", "materialised-online",
                                                              "tiled")),
                         NameOf);

TEST(AttentionBits, DependOnlyOnWhetherMulAddIsFused) {
  Problem p = MakeProblem(20, 200, 33, 35, 20.0);
  for (const KernelInfo& kernel : Kernels()) {
    std::optional<Result> fused, unfused;
    for (const std::string_view name : RunnableTargets()) {
      const auto scope = ScopedTarget::Force(name);
      const Result r = Attend(kernel.algorithm, ArgsOf(p), p);
      std::optional<Result>& first = name.starts_with("AVX") ? fused : unfused;
      if (!first) first = r;
      EXPECT_EQ(r, *first) << kernel.name << " on " << name;
    }
  }
}

TEST(AttentionArguments, AreChecked) {
  const Problem p = MakeProblem(2, 3, 4, 5);
  std::vector<float> out(10), weights(6);
  const AttentionOutputs outputs{Dense(out.data(), p.out_shape()), std::nullopt, std::nullopt};
  const auto code = [](const AttentionArgs& args, const AttentionOutputs& o) {
    return AttentionForward(AttentionAlgorithm::kTiled, args, o).code();
  };
  const AttentionArgs good = ArgsOf(p);
  EXPECT_EQ(code(good, outputs), StatusCode::kOk);
  AttentionArgs args = good;
  args.k.shape[3] = 3;
  EXPECT_EQ(code(args, outputs), StatusCode::kInvalidArgument);
  args = good;
  args.q.strides[3] = 2;
  EXPECT_EQ(code(args, outputs), StatusCode::kInvalidArgument);
  args = good;
  args.v.data = nullptr;
  EXPECT_EQ(code(args, outputs), StatusCode::kInvalidArgument);
  args = good;
  args.bias = args.q;
  EXPECT_EQ(code(args, outputs), StatusCode::kInvalidArgument);
  for (const std::int32_t length : {-1, 4}) {
    args = good;
    args.kv_lengths = &length;
    EXPECT_EQ(code(args, outputs), StatusCode::kInvalidArgument);
  }
  args = good;
  args.scale = HUGE_VAL;
  EXPECT_EQ(code(args, outputs), StatusCode::kInvalidArgument);
  args.scale = 1e-300;
  EXPECT_EQ(code(args, outputs), StatusCode::kUnsupported);
  AttentionOutputs bad = outputs;
  bad.out.strides[2] = 0;
  EXPECT_EQ(code(good, bad), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindKernel("tiled").value().algorithm, AttentionAlgorithm::kTiled);
  EXPECT_FALSE(FindKernel("no such kernel").has_value());
}

}  // namespace
}  // namespace attest
