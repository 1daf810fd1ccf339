// SPDX-License-Identifier: Apache-2.0
// The row kernels on every SIMD target and in every mode: within the bounds of the contract's
// profile, exact in special values, and, where they are reproducible, the same bits whatever lies
// beside a row.
#include "optimized/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/case_spec.h"
#include "audit/judge.h"
#include "core/digest.h"
#include "optimized/targets.h"
#include "properties/combined_case.h"
#include "properties/row_case.h"

namespace attest {
namespace {

constexpr Mode kModes[] = {Mode::kFast, Mode::kReproducible, Mode::kAccurate};
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

std::string_view NameOf(AttentionAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"materialised",
                                         "materialised-online",
                                         "materialised-two-pass",
                                         "materialised-unshifted",
                                         "tiled",
                                         "decode"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::string NameOf(const RowKernel& kernel) {
  return std::string(NameOf(kernel.algorithm)) + " " + std::string(NameOf(kernel.mode)) +
         " threads " + std::to_string(kernel.threads) + " parts " + std::to_string(kernel.parts);
}

// The largest error over bound of each kernel, type and output, printed by every test that judges.
class Ratios {
 public:
  ~Ratios() {
    for (const auto& [name, of_outputs] : worst_) {
      std::printf("row kernels: %s: largest error/bound:", name.c_str());
      for (const auto& [output, ratio] : of_outputs) std::printf(" %s %.3f", output.c_str(), ratio);
      std::printf("\n");
    }
  }
  // 16-bit outputs are left out: all that their ratios show is their own rounding.
  void Add(const RowKernel& kernel, DType dtype, const TensorVerdict& verdict) {
    if (dtype != DType::kF32 && dtype != DType::kF64) return;
    const std::string name = std::string(NameOf(kernel.algorithm)) + " " +
                             std::string(NameOf(kernel.mode)) + " " + std::string(NameOf(dtype));
    double& worst = worst_[name][verdict.tensor];
    worst = std::max(worst, verdict.max_bound_ratio);
  }

 private:
  std::map<std::string, std::map<std::string, double>> worst_;
};

// The kernels that a case of this number is run by: all modes; threads and parts take turns.
std::vector<RowKernel> KernelsFor(std::size_t number) {
  std::vector<RowKernel> kernels;
  for (const Mode mode : kModes) {
    kernels.push_back({AttentionAlgorithm::kDecode, mode, 1 + static_cast<int>(number % 3),
                       static_cast<Index>(number / 3 % 3)});
    kernels.push_back({AttentionAlgorithm::kMaterialised, mode, 1 + static_cast<int>(number % 2)});
  }
  const Mode mode = kModes[number % 3];
  kernels.push_back({AttentionAlgorithm::kMaterialisedOnline, mode});
  kernels.push_back({AttentionAlgorithm::kMaterialisedTwoPass, mode});
  return kernels;
}

// Every output of every kernel conforms, on every target.
void Check(Case problem, std::size_t number, Ratios* ratios) {
  problem.contract.arithmetic.profile = problem.contract.dtype == DType::kF64 ? "f64" : "f32";
  StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const std::string_view target : RunnableTargets()) {
    StatusOr<ScopedTarget> forced = ScopedTarget::Force(target);
    ASSERT_TRUE(forced.ok());
    for (const RowKernel& kernel : KernelsFor(number)) {
      for (const auto& [name, tensor] : RunCase(kernel, problem)) {
        const TensorVerdict verdict = Judge(*expected, name, tensor);
        EXPECT_EQ(verdict.violations, 0)
            << problem.name << ": " << NameOf(kernel) << ", " << target << ", " << name << " "
            << ToString(verdict.worst.index) << ": " << verdict.worst.got << " for "
            << verdict.worst.expected << ", error/bound " << verdict.worst.bound_ratio;
        ratios->Add(kernel, problem.contract.dtype, verdict);
      }
    }
  }
}

Dimensions ShapeOf(Index q_len, Index kv_len, Index qk_dim, Index v_dim) {
  return {1, 2, 1, q_len, kv_len, qk_dim, qk_dim, v_dim};
}

TEST(RowKernels, KeepTheBoundsForEveryCombinationOfFeatures) {
  Ratios ratios;
  std::size_t number = 0;
  for (unsigned features = 0; features < 4096; features += 41, ++number) {
    Check(Combined(features, kDTypes[number % 4]), number, &ratios);
  }
  // More keys than a block, more rows than a tile.
  for (unsigned features = 5; features < 4096; features += 511, ++number) {
    Check(Combined(features, kDTypes[number % 4], {1, 4, 2, 9, 203, 6, 6, 3}), number, &ratios);
  }
}

TEST(RowKernels, KeepTheBoundsForEverySize) {
  Ratios ratios;
  std::size_t number = 0;
  const auto check = [&](const Dimensions& shape) {
    CaseSpec spec{.shape = shape, .dtype = kDTypes[number % 4]};
    spec.causal = static_cast<Causal>(number % 3);
    Check(MakeCase(spec, number), number, &ratios);
    ++number;
  };
  for (const Index dim : {1,  2,  3,  4,  5,  7,   8,   15,  16,  17,  31,  32,
                          33, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257}) {
    check(ShapeOf(1, 5, dim, 3));
    check(ShapeOf(1, 5, 3, dim));
    check(ShapeOf(1, 33, dim, dim));
  }
  for (const Index keys : {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 191, 192, 193, 383, 385}) {
    check(ShapeOf(1, keys, 16, 16));
    check(ShapeOf(3, keys, 5, 4));
  }
  for (const Index rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 33}) check(ShapeOf(rows, 40, 16, 32));
}

TEST(RowKernels, KeepTheBoundsForEveryScore) {
  Ratios ratios;
  std::size_t number = 0;
  for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    for (const double softcap : {0.0, 0.75, 30.0}) {
      for (const DType dtype : kDTypes) {
        CaseSpec spec{.shape = {2, 4, 2, 3, 37, 9, 9, 5}, .dtype = dtype};
        if (score != ScoreKind::kDot) spec.shape.k_dim = 17;
        spec.score = score;
        spec.softcap = softcap;
        spec.mask = number % 2 == 0;
        if (number % 5 == 4) spec.scale = {false, -0.5};
        Check(MakeCase(spec, number), number, &ratios);
        ++number;
      }
    }
  }
}

TEST(RowKernels, KeepTheBoundsForEveryKindOfValues) {
  Ratios ratios;
  std::size_t number = 0;
  for (const Values values :
       {Values::kOutliers, Values::kSmallIntegers, Values::kTies, Values::kOneHot, Values::kSpread,
        Values::kConstantValues, Values::kSubnormal, Values::kZero}) {
    for (const DType dtype : kDTypes) {
      CaseSpec spec{.shape = {2, 2, 1, 5, 230, 16, 16, 16}, .dtype = dtype, .values = values};
      spec.sinks = number % 3 == 1;
      spec.dropout_rate = number % 3 == 2 ? 0.25 : 0.0;
      Check(MakeCase(spec, number), number, &ratios);
      ++number;
    }
  }
}

TEST(RowKernels, FollowSpecialValues) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Ratios ratios;
  std::size_t number = 0;
  for (const double special : {kNan, kInfinity, -kInfinity}) {
    for (const char* name : {"q", "k", "v", "bias", "sinks"}) {
      for (const EmptyRow empty_row : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
        CaseSpec spec{.shape = {1, 2, 1, 6, 7, 3, 3, 2}, .dtype = kDTypes[number % 4]};
        spec.causal = Causal::kBottomRight;
        spec.kv_lengths = spec.bias = true;  // a key that no row may look at
        spec.empty_row = empty_row;
        spec.sinks = name == std::string("sinks") || number % 2 == 1;
        Case problem = MakeCase(spec, number);
        Tensor& tensor = problem.tensors.at(name);
        // An element of one key or row, and all of the last one.
        tensor.Set(tensor.size() / 3, special);
        tensor.Set(tensor.size() - 1, special);
        if (number % 4 == 3) {
          for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, special);
        }
        Check(problem, number, &ratios);
        ++number;
      }
    }
  }
}

// Infinite keys: every allowed score is -inf, some rows have no key, one has a sink beside them.
TEST(RowKernels, FollowScoresOfMinusInfinity) {
  Ratios ratios;
  std::size_t number = 0;
  for (const DType dtype : kDTypes) {
    for (const bool sinks : {false, true}) {
      CaseSpec spec{.shape = {1, 2, 1, 6, 7, 3, 3, 2}, .dtype = dtype};
      spec.causal = Causal::kBottomRight;
      spec.kv_lengths = true;
      spec.sinks = sinks;
      Case problem = MakeCase(spec, number);
      Tensor& q = problem.tensors.at("q");
      Tensor& k = problem.tensors.at("k");
      for (Index i = 0; i < q.size(); ++i) q.Set(i, 1.0);
      for (Index i = 0; i < k.size(); ++i) k.Set(i, -std::numeric_limits<double>::infinity());
      Check(problem, number, &ratios);
      problem.tensors.at("v").Set(1, std::numeric_limits<double>::quiet_NaN());
      Check(problem, number++, &ratios);
    }
  }
}

// What a test of bits runs: many features at once, three blocks of keys, tiles of 15 = 8 + 4 + 2 +
// 1 rows.
Case BitsCase(DType dtype, std::uint64_t seed) {
  CaseSpec spec{.shape = {2, 6, 2, 5, 530, 20, 20, 36}, .dtype = dtype};
  spec.mask = spec.bias = spec.sinks = true;
  spec.dropout_rate = 0.25;
  return MakeCase(spec, seed);
}

TEST(ReproducibleDecode, HasTheBitsOfOneThreadAndOnePart) {
  for (const DType dtype : kDTypes) {
    const Case problem = BitsCase(dtype, 1);
    for (const Mode mode : kModes) {
      const RowKernel plain{AttentionAlgorithm::kDecode, mode, 1, 1};
      const std::string expected = Sha256(RunCase(plain, problem));
      for (const int threads : {1, 2, 3, 7}) {
        for (const Index parts : {0, 1, 2, 3, 100}) {
          const RowKernel kernel{AttentionAlgorithm::kDecode, mode, threads, parts};
          EXPECT_EQ(Sha256(RunCase(kernel, problem)), expected) << NameOf(kernel);
        }
      }
    }
  }
}

// Copies element by element; `pick` maps an index of the small tensor to one of the large one.
template <class Pick>
Tensor Part(const Tensor& whole, const Shape& shape, const Pick& pick) {
  Tensor part(whole.dtype(), shape);
  for (Index i = 0; i < part.size(); ++i) {
    const std::vector<Index> at = pick(Unflatten(i, shape));
    Index flat = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) {
      flat = flat * whole.shape()[axis] + (whole.shape()[axis] == 1 ? 0 : at[axis]);
    }
    part.Set(i, whole.At(flat));
  }
  return part;
}

// One query of one head, with its key/value head, alone.
Case Alone(const Case& whole, Index b, Index h, Index i) {
  Case alone = whole;
  Dimensions& shape = alone.contract.shape;
  const Index g = h / (shape.q_heads / shape.kv_heads);
  shape.batch = shape.q_heads = shape.kv_heads = shape.q_len = 1;
  for (auto& [name, tensor] : alone.tensors) {
    if (tensor.rank() == 1) {
      tensor = Part(tensor, {1}, [&](std::vector<Index>) { return std::vector<Index>{h}; });
      continue;
    }
    Shape extents = tensor.shape();
    extents[0] = extents[1] = 1;
    const bool keys = name == "k" || name == "v";
    if (!keys) extents[2] = 1;
    tensor = Part(tensor, extents, [&](std::vector<Index> at) {
      at[0] = b;
      at[1] = keys ? g : h;
      if (!keys) at[2] = i;
      return at;
    });
  }
  return alone;
}

TEST(ReproducibleDecode, HasTheBitsOfARowAlone) {
  for (const DType dtype : kDTypes) {
    const Case problem = BitsCase(dtype, 2);
    const Dimensions& shape = problem.contract.shape;
    const RowKernel kernel{AttentionAlgorithm::kDecode, Mode::kReproducible};
    const TensorMap whole = RunCase(kernel, problem);
    for (Index row = 0; row < shape.batch * shape.q_heads * shape.q_len; row += 3) {
      const Index b = row / shape.q_len / shape.q_heads;
      const Index h = row / shape.q_len % shape.q_heads;
      const Index i = row % shape.q_len;
      for (const auto& [name, tensor] : RunCase(kernel, Alone(problem, b, h, i))) {
        const Tensor expected = Part(whole.at(name), tensor.shape(), [&](std::vector<Index> at) {
          at[0] = b;
          at[1] = h;
          at[2] = i;
          return at;
        });
        EXPECT_EQ(Sha256({{name, tensor}}), Sha256({{name, expected}})) << name << ", row " << row;
      }
    }
  }
}

TEST(ReproducibleDecode, HasTheSameBitsOnEveryTarget) {
  const std::map<DType, std::string> golden = {
      {DType::kF32, "2161522b0cc27a7ad89ae217be05ff99ba2977b5315357cd72a41823894d8a1a"},
      {DType::kF64, "72d1a590434b2d507f4d5b1a9fd0d9386504f246f69d415bf32aa43a0adbd224"},
      {DType::kBF16, "b8c7c166d44cba42d3bb7386c45027197e114888bd87240173a3c089d64c75d2"},
      {DType::kF16, "9b15e17d7165a5f4b6af1971ba4e79bd81acc6e4e3ac670b6ed788f1ceda0ff2"}};
  for (const std::string_view target : RunnableTargets()) {
    StatusOr<ScopedTarget> forced = ScopedTarget::Force(target);
    ASSERT_TRUE(forced.ok());
    for (const DType dtype : kDTypes) {
      const RowKernel kernel{AttentionAlgorithm::kDecode, Mode::kReproducible};
      EXPECT_EQ(Sha256(RunCase(kernel, BitsCase(dtype, 3))), golden.at(dtype))
          << target << ", " << NameOf(dtype);
    }
  }
}

TEST(ReproducibleDecode, HasTheBitsOfTheTiledKernel) {
  std::vector<Case> cases;
  for (const DType dtype : kDTypes) cases.push_back(BitsCase(dtype, 6));
  for (unsigned features = 3; features < 4096; features += 97) {
    cases.push_back(Combined(features, kDTypes[features % 4], {1, 4, 2, 9, 203, 6, 6, 3}));
  }
  for (const ScoreKind score : {ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    CaseSpec spec{.shape = {1, 2, 1, 3, 250, 9, 17, 5}};
    spec.score = score;
    spec.softcap = 2.0;
    cases.push_back(MakeCase(spec, 7));
  }
  for (const Case& problem : cases) {
    TensorMap decode = RunCase({AttentionAlgorithm::kDecode, Mode::kReproducible}, problem);
    TensorMap tiled = RunCase({AttentionAlgorithm::kTiled, Mode::kReproducible}, problem);
    UnifyNans(&decode);
    UnifyNans(&tiled);
    for (const auto& [name, tensor] : decode) {
      EXPECT_EQ(Sha256({{name, tensor}}), Sha256({{name, tiled.at(name)}}))
          << problem.name << ", " << name;
    }
  }
}

TEST(RowKernels, NeverLookAtForbiddenKeys) {
  for (const DType dtype : kDTypes) {
    Case problem = BitsCase(dtype, 4);
    const Shape lengths_shape{problem.contract.shape.batch};
    Tensor lengths(DType::kI32, lengths_shape);
    lengths.Set(0, 201);
    lengths.Set(1, 320);
    problem.tensors["kv_lengths"] = lengths;
    Case junk = problem;
    const Dimensions& shape = problem.contract.shape;
    for (const char* name : {"k", "v"}) {
      Tensor& tensor = junk.tensors.at(name);
      const Index width = tensor.shape()[3];
      for (Index at = 0; at < tensor.size(); ++at) {
        const Index b = at / (shape.kv_heads * shape.kv_len * width);
        const Index j = at / width % shape.kv_len;
        if (j >= (b == 0 ? 201 : 320)) {
          tensor.Set(at, at % 3 == 0 ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN());
        }
      }
    }
    for (const Mode mode : kModes) {
      for (const AttentionAlgorithm algorithm :
           {AttentionAlgorithm::kDecode, AttentionAlgorithm::kMaterialised}) {
        const RowKernel kernel{algorithm, mode};
        EXPECT_EQ(Sha256(RunCase(kernel, problem)), Sha256(RunCase(kernel, junk)))
            << NameOf(kernel);
      }
    }
  }
}

// A tensor whose elements lie in `tensor` with a gap after each, axes of rows reversed.
Tensor Spread(const Tensor& dense, Input<4>* view) {
  Tensor spread(dense.dtype(), {2 * dense.size() + 3});
  const Shape& shape = dense.shape();
  for (Index i = 0; i < spread.size(); ++i) {
    spread.Set(i, std::numeric_limits<double>::quiet_NaN());
  }
  const std::array<Index, 4> extents{shape[0], shape[1], shape[2], shape[3]};
  std::array<Index, 4> strides = ContiguousStrides(extents);
  for (Index& stride : strides) stride *= 2;
  // The last row first.
  const Index start = 3 + (shape[2] - 1) * strides[2];
  strides[2] = -strides[2];
  const auto size = static_cast<Index>(SizeOf(dense.dtype()));
  *view = {spread.bytes() + start * size, dense.dtype(), extents, strides};
  for (Index i = 0; i < dense.size(); ++i) {
    const std::vector<Index> at = Unflatten(i, shape);
    Index flat = start;
    for (std::size_t axis = 0; axis < 4; ++axis) flat += at[axis] * strides[axis];
    spread.Set(flat, dense.At(i));
  }
  return spread;
}

TEST(RowKernels, TakeAnyStridesAndWriteNothingElse) {
  for (const DType dtype : kDTypes) {
    const Case problem = BitsCase(dtype, 5);
    for (const AttentionAlgorithm algorithm :
         {AttentionAlgorithm::kDecode, AttentionAlgorithm::kMaterialised}) {
      const RowKernel kernel{algorithm, Mode::kReproducible};
      TensorMap dense = RunCase(kernel, problem);
      Tensor slopes;
      AttentionArgs args = ArgsOf(problem, &slopes);
      const Tensor q = Spread(*problem.Find("q"), &args.q);
      const Tensor k = Spread(*problem.Find("k"), &args.k);
      const Tensor v = Spread(*problem.Find("v"), &args.v);
      Input<4> out_view, weights_view;
      Tensor out = Spread(dense.at("out"), &out_view);
      Tensor weights = Spread(dense.at("weights"), &weights_view);
      const std::string expected = Sha256({{"out", out}, {"weights", weights}});
      const auto writable = [](Tensor& tensor, const Input<4>& view) {
        for (Index i = 0; i < tensor.size(); ++i) {
          if (!std::isnan(tensor.At(i))) tensor.Set(i, -1234.5);
        }
        const auto offset = static_cast<const std::byte*>(view.data) - tensor.bytes();
        return Output<4>(tensor.bytes() + offset, view.dtype, view.shape, view.strides);
      };
      AttentionOutputs outputs;
      outputs.out = writable(out, out_view);
      outputs.weights = writable(weights, weights_view);
      ASSERT_TRUE(Forward(kernel, args, outputs).ok());
      EXPECT_EQ(Sha256({{"out", out}, {"weights", weights}}), expected) << NameOf(kernel);
    }
  }
}

TEST(RowKernels, AcceptNothingToDo) {
  for (const Dimensions& shape :
       {Dimensions{0, 2, 1, 3, 4, 5, 5, 6}, Dimensions{2, 0, 1, 3, 4, 5, 5, 6},
        Dimensions{2, 2, 1, 0, 4, 5, 5, 6}}) {
    CaseSpec spec{.shape = shape};
    const Case problem = MakeCase(spec, 1);
    for (const AttentionAlgorithm algorithm :
         {AttentionAlgorithm::kDecode, AttentionAlgorithm::kMaterialised}) {
      for (const auto& [name, tensor] : RunCase({algorithm, Mode::kFast}, problem)) {
        EXPECT_EQ(tensor.size(), 0) << name;
      }
    }
  }
}

// Equal scores: weights 2^-20, l = 2^20, and a column of ones gives 1 exactly.
TEST(RowKernels, DecodeAMillionKeys) {
  constexpr Index kKeys = Index{1} << 20;
  const std::vector<float> k(static_cast<std::size_t>(kKeys * 4), 0.5f);
  const std::vector<float> q = {1.0f, 2.0f, 3.0f, 4.0f};
  const float one = 1.0f;
  std::vector<float> out(3), lse(1);
  AttentionArgs args;
  args.q = View<const float, 4>{q.data(), {1, 1, 1, 4}, {4, 4, 4, 1}};
  args.k = View<const float, 4>{k.data(), {1, 1, kKeys, 4}, {0, 0, 4, 1}};
  args.v = View<const float, 4>{&one, {1, 1, kKeys, 3}, {0, 0, 0, 0}};
  AttentionOutputs outputs;
  outputs.out = View<float, 4>{out.data(), {1, 1, 1, 3}, {3, 3, 3, 1}};
  outputs.lse = View<float, 3>{lse.data(), {1, 1, 1}, {1, 1, 1}};
  for (const int threads : {1, 3}) {
    Execution execution(threads);
    ASSERT_TRUE(ForwardDecode(Fast(), args, outputs, execution).ok());
    EXPECT_EQ(out, (std::vector<float>{1.0f, 1.0f, 1.0f}));
    EXPECT_FLOAT_EQ(lse[0], 2.5f + 20.0f * 0.693147181f);
    // 5462 blocks of three padded numbers, not a row of scores for every thread.
    EXPECT_LT(execution.workspace.capacity(), std::size_t{1} << 20);
  }
}

}  // namespace
}  // namespace attest
