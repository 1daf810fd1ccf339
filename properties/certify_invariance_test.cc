// SPDX-License-Identifier: Apache-2.0
// What must not change a certified value: the order of keys, how a case is cut into cases, threads,
// SIMD targets, the rung that the ladder starts on, and whatever forbidden keys hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "optimized/targets.h"
#include "properties/gradient_case.h"
#include "properties/tensor_axis.h"
#include "reference/certify.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Which axis of a tensor or an output is the batch, the query head, the key/value head, the query
// and the key; -1 where it has none.
struct Axes {
  int batch = -1, q_head = -1, kv_head = -1, query = -1, key = -1;
};
Axes AxesOf(const std::string& name) {
  static const std::map<std::string, Axes> axes{
      {"q", {0, 1, -1, 2, -1}},
      {"k", {0, -1, 1, -1, 2}},
      {"v", {0, -1, 1, -1, 2}},
      {"mask", {0, 1, -1, 2, 3}},
      {"bias", {0, 1, -1, 2, 3}},
      {"keep", {0, 1, -1, 2, 3}},
      {"kv_lengths", {0, -1, -1, -1, -1}},
      {"q_lengths", {0, -1, -1, -1, -1}},
      {"q_documents", {0, -1, -1, 1, -1}},
      {"kv_documents", {0, -1, -1, -1, 1}},
      {"alibi_slopes", {-1, 0, -1, -1, -1}},
      {"sinks", {-1, 0, -1, -1, -1}},
      {"local_center", {0, 1, -1, 2, -1}},
      {"grad_out", {0, 1, -1, 2, -1}},
      {"grad_lse", {0, 1, -1, 2, -1}},
      {"out", {0, 1, -1, 2, -1}},
      {"lse", {0, 1, -1, 2, -1}},
      {"weights", {0, 1, -1, 2, 3}},
  };
  const bool gradient = name.starts_with("grad_") && !axes.contains(name);
  return axes.at(gradient ? name.substr(5) : name);
}

// The part `from` along an axis; tensors without it, or with length 1 there, stay whole.
Tensor Part(const Tensor& tensor, int axis, const std::vector<Index>& from) {
  const auto at = static_cast<std::size_t>(axis);
  return axis < 0 || tensor.shape()[at] == 1 ? tensor : Gather(tensor, at, from);
}

// The nearest values of an output as a tensor of doubles.
Tensor Nearest(const Certified& certified, const std::string& output) {
  const CertifiedTensor& values = certified.outputs.at(output);
  Tensor tensor(DType::kF64, values.shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, values.values[static_cast<std::size_t>(i)].nearest);
  }
  return tensor;
}

bool Same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

void ExpectSame(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  for (Index i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(Same(got.At(i), want.At(i)))
        << what << " element " << i << ": " << got.At(i) << " against " << want.At(i);
  }
}

Certified MustCertify(const Case& problem, const CertifyOptions& options = {}) {
  StatusOr<Certified> certified = Certify(problem, options);
  EXPECT_TRUE(certified.ok()) << certified.status().message();
  return *std::move(certified);
}

void Finish(Case* problem) {
  std::erase_if(problem->contract.outputs, [&](const std::string& output) {
    return output.starts_with("grad_") && problem->Find(output.substr(5)) == nullptr;
  });
  const Status finished = FinishCase(problem);
  ASSERT_TRUE(finished.ok()) << finished.message();
}

// Features, type and shape of draw `i`, with all outputs; every other bias is not broadcast.
struct Draw {
  Case problem;
  std::string name;
};
Draw DrawCase(int i) {
  constexpr std::array kTypes{DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
  const RandomStream stream(0, "certify invariance", "features");
  const auto index = static_cast<std::uint64_t>(i);
  const auto features = static_cast<unsigned>(stream.Below(2 * index, 4096));
  const DType dtype = kTypes[index % 4];
  const Dimensions small{2, 4, 2, 5, 7, 6, 6, 3};
  const Dimensions wide{2, 2, 1, 9, 37, 5, 5, 2};
  const Dimensions& shape = i / 4 % 3 == 2 ? wide : small;
  Draw draw{CombinedWithGradients(features, ScoreKind::kDot, dtype, shape),
            "draw " + std::to_string(i) + " features " + std::to_string(features)};
  Case& problem = draw.problem;
  problem.contract.empty_row = static_cast<EmptyRow>(features / 3 % 3);
  problem.contract.outputs.push_back("weights");
  if (problem.Find("bias") != nullptr && stream.Below(2 * index + 1, 2) == 0) {
    Tensor bias = NormalTensor(problem.contract.wide_dtype(),
                               {shape.batch, shape.q_heads, shape.q_len, shape.kv_len}, "bias");
    for (Index at = 0; at < bias.size(); at += 11) bias.Set(at, -kInfinity);
    for (Index at = 5; at < bias.size(); at += 13) bias.Set(at, -1e9);
    problem.tensors["bias"] = std::move(bias);
  }
  Finish(&problem);
  return draw;
}

// Leaves out what depends on the positions of keys and queries.
void ForgetPositions(Case* problem) {
  Contract& contract = problem->contract;
  contract.causal = Causal::kNone;
  contract.window = Contract{}.window;
  contract.alibi = Alibi::kUnset;
  contract.local.reset();
  for (const char* name : {"alibi_slopes", "local_center", "kv_lengths", "q_lengths"}) {
    problem->tensors.erase(name);
  }
  Finish(problem);
}

TEST(CertifyInvariance, PermutedKeysPermuteTheValues) {
  for (int i = 0; i < 240; ++i) {
    Draw draw = DrawCase(i);
    ForgetPositions(&draw.problem);
    const RandomStream stream(static_cast<std::uint64_t>(i), "certify invariance", "order");
    std::vector<Index> order = Indices(0, draw.problem.contract.shape.kv_len);
    for (std::size_t j = order.size(); j > 1; --j) {
      std::swap(order[j - 1], order[stream.Below(j, j)]);
    }
    Case permuted = draw.problem;
    for (auto& [name, tensor] : permuted.tensors) tensor = Part(tensor, AxesOf(name).key, order);
    const Certified before = MustCertify(draw.problem);
    const Certified after = MustCertify(permuted);
    for (const std::string& output : draw.problem.contract.outputs) {
      ExpectSame(Nearest(after, output), Part(Nearest(before, output), AxesOf(output).key, order),
                 draw.name + " " + output);
    }
  }
}

// Certifies one part of `whole` along the axis that `axis` names and compares the outputs that have
// the axis; `length` is the part's field of the shape.
void ExpectPart(const Draw& whole, const Certified& certified, const std::vector<Index>& part,
                const std::vector<Index>& kv_part, int Axes::* axis, const Dimensions& shape) {
  Case problem = whole.problem;
  problem.contract.shape = shape;
  const auto cut = [&](const Tensor& tensor, const std::string& name) {
    const Axes axes = AxesOf(name);
    if (axis == &Axes::q_head && axes.kv_head >= 0) return Part(tensor, axes.kv_head, kv_part);
    return Part(tensor, axes.*axis, part);
  };
  for (auto& [name, tensor] : problem.tensors) tensor = cut(tensor, name);
  // Gradients that sum over what was cut apart are no part of the whole.
  std::erase_if(problem.contract.outputs, [&](const std::string& output) {
    const Axes axes = AxesOf(output);
    if (axis == &Axes::q_head && axes.kv_head >= 0) return false;
    if (axes.*axis < 0) return true;
    const Shape& of = certified.outputs.at(output).shape;
    return output == "grad_bias" && of[static_cast<std::size_t>(axes.*axis)] == 1;
  });
  Finish(&problem);
  const Certified got = MustCertify(problem);
  for (const std::string& output : problem.contract.outputs) {
    ExpectSame(Nearest(got, output), cut(Nearest(certified, output), output),
               whole.name + " " + output);
  }
}

TEST(CertifyInvariance, BatchesStandAlone) {
  for (int i = 0; i < 200; ++i) {
    const Draw draw = DrawCase(i);
    const Certified whole = MustCertify(draw.problem);
    Dimensions shape = draw.problem.contract.shape;
    const Index batches = std::exchange(shape.batch, 1);
    for (Index b = 0; b < batches; ++b) {
      ExpectPart(draw, whole, {b}, {}, &Axes::batch, shape);
    }
  }
}

TEST(CertifyInvariance, HeadGroupsStandAlone) {
  for (int i = 0; i < 200; ++i) {
    Draw draw = DrawCase(i);
    Contract& contract = draw.problem.contract;
    // Default slopes depend on the number of heads.
    if (draw.problem.Find("alibi_slopes") == nullptr) contract.alibi = Alibi::kUnset;
    Finish(&draw.problem);
    const Certified whole = MustCertify(draw.problem);
    Dimensions shape = contract.shape;
    const Index groups = std::exchange(shape.kv_heads, 1);
    shape.q_heads /= groups;
    for (Index g = 0; g < groups; ++g) {
      ExpectPart(draw, whole, Indices(g * shape.q_heads, shape.q_heads), {g}, &Axes::q_head, shape);
    }
  }
}

TEST(CertifyInvariance, QueriesStandAlone) {
  for (int i = 0; i < 200; ++i) {
    Draw draw = DrawCase(i);
    ForgetPositions(&draw.problem);
    const Certified whole = MustCertify(draw.problem);
    Dimensions shape = draw.problem.contract.shape;
    const Index queries = shape.q_len;
    for (const auto& [first, count] : {std::pair{Index{0}, Index{3}}, {Index{3}, queries - 3}}) {
      shape.q_len = count;
      ExpectPart(draw, whole, Indices(first, count), {}, &Axes::query, shape);
    }
  }
}

TEST(CertifyInvariance, ThreadsChangeNothing) {
  for (int i = 0; i < 120; ++i) {
    const Draw draw = DrawCase(i);
    CertifyOptions options;
    options.conditions = true;
    const Certified one = MustCertify(draw.problem, options);
    for (const int threads : {2, 3, 7}) {
      options.threads = threads;
      const Certified got = MustCertify(draw.problem, options);
      ASSERT_EQ(got.undecided, one.undecided);
      ASSERT_EQ(got.largest_precision, one.largest_precision);
      for (const auto& [name, tensor] : one.outputs) {
        for (std::size_t at = 0; at < tensor.values.size(); ++at) {
          const CertifiedValue& a = tensor.values[at];
          const CertifiedValue& b = got.outputs.at(name).values[at];
          ASSERT_TRUE(Same(a.nearest, b.nearest) && Same(a.hi, b.hi) && Same(a.lo, b.lo) &&
                      Same(a.radius, b.radius) && a.rung == b.rung && a.decided == b.decided)
              << draw.name << " " << name << " element " << at;
        }
      }
      ASSERT_EQ(got.conditions.allowed, one.conditions.allowed);
      for (std::size_t at = 0; at < one.conditions.allowed.size(); ++at) {
        if (one.conditions.allowed[at] == 0) continue;
        const auto same = [&](std::vector<double> Conditions::* field) {
          return Same((one.conditions.*field)[at], (got.conditions.*field)[at]);
        };
        ASSERT_TRUE(same(&Conditions::weight) && same(&Conditions::log_weight) &&
                    same(&Conditions::score_condition))
            << draw.name << " condition " << at;
      }
    }
  }
}

TEST(CertifyInvariance, TargetsAgree) {
  for (int i = 0; i < 120; ++i) {
    const Draw draw = DrawCase(i);
    const Certified best = MustCertify(draw.problem);
    for (const std::string_view target : RunnableTargets()) {
      const StatusOr<ScopedTarget> scope = ScopedTarget::Force(target);
      ASSERT_TRUE(scope.ok());
      const Certified got = MustCertify(draw.problem);
      for (const std::string& output : draw.problem.contract.outputs) {
        ExpectSame(Nearest(got, output), Nearest(best, output),
                   draw.name + " " + output + " on " + std::string(target));
      }
    }
  }
}

// Both enclosures hold the exact value, so that they overlap.
void ExpectOverlap(const CertifiedTensor& a, const CertifiedTensor& b, const std::string& what) {
  for (std::size_t at = 0; at < a.values.size(); ++at) {
    const CertifiedValue& x = a.values[at];
    const CertifiedValue& y = b.values[at];
    if (!std::isfinite(x.hi) && x.radius == 0.0) continue;
    const double distance = std::fabs((x.hi - y.hi) + (x.lo - y.lo));
    ASSERT_LE(distance, (x.radius + y.radius) * (1.0 + 0x1p-40)) << what << " element " << at;
  }
}

TEST(CertifyInvariance, RungsAgree) {
  std::array<Index, kRungs> settled{};
  for (int i = 0; i < 200; ++i) {
    const Draw draw = DrawCase(i);
    CertifyOptions options;
    options.first_rung = Rung::kBall;
    const Certified balls = MustCertify(draw.problem, options);
    for (const Rung rung : {Rung::kDouble, Rung::kDoubleDouble}) {
      options.first_rung = rung;
      const Certified got = MustCertify(draw.problem, options);
      for (std::size_t r = 0; r < kRungs; ++r) settled[r] += got.RungCounts()[r];
      for (const std::string& output : draw.problem.contract.outputs) {
        const std::string what = draw.name + " " + output + " from " + std::string(NameOf(rung));
        ExpectSame(Nearest(got, output), Nearest(balls, output), what);
        ExpectOverlap(got.outputs.at(output), balls.outputs.at(output), what);
      }
    }
  }
  // The comparison says something: most elements did not end on balls.
  const auto on = [&](Rung rung) { return settled[static_cast<std::size_t>(rung)]; };
  EXPECT_GT(on(Rung::kDouble), 10000);
  EXPECT_GT(on(Rung::kDoubleDouble), 10000);
  EXPECT_GT(on(Rung::kDouble) + on(Rung::kDoubleDouble), 3 * on(Rung::kBall));
}

// Conditions are as accurate as certify.h says, also of weights that the rungs take as 0.
TEST(CertifyInvariance, ConditionsOfRungsAgree) {
  Index small = 0;
  for (int i = 0; i < 120; ++i) {
    Draw draw = DrawCase(i);
    draw.problem.contract.outputs = {"out"};
    const double spread[] = {1.0, 30.0, 150.0};
    Tensor& k = draw.problem.tensors.at("k");
    for (Index at = 0; at < k.size(); ++at) k.Set(at, spread[i / 4 % 3] * k.At(at));
    CertifyOptions options;
    options.conditions = true;
    options.first_rung = Rung::kBall;
    const Conditions balls = MustCertify(draw.problem, options).conditions;
    for (const Rung rung : {Rung::kDouble, Rung::kDoubleDouble}) {
      options.first_rung = rung;
      const Conditions got = MustCertify(draw.problem, options).conditions;
      ASSERT_EQ(got.allowed, balls.allowed) << draw.name;
      for (std::size_t at = 0; at < got.allowed.size(); ++at) {
        if (got.allowed[at] == 0) continue;
        const double log_weight = balls.log_weight[at];
        const std::string what = draw.name + " condition " + std::to_string(at);
        if (std::isinf(log_weight) || std::isnan(log_weight)) {
          ASSERT_TRUE(Same(got.log_weight[at], log_weight)) << what;
          continue;
        }
        const double size = std::max(1.0, std::fabs(log_weight));
        ASSERT_LE(std::fabs(got.log_weight[at] - log_weight), 0x1p-30 * size) << what;
        ASSERT_LE(std::fabs(got.weight[at] - balls.weight[at]),
                  0x1p-30 * balls.weight[at] + 0x1p-1074)
            << what;
        ASSERT_GE(got.score_condition[at], balls.score_condition[at] * (1.0 - 0x1p-35)) << what;
        small += 0.0 < balls.weight[at] && balls.weight[at] < 0x1p-870 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(small, 20);
}

// Hides every third key from all rows, and with lengths also the last ones; which they are.
std::vector<bool> HideKeys(Case* problem) {
  const Dimensions s = problem->contract.shape;
  Tensor mask(DType::kBool, {1, 1, 1, s.kv_len});
  std::vector<bool> hidden(static_cast<std::size_t>(s.kv_len), false);
  for (Index j = 0; j < s.kv_len; ++j) {
    hidden[static_cast<std::size_t>(j)] = j % 3 == 1;
    mask.Set(j, j % 3 == 1 ? 0.0 : 1.0);
  }
  problem->tensors["mask"] = std::move(mask);
  Finish(problem);
  return hidden;
}

TEST(CertifyInvariance, HiddenKeysMayHoldAnything) {
  for (int i = 0; i < 80; ++i) {
    Draw draw = DrawCase(i);
    // The mean over all keys sees hidden ones too.
    if (draw.problem.contract.empty_row == EmptyRow::kUniform) {
      draw.problem.contract.empty_row = EmptyRow::kZero;
    }
    const std::vector<bool> hidden = HideKeys(&draw.problem);
    const Certified plain = MustCertify(draw.problem);
    const double huge = FormatOf(draw.problem.contract.dtype).largest_finite();
    for (const double junk : {huge, -huge, 0x1p-1 * huge, kNaN, kInfinity, -kInfinity}) {
      Case spoilt = draw.problem;
      for (const char* name : {"k", "v"}) {
        Tensor& tensor = spoilt.tensors.at(name);
        const Index width = tensor.shape()[3];
        for (Index at = 0; at < tensor.size(); ++at) {
          const Index key = at / width % tensor.shape()[2];
          if (hidden[static_cast<std::size_t>(key)]) tensor.Set(at, junk);
        }
      }
      const Certified got = MustCertify(spoilt);
      const std::string what = draw.name + " junk " + std::to_string(junk);
      for (const std::string& output : draw.problem.contract.outputs) {
        ExpectSame(Nearest(got, output), Nearest(plain, output), what + " " + output);
      }
      if (std::isfinite(junk)) continue;
      const auto ball = static_cast<std::size_t>(Rung::kBall);
      EXPECT_LE(got.RungCounts()[ball], plain.RungCounts()[ball]) << what;
    }
  }
}

}  // namespace
}  // namespace attest
