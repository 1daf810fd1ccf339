// SPDX-License-Identifier: Apache-2.0
// The tiled forward kernel: every mode and type on every SIMD target within its bound, the same
// bits however a call is cut, and nothing that masks hide in the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "audit/case_spec.h"
#include "audit/judge.h"
#include "audit/kernel_call.h"
#include "core/digest.h"
#include "optimized/targets.h"

namespace attest {
namespace {

constexpr Mode kModes[] = {Mode::kFast, Mode::kReproducible, Mode::kAccurate};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Dimensions Shaped(Index batch, Index q_heads, Index kv_heads, Index q_len, Index kv_len,
                  Index qk_dim, Index v_dim) {
  return {batch, q_heads, kv_heads, q_len, kv_len, qk_dim, qk_dim, v_dim};
}

TensorMap Attend(const Case& problem, Mode mode, int threads = 1) {
  Execution execution(threads);
  StatusOr<TensorMap> results = RunKernel(problem, mode, AttentionAlgorithm::kTiled, execution);
  EXPECT_TRUE(results.ok()) << results.status().message();
  return results.ok() ? *std::move(results) : TensorMap();
}

// Bit by bit.
bool Same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.byte_size() == b.byte_size() &&
         (a.byte_size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0);
}

std::vector<std::string> Targets() {
  const std::vector<std::string_view> names = RunnableTargets();
  return {names.begin(), names.end()};
}

// The largest error/bound so far, by mode and output; printed at the end.
class Worst {
 public:
  static Worst& Get() {
    static Worst worst;
    return worst;
  }
  void Take(const std::string& key, double ratio) { ratios_[key] = std::max(ratios_[key], ratio); }
  ~Worst() {
    for (const auto& [key, ratio] : ratios_) {
      std::printf("error/bound %s: %.3f\n", key.c_str(), ratio);
    }
  }

 private:
  std::map<std::string, double> ratios_;
};

// Every element of every output within its bound.
void ExpectWithinBounds(const Case& problem, const Expectation& expected, Mode mode,
                        const std::string& target) {
  const auto scope = ScopedTarget::Force(target);
  ASSERT_TRUE(scope.ok());
  const TensorMap results = Attend(problem, mode);
  for (const auto& [name, tensor] : results) {
    const TensorVerdict verdict = Judge(expected, name, tensor);
    EXPECT_EQ(verdict.violations, 0)
        << problem.name << ": " << name << ", " << NameOf(mode) << " on " << target << ": element "
        << ::testing::PrintToString(verdict.worst.index) << " is " << verdict.worst.got
        << ", expected " << verdict.worst.expected;
    Worst::Get().Take(std::string(NameOf(mode)) + " " + name, verdict.max_bound_ratio);
  }
}

void ExpectWithinBounds(const Case& problem) {
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  for (const std::string& target : Targets()) {
    for (const Mode mode : kModes) ExpectWithinBounds(problem, *expected, mode, target);
  }
}

// One specification for every feature that a case specification has.
std::vector<CaseSpec> Features() {
  std::vector<CaseSpec> specs;
  const auto add = [&](auto change) {
    CaseSpec spec{.shape = Shaped(2, 4, 2, 21, 37, 9, 7)};
    change(spec);
    specs.push_back(spec);
  };
  add([](CaseSpec&) {});
  for (const Causal causal : {Causal::kTopLeft, Causal::kBottomRight}) {
    add([&](CaseSpec& s) { s.causal = causal; });
    add([&](CaseSpec& s) {
      s.causal = causal;
      s.kv_lengths = s.q_lengths = s.mask = s.bias = true;
    });
  }
  for (const EmptyRow policy : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
    add([&](CaseSpec& s) {
      s.shape = Shaped(2, 1, 1, 40, 11, 4, 5);
      s.causal = Causal::kBottomRight;
      s.empty_row = policy;
      s.kv_lengths = s.q_lengths = true;
    });
  }
  add([](CaseSpec& s) { s.softcap = 3.0; });
  add([](CaseSpec& s) { s.sinks = true; });
  add([](CaseSpec& s) { s.dropout_rate = 0.3; });
  add([](CaseSpec& s) { s.broadcast_bias = true; });
  add([](CaseSpec& s) { s.score = ScoreKind::kGeneral; });
  add([](CaseSpec& s) { s.score = ScoreKind::kAdditive; });
  add([](CaseSpec& s) { s.values = Values::kSpread; });
  add([](CaseSpec& s) {
    s.softcap = 2.0;
    s.sinks = s.bias = s.mask = s.kv_lengths = true;
    s.dropout_rate = 0.1;
    s.causal = Causal::kTopLeft;
  });
  return specs;
}

class ForwardFeatures : public ::testing::TestWithParam<DType> {};

TEST_P(ForwardFeatures, StayWithinTheirBounds) {
  std::uint64_t seed = 1;
  for (CaseSpec spec : Features()) {
    spec.dtype = GetParam();
    ExpectWithinBounds(MakeCase(spec, ++seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ForwardFeatures,
                         ::testing::Values(DType::kF32, DType::kF64, DType::kBF16, DType::kF16),
                         [](const auto& param) { return std::string(NameOf(param.param)); });

// ALiBi, windows, documents and local attention, which case specifications do not have.
Case WithRest(int variant) {
  Case problem = MakeCase({.shape = Shaped(2, 2, 1, 33, 41, 5, 6)}, 77);
  problem.name = "rest " + std::to_string(variant);
  Contract& contract = problem.contract;
  const auto integers = [](const Shape& shape, Index period) {
    Tensor tensor(DType::kI32, shape);
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(i / period % 3);
    }
    return tensor;
  };
  switch (variant) {
    case 0:
      contract.alibi = Alibi::kDefault;
      break;
    case 1:
      contract.window = {5, -1};
      break;
    case 2:
      contract.window = {7, 2};
      contract.causal = Causal::kBottomRight;
      contract.alibi = Alibi::kDefault;
      break;
    case 3:
      problem.tensors["q_documents"] = integers({2, 33}, 11);
      problem.tensors["kv_documents"] = integers({2, 41}, 13);
      break;
    default:
      contract.local = LocalWindow{4.5, variant == 5};
      Tensor centers(DType::kF32, {2, 2, 33});
      for (Index i = 0; i < centers.size(); ++i) {
        centers.Set(i, 1.25 * static_cast<double>(i % 33) - 2.0);
      }
      problem.tensors["local_center"] = centers;
  }
  EXPECT_TRUE(FinishCase(&problem).ok());
  return problem;
}

TEST(Forward, TakesAlibiWindowsDocumentsAndLocalAttention) {
  for (int variant = 0; variant <= 5; ++variant) ExpectWithinBounds(WithRest(variant));
}

TEST(Forward, TakesEveryHeadSizeAndLength) {
  // Head sizes 1 to 257, each with other lengths on both sides of the blocks of 64 and 192.
  const Index lengths[] = {1, 2, 63, 64, 65, 191, 192, 193, 3, 385};
  for (Index dim = 1; dim <= 257; dim += dim < 20 ? 1 : 13) {
    const Index kv_len = lengths[static_cast<std::size_t>(dim) % std::size(lengths)];
    const Index q_len = 1 + dim % 5;
    const Case problem = MakeCase({.shape = Shaped(1, 1, 1, q_len, kv_len, dim, 258 - dim)}, 5);
    const StatusOr<Expectation> expected = Expect(problem);
    ASSERT_TRUE(expected.ok());
    for (const std::string& target : Targets()) {
      ExpectWithinBounds(problem, *expected, Mode::kFast, target);
    }
  }
}

// Rows without keys, whose maximum stays -infinity, are NaN all the same under a sink of NaN, and
// their weights 0: whether the maximum becomes NaN depends on the target.
TEST(Forward, TakesASinkOfNaN) {
  for (const EmptyRow policy : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
    Case problem = MakeCase({.shape = Shaped(1, 2, 2, 3, 4, 4, 4),
                             .causal = Causal::kTopLeft,
                             .empty_row = policy,
                             .sinks = true},
                            0);
    problem.tensors.at("sinks").Set(1, kNaN);
    Tensor mask(DType::kBool, {1, 1, 3, 4});
    for (Index at = 4; at < 12; ++at) mask.Set(at, 1.0);  // row 0 has no key
    problem.tensors["mask"] = mask;
    ExpectWithinBounds(problem);
  }
}

TEST(Forward, TakesLengthsOfZero) {
  for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{0, 3}, {3, 0}, {0, 0}}) {
    ExpectWithinBounds(MakeCase({.shape = Shaped(1, 2, 1, q_len, kv_len, 4, 3)}, 1));
  }
}

// Rows [first, first + count) of axis 2 of q, and of everything that has as many rows.
Case SomeRows(const Case& problem, Index first, Index count) {
  Case part = problem;
  const Index all = problem.contract.shape.q_len;
  part.contract.shape.q_len = count;
  for (auto& [name, tensor] : part.tensors) {
    if (tensor.rank() != 4 || tensor.shape()[2] != all || name == "k" || name == "v") continue;
    Shape shape = tensor.shape();
    shape[2] = count;
    Tensor cut(tensor.dtype(), shape);
    for (Index i = 0; i < cut.size(); ++i) {
      const std::vector<Index> at = Unflatten(i, shape);
      cut.Set(i, tensor.At(((at[0] * shape[1] + at[1]) * all + at[2] + first) * shape[3] + at[3]));
    }
    tensor = cut;
  }
  return part;
}

TEST(Forward, GivesARowTheSameBitsInEveryCompany) {
  const Case problem = MakeCase(
      {.shape = Shaped(1, 2, 1, 150, 500, 24, 10), .mask = true, .bias = true, .sinks = true}, 9);
  for (const std::string& target : Targets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const Mode mode : kModes) {
      const TensorMap whole = Attend(problem, mode);
      for (const auto& [first, count] :
           {std::pair<Index, Index>{0, 1}, {3, 70}, {149, 1}, {17, 9}}) {
        const TensorMap part = Attend(SomeRows(problem, first, count), mode);
        for (Index h = 0; h < 2; ++h) {
          for (Index i = 0; i < count * 10; ++i) {
            const float got = part.at("out").data<float>()[h * count * 10 + i];
            const float expected = whole.at("out").data<float>()[(h * 150 + first) * 10 + i];
            ASSERT_EQ(std::memcmp(&got, &expected, sizeof(float)), 0)
                << target << " " << NameOf(mode) << " rows from " << first;
          }
        }
      }
      for (const int threads : {2, 3, 7}) {
        const TensorMap again = Attend(problem, mode, threads);
        for (const auto& [name, tensor] : whole) EXPECT_TRUE(Same(tensor, again.at(name))) << name;
      }
    }
  }
}

// |got - exact| / (u sum p |v|) on normal inputs: what the modes are compared by.
TEST(Forward, AccurateErrsByLessThanTwoRoundings) {
  for (const auto& [length, dim] : {std::pair<Index, Index>{1024, 64}, {512, 128}}) {
    for (const Causal causal : {Causal::kNone, Causal::kTopLeft}) {
      Case problem =
          MakeCase({.shape = Shaped(1, 1, 1, length, length, dim, dim), .causal = causal}, 31);
      problem.contract.outputs = {"out"};
      const StatusOr<Expectation> expected = Expect(problem, 2);
      ASSERT_TRUE(expected.ok());
      std::map<Mode, double> errors;
      for (const Mode mode : kModes) {
        const TensorMap results = Attend(problem, mode);
        const TensorVerdict verdict = Judge(*expected, "out", results.at("out"));
        ASSERT_TRUE(verdict.max_scaled_error.has_value());
        errors[mode] = *verdict.max_scaled_error;
      }
      std::printf(
          "error / (u sum p|v|), %ld x %ld%s: fast %.2f, reproducible %.2f, accurate %.2f\n",
          static_cast<long>(length), static_cast<long>(dim),
          causal == Causal::kNone ? "" : " causal", errors[Mode::kFast],
          errors[Mode::kReproducible], errors[Mode::kAccurate]);
      EXPECT_LE(errors[Mode::kAccurate], 2.0);
      EXPECT_LE(errors[Mode::kAccurate], 0.5 * errors[Mode::kFast]);
    }
  }
}

// SHA-256 of all outputs of every feature, in mode Reproducible: one digest for all targets. A
// change of it is a change of what users' results are, and must be said in the release notes.
TEST(Forward, ReproducibleBitsAreThoseOfTheRecord) {
  const std::map<DType, std::string> golden{
      {DType::kF32, "6b70f1af5335f4258c2509215aed0957e1ecc706abe3ae582ad0c7e4a86a3095"},
      {DType::kF64, "ef394702198e4f6a2437aa639cad8fe1f6b706d209cc8b0b747d616eac124a8e"},
      {DType::kBF16, "9a1931aff283b15cdd61a33fa5ea11e04ebe9dd014000ff9d9312200ceef00ac"},
      {DType::kF16, "c39e70ac8f87e983addc1f9f997141492c25f2dd7081565b5aeba9bc5a253215"}};
  for (const auto& [dtype, digest] : golden) {
    for (const std::string& target : Targets()) {
      const auto scope = ScopedTarget::Force(target);
      TensorMap all;
      std::uint64_t seed = 100;
      for (CaseSpec spec : Features()) {
        spec.dtype = dtype;
        spec.shape.q_len += 60;
        spec.shape.kv_len += 200;
        for (auto& [name, tensor] : Attend(MakeCase(spec, ++seed), Mode::kReproducible)) {
          all.emplace(std::to_string(seed) + name, tensor);
        }
      }
      EXPECT_EQ(Sha256(all), digest) << NameOf(dtype) << " on " << target;
    }
  }
}

// What a causal rule, lengths, a mask and a bias of -infinity hide is NaN, infinity or huge.
TEST(Forward, DoesNotReadWhatMasksHide) {
  CaseSpec spec{.shape = Shaped(1, 2, 1, 70, 210, 6, 7)};
  spec.causal = Causal::kTopLeft;
  spec.mask = spec.bias = true;
  const Case clean = MakeCase(spec, 3);
  for (const float junk : {kNaN, std::numeric_limits<float>::infinity(), 3e38f}) {
    Case dirty = clean;
    // Keys that no row of any head may see: beyond the last diagonal.
    for (const char* name : {"k", "v"}) {
      Tensor& tensor = dirty.tensors.at(name);
      const Index width = tensor.shape()[3];
      for (Index i = 70 * width; i < tensor.size(); ++i) tensor.Set(i, static_cast<double>(junk));
    }
    // And key 69, which the last row alone may see, unless its mask hides it.
    Tensor& mask = dirty.tensors.at("mask");
    Case hidden = clean;
    for (Case* problem : {&dirty, &hidden}) {
      problem->tensors.at("mask").Set(69 * mask.shape()[3] + 69, 0.0);
    }
    for (const char* name : {"k", "v"}) {
      Tensor& tensor = dirty.tensors.at(name);
      const Index width = tensor.shape()[3];
      for (Index c = 0; c < width; ++c) tensor.Set(69 * width + c, static_cast<double>(junk));
    }
    for (const std::string& target : Targets()) {
      const auto scope = ScopedTarget::Force(target);
      for (const Mode mode : kModes) {
        const TensorMap expected = Attend(hidden, mode);
        const TensorMap got = Attend(dirty, mode);
        for (const auto& [name, tensor] : expected) {
          EXPECT_TRUE(Same(tensor, got.at(name))) << name << " " << NameOf(mode) << " " << target;
        }
      }
    }
  }
}

// Unaligned bases, rows with gaps, transposed layouts and reversed axes.
TEST(Forward, TakesAnyStrides) {
  const Case problem = MakeCase({.shape = Shaped(2, 2, 2, 19, 23, 10, 9)}, 4);
  Execution execution;
  const TensorMap expected = Attend(problem, Mode::kFast);
  // Every tensor as [Tq, B, D, H] with one more element in front, the rows from last to first.
  const auto scatter = [](const Tensor& tensor, std::vector<float>& memory) {
    const Shape& n = tensor.shape();
    memory.assign(static_cast<std::size_t>(tensor.size()) + 1, kNaN);
    const std::array<Index, 4> strides{n[3] * n[1], 1, -n[0] * n[3] * n[1], n[1]};
    float* const first = memory.data() + 1 + (n[2] - 1) * n[0] * n[3] * n[1];
    View<float, 4> view{first, {n[0], n[1], n[2], n[3]}, strides};
    for (Index i = 0; i < tensor.size(); ++i) {
      const std::vector<Index> at = Unflatten(i, n);
      view(at[0], at[1], at[2], at[3]) = static_cast<float>(tensor.At(i));
    }
    return view;
  };
  KernelCall call(problem.contract);
  std::vector<float> q, k, v, out;
  call.args().q = scatter(problem.tensors.at("q"), q);
  call.args().k = scatter(problem.tensors.at("k"), k);
  call.args().v = scatter(problem.tensors.at("v"), v);
  const View<float, 4> result = scatter(expected.at("out"), out);
  std::fill(out.begin(), out.end(), kNaN);
  call.outputs().out = result;
  ASSERT_TRUE(call.Run(Mode::kFast, AttentionAlgorithm::kTiled, execution).ok());
  for (Index i = 0; i < expected.at("out").size(); ++i) {
    const std::vector<Index> at = Unflatten(i, expected.at("out").shape());
    EXPECT_EQ(result(at[0], at[1], at[2], at[3]), expected.at("out").data<float>()[i]);
  }
  EXPECT_TRUE(std::isnan(out[0])) << "written before the first element";
}

TEST(Forward, AllocatesNothingOnASecondCall) {
  const Case problem = MakeCase({.shape = Shaped(1, 2, 1, 70, 210, 6, 7)}, 3);
  Execution execution;
  ASSERT_TRUE(RunKernel(problem, Mode::kFast, AttentionAlgorithm::kTiled, execution).ok());
  const std::size_t capacity = execution.workspace.capacity();
  const std::byte* const memory = execution.workspace.Reserve(1);
  ASSERT_TRUE(RunKernel(problem, Mode::kFast, AttentionAlgorithm::kTiled, execution).ok());
  EXPECT_EQ(execution.workspace.capacity(), capacity);
  EXPECT_EQ(execution.workspace.Reserve(1), memory);
}

TEST(Forward, RefusesWrongArguments) {
  const Case problem = MakeCase({.shape = Shaped(2, 2, 1, 3, 4, 5, 6)}, 3);
  Execution execution;
  std::vector<float> out(2 * 2 * 3 * 6);
  const auto refused = [&](const auto& change, const std::string& part) {
    KernelCall call(problem.contract);
    for (const auto& [name, tensor] : problem.tensors) {
      call.BindInput(name, tensor.bytes(), tensor.dtype(), tensor.shape());
    }
    call.BindOutput("out", out.data(), DType::kF32, {2, 2, 3, 6});
    change(call);
    const Status status = call.Run(Mode::kFast, AttentionAlgorithm::kTiled, execution);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  };
  refused([](KernelCall& c) { c.args().k.shape[3] = 3; }, "k has shape");
  refused([](KernelCall& c) { c.args().v.data = nullptr; }, "v has no data");
  refused([](KernelCall& c) { c.args().k.dtype = DType::kF64; }, "k has element type f64");
  refused([](KernelCall& c) { c.args().bias = c.args().q; }, "bias has shape");
  refused([](KernelCall& c) { c.args().scale = HUGE_VAL; }, "scale is not finite");
  refused([](KernelCall& c) { c.args().softcap = -1.0; }, "soft cap");
  refused([](KernelCall& c) { c.args().window.left = -2; }, "window");
  refused([](KernelCall& c) { c.args().score = ScoreKind::kGeneral; }, "w is missing");
  refused([](KernelCall& c) { c.args().local = LocalWindow{1.0, false}; }, "local_center");
  refused([](KernelCall& c) { c.outputs().out->strides[2] = 0; }, "elements of out coincide");
  refused([](KernelCall& c) { c.args().k.shape[1] = c.args().v.shape[1] = 3; },
          "3 key/value heads");
  for (const std::int32_t length : {-1, 5}) {
    const std::int32_t lengths[] = {0, length};
    refused([&](KernelCall& c) { c.args().kv_lengths = Input<1>(lengths, DType::kI32, {2}, {1}); },
            "kv_lengths[1] = " + std::to_string(length));
  }
}

}  // namespace
}  // namespace attest
