// SPDX-License-Identifier: Apache-2.0
// Attention backward on the CPU: bounds against the certified gradients, exact cases, bits that
// depend on nothing but inputs, junk in masked slots, NaN, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "audit/case_spec.h"
#include "core/digest.h"
#include "optimized/targets.h"
#include "properties/backward_call.h"
#include "properties/backward_case.h"
#include "properties/gradient_case.h"
#include "reference/certify.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void Print(const std::map<std::string, double>& worst) {
  for (const auto& [name, ratio] : worst) std::printf("  %-24s %.3g\n", name.c_str(), ratio);
}

class BackwardFeatures : public ::testing::TestWithParam<std::tuple<ScoreKind, DType>> {};

// Combinations of twelve features, each alone as well.
TEST_P(BackwardFeatures, StayWithinTheirBounds) {
  const auto [score, dtype] = GetParam();
  std::vector<unsigned> combinations;
  for (unsigned features = 1; features < 4096; features += 293) combinations.push_back(features);
  for (unsigned bit = 0; bit < 12; ++bit) combinations.push_back(1u << bit);
  combinations.push_back(3u << 10);  // dropout needs a keep mask, which needs the local window
  std::map<std::string, double> worst;
  for (const unsigned features : combinations) {
    const Case problem = GradientsOnly(CombinedWithGradients(features, score, dtype));
    ExpectWithinBounds(problem, "features " + std::to_string(features), &worst);
  }
  Print(worst);
}

INSTANTIATE_TEST_SUITE_P(All, BackwardFeatures,
                         ::testing::Combine(::testing::Values(ScoreKind::kDot, ScoreKind::kGeneral,
                                                              ScoreKind::kAdditive),
                                            ::testing::Values(DType::kF64, DType::kF32,
                                                              DType::kBF16, DType::kF16)));

// Blocks of 64 queries and 192 keys, tiles and vectors of every length: full, cut and single.
TEST(AttentionBackward, StaysWithinItsBoundForEverySize) {
  std::map<std::string, double> worst;
  for (const Index dim : {1, 2, 3, 5, 15, 16, 17, 31, 33, 64, 65, 127, 129, 257}) {
    ExpectWithinBounds(SpecCase({1, 1, 1, 3, 5, dim, dim, 258 - dim}), "dim " + std::to_string(dim),
                       &worst);
  }
  for (const auto& [q_len, kv_len] : std::initializer_list<std::pair<Index, Index>>{
           {1, 1}, {1, 193}, {63, 192}, {64, 64}, {65, 13}, {130, 200}, {67, 385}}) {
    for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
      ExpectWithinBounds(
          SpecCase({1, 2, 1, q_len, kv_len, 4, 4, 3}, [&](CaseSpec& s) { s.causal = causal; }),
          std::to_string(q_len) + " x " + std::to_string(kv_len), &worst);
    }
  }
  Print(worst);
}

// Every element that sums up products of small integers, halved or not, is exact: q = 0, two keys
// to a query at most, weights 1 and 1/2.
TEST(AttentionBackward, IsExactWhereArithmeticIs) {
  Case problem = SpecCase({1, 1, 1, 70, 70, 4, 4, 3}, [](CaseSpec& s) {
    s.values = Values::kSmallIntegers;
    s.scale = {false, 1.0};
  });
  problem.contract.window = {1, 0};
  for (Index i = 0; i < problem.tensors["q"].size(); ++i) problem.tensors["q"].Set(i, 0.0);
  for (Index i = 0; i < problem.tensors["grad_out"].size(); ++i) {
    problem.tensors["grad_out"].Set(i, static_cast<double>(i % 5 - 2));
  }
  const StatusOr<Certified> certified = Certify(problem, {});
  ASSERT_TRUE(certified.ok());
  Execution execution;
  for (const Mode mode : kModes) {
    for (const auto& [name, tensor] : MustRun(mode, problem, execution)) {
      const auto& values = certified->outputs.at(name).values;
      for (Index i = 0; i < tensor.size(); ++i) {
        ASSERT_EQ(tensor.At(i), values[static_cast<std::size_t>(i)].nearest) << name << " " << i;
      }
    }
  }
}

TEST(AttentionBackward, HasTheSameBitsForAnyNumberOfThreads) {
  for (const ScoreKind score : kScores) {
    const Case problem = LargeCase(score, DType::kF32);
    for (const Mode mode : kModes) {
      Execution one;
      const std::string digest = Sha256(MustRun(mode, problem, one));
      const std::string digest_given = Sha256(MustRunGiven(mode, problem, one));
      for (const int threads : {2, 3, 7}) {
        Execution several(threads);
        EXPECT_EQ(Sha256(MustRun(mode, problem, several)), digest) << threads;
        EXPECT_EQ(Sha256(MustRunGiven(mode, problem, several)), digest_given) << threads;
      }
    }
  }
}

TEST(AttentionBackward, AllocatesOnce) {
  const Case problem = LargeCase(ScoreKind::kDot, DType::kF32);
  Execution execution;
  const std::string digest = Sha256(MustRun(Mode::kFast, problem, execution));
  const std::size_t capacity = execution.workspace.capacity();
  // What an earlier call left in the memory has no influence.
  std::fill_n(execution.workspace.Reserve(capacity), capacity, std::byte{0xff});
  EXPECT_EQ(Sha256(MustRun(Mode::kFast, problem, execution)), digest);
  EXPECT_EQ(execution.workspace.capacity(), capacity);
}

// Bits of `reproducible`: on every target those of the digests below.
TEST(AttentionBackward, IsReproducibleOnEveryTarget) {
  const std::map<std::string, std::string> golden = {
      {"dot f32", "942d22a5eefddab940b968a5abbd1df2272ff711f789556435742e593109eec2"},
      {"dot f64", "2d89490cff088eebcd41da6597e740b6386830af01291961776d1071a1cb80c6"},
      {"dot bf16", "4161b73bd971bf167ddeb05276f4d7dfe1118da2d02848f95518724dcef5533e"},
      {"general f32", "db91ce7871313ec04a4a73339920fc01fb9accb13d6d31310a4975aa3cda3d78"},
      {"general f64", "97f9fe4189fe522bb4781d1f2a140b7608239bc3f8ff9f9faa6ee5626f5e62cb"},
      {"general bf16", "99b6b74cf45130f963d964f4ceeaa45729767fdfe6ad19a17df9c0366003efed"},
      {"additive f32", "e0fa547fa373b3a4c0e2847b9763ae08596b5c85857629f5d2e4cb43e322a600"},
      {"additive f64", "021b01159c4e853c2de4dd55c1ba42c1ce9f8176bf5adf886aca8fe1f8cc954b"},
      {"additive bf16", "16408529a68e5da28022b2fc9ec960379c8244796f8fc1ec621774b6294eaa7d"},
  };
  const char* const scores[] = {"dot", "general", "additive"};
  Execution execution;
  for (const ScoreKind score : kScores) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      const std::string name =
          std::string(scores[static_cast<int>(score)]) + " " + std::string(NameOf(dtype));
      const Case problem = LargeCase(score, dtype);
      for (const std::string_view target : RunnableTargets()) {
        const StatusOr<ScopedTarget> scope = ScopedTarget::Force(target);
        EXPECT_EQ(Sha256(MustRun(Mode::kReproducible, problem, execution)), golden.at(name))
            << name << " on " << target;
      }
    }
  }
}

// A key that is not allowed and a row beyond its length leave no trace, whatever they hold.
TEST(AttentionBackward, NeverReadsJunkIntoResults) {
  for (const bool masked : {false, true}) {
    Case clean = SpecCase({2, 2, 1, 70, 200, 5, 5, 3}, [&](CaseSpec& s) {
      s.grad_lse = true;
      s.softcap = masked ? 2.0 : 0.0;
    });
    // Large, so that products with junk overflow where they are made.
    for (Index i = 0; i < clean.tensors["grad_out"].size(); ++i) {
      clean.tensors["grad_out"].Set(i, 0x1p20 * clean.tensors["grad_out"].At(i));
    }
    const auto lengths = [&](const char* name, double first, double second) {
      clean.tensors[name] = Tensor(DType::kI32, {2});
      clean.tensors[name].Set(0, first);
      clean.tensors[name].Set(1, second);
    };
    lengths("q_lengths", 64, 3);
    if (masked) {
      clean.tensors["mask"] = Tensor(DType::kBool, {2, 1, 70, 200});
      for (Index i = 0; i < 2 * 70 * 200; ++i) {
        clean.tensors["mask"].Set(i, i % 200 < (i < 70 * 200 ? 192 : 50) ? 1.0 : 0.0);
      }
    } else {
      lengths("kv_lengths", 192, 50);
    }
    ASSERT_TRUE(FinishCase(&clean).ok());
    Execution execution;
    for (const Mode mode : kModes) {
      const std::string digest = Sha256(MustRun(mode, clean, execution));
      const std::string digest_given = Sha256(MustRunGiven(mode, clean, execution));
      for (const double junk : {kNaN, kInfinity, -kInfinity, 3e38}) {
        Case dirty = clean;
        const auto spoil = [&](const char* name, Index rows, Index width, Index first,
                               Index second) {
          Tensor& tensor = dirty.tensors[name];
          for (Index i = 0; i < tensor.size(); ++i) {
            const Index row = i / width % rows;
            const bool of_first = i < tensor.size() / 2;
            if (row >= (of_first ? first : second)) tensor.Set(i, junk);
          }
        };
        spoil("q", 70, 5, 64, 3);
        spoil("grad_out", 70, 3, 64, 3);
        spoil("grad_lse", 70, 1, 64, 3);
        spoil("k", 200, 5, 192, 50);
        spoil("v", 200, 3, 192, 50);
        EXPECT_EQ(Sha256(MustRun(mode, dirty, execution)), digest) << junk << " " << masked;
        EXPECT_EQ(Sha256(MustRunGiven(mode, dirty, execution)), digest_given)
            << junk << " " << masked;
      }
    }
  }
}

// NaN reaches what a poisoned row reaches, as the reference says, and nothing else.
TEST(AttentionBackward, PropagatesNaNLikeTheReference) {
  Execution execution;
  for (const ScoreKind score : kScores) {
    Case problem = SpecCase({2, 4, 2, 6, 9, 4, 4, 3}, [&](CaseSpec& s) {
      s.score = score;
      s.mask = true;
      s.bias = true;
      s.sinks = true;
      s.grad_lse = true;
      s.causal = Causal::kBottomRight;
    });
    for (const auto& [name, tensor] : TensorMap(problem.tensors)) {
      if (tensor.dtype() == DType::kBool || tensor.dtype() == DType::kI32) continue;
      for (const double bad : {kNaN, kInfinity}) {
        Case poisoned = problem;
        poisoned.tensors[name].Set(tensor.size() / 2, bad);
        if (!FinishCase(&poisoned).ok()) continue;
        const StatusOr<Certified> certified = Certify(poisoned, {});
        ASSERT_TRUE(certified.ok()) << certified.status().message();
        const auto expect = [&](const TensorMap& outputs) {
          for (const auto& [output, got] : outputs) {
            const auto& values = certified->outputs.at(output).values;
            for (Index i = 0; i < got.size(); ++i) {
              ASSERT_EQ(std::isnan(got.At(i)),
                        std::isnan(values[static_cast<std::size_t>(i)].nearest))
                  << name << " = " << bad << ", " << output << " " << i << ", score "
                  << static_cast<int>(score);
            }
          }
        };
        for (const Mode mode : kModes) {
          expect(MustRun(mode, poisoned, execution));
          expect(MustRunGiven(mode, poisoned, execution));
        }
      }
    }
  }
}

TEST(AttentionBackward, TakesAnyStrides) {
  const Case problem = SpecCase({2, 3, 3, 5, 7, 4, 4, 6});
  Execution execution;
  const TensorMap dense = MustRun(Mode::kFast, problem, execution);
  // q, grad_out and grad_q stored as [B, T, H, D] with T from last to first.
  const auto permuted = [](const Tensor& from) {
    const Shape& s = from.shape();
    Tensor to(from.dtype(), {s[0], s[2], s[1], s[3]});
    for (Index i = 0; i < from.size(); ++i) {
      const std::vector<Index> at = Unflatten(i, s);
      to.Set(((at[0] * s[2] + (s[2] - 1 - at[2])) * s[1] + at[1]) * s[3] + at[3], from.At(i));
    }
    return to;
  };
  const auto view = [](Tensor& tensor) {  // of what `permuted` gives
    const Shape& s = tensor.shape();
    Output<4> output = OutputOf<4>(tensor);
    output.data = tensor.bytes() + (s[1] - 1) * s[2] * s[3] * 4;
    output.shape = {s[0], s[2], s[1], s[3]};
    output.strides = {s[1] * s[2] * s[3], s[3], -s[2] * s[3], 1};
    return output;
  };
  const auto as_input = [](const Output<4>& o) {
    return Input<4>(o.data, o.dtype, o.shape, o.strides);
  };
  Tensor q = permuted(*problem.Find("q"));
  Tensor grad_out = permuted(*problem.Find("grad_out"));
  Tensor grad_q = permuted(dense.at("grad_q"));
  for (Index i = 0; i < grad_q.size(); ++i) grad_q.Set(i, kNaN);
  AttentionArgs args = ArgsOf(problem);
  args.q = as_input(view(q));
  AttentionGradients gradients;
  gradients.grad_out = as_input(view(grad_out));
  gradients.grad_q = view(grad_q);
  ASSERT_TRUE(AttentionBackward(Mode::kFast, args, gradients, execution).ok());
  EXPECT_EQ(ToDoubles(grad_q), ToDoubles(permuted(dense.at("grad_q"))));
}

TEST(AttentionBackward, TakesSizesOfZero) {
  Execution execution;
  for (const Dimensions& shape :
       {Dimensions{0, 2, 1, 3, 4, 2, 2, 2}, Dimensions{1, 2, 1, 0, 4, 2, 2, 2},
        Dimensions{1, 2, 1, 3, 0, 2, 2, 2}}) {
    for (const ScoreKind score : kScores) {
      const Case problem = SpecCase(shape, [&](CaseSpec& s) { s.score = score; });
      for (const auto& [name, tensor] : MustRun(Mode::kFast, problem, execution)) {
        for (Index i = 0; i < tensor.size(); ++i) EXPECT_EQ(tensor.At(i), 0.0) << name;
      }
    }
  }
}

TEST(AttentionBackward, NamesWhatItRefuses) {
  const Case problem = SpecCase({1, 2, 1, 3, 4, 2, 2, 2});
  Execution execution;
  Tensor wrong(DType::kF32, {1, 2, 3, 3});
  Tensor integers(DType::kI32, {1, 2, 3, 2});
  Tensor vector(DType::kF32, {2});
  const Tensor right(DType::kF32, {1, 2, 3, 2});
  const Tensor rows(DType::kF32, {1, 2, 3});
  const auto refusal = [&](const std::function<void(AttentionArgs&, AttentionGradients&)>& change) {
    AttentionArgs args = ArgsOf(problem);
    AttentionGradients gradients;
    change(args, gradients);
    const Status status = AttentionBackward(Mode::kFast, args, gradients, execution);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.grad_q = OutputOf<4>(wrong); }),
            "attention: grad_q has shape [1, 2, 3, 3], expected [1, 2, 3, 2]");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.grad_out = InputOf<4>(wrong); }),
            "attention: grad_out has shape [1, 2, 3, 3], expected [1, 2, 3, 2]");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.grad_out = InputOf<4>(integers); }),
            "attention: grad_out has element type i32, expected f32");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.grad_q = OutputOf<4>(integers); }),
            "attention: grad_q is not of a floating type");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.grad_sinks = OutputOf<1>(vector); }),
            "attention: grad_sinks is asked for, but not its tensor given");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.grad_bias = OutputOf<4>(wrong); }),
            "attention: grad_bias is asked for, but not its tensor given");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.out = InputOf<4>(right); }),
            "attention: out is given, but not lse");
  EXPECT_EQ(refusal([&](auto&, auto& g) { g.lse = InputOf<3>(rows); }),
            "attention: lse is given, but not out");
  const auto refusal_of = [&](const Tensor& out, const Tensor& lse) {
    return refusal([&](auto&, auto& g) { g.out = InputOf<4>(out), g.lse = InputOf<3>(lse); });
  };
  EXPECT_EQ(refusal_of(wrong, rows),
            "attention: out has shape [1, 2, 3, 3], expected [1, 2, 3, 2]");
  EXPECT_EQ(refusal_of(integers, rows), "attention: out is not of a floating type");
  EXPECT_EQ(refusal_of(right, Tensor(DType::kF32, {1, 2, 2})),
            "attention: lse has shape [1, 2, 2], expected [1, 2, 3]");
  EXPECT_EQ(refusal_of(right, Tensor(DType::kF64, {1, 2, 3})),
            "attention: lse has element type f64, expected f32");
  EXPECT_EQ(refusal([&](auto& a, auto&) { a.dropout_rate = 1.0, a.softcap = -1.0; }),
            "attention: the soft cap must be 0 (none) or positive and finite");
}

}  // namespace
}  // namespace attest
