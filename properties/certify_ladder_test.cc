// SPDX-License-Identifier: Apache-2.0
// The ladder as a whole: memory, progress, cancellation, degenerate shapes, and keys so faint that
// their size counts for no error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "audit/case_spec.h"
#include "core/random.h"
#include "properties/gradient_case.h"
#include "reference/certify.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Certified MustCertify(const Case& problem, const CertifyOptions& options = {}) {
  StatusOr<Certified> certified = Certify(problem, options);
  EXPECT_TRUE(certified.ok()) << certified.status().message();
  return *std::move(certified);
}

Index Count(const Certified& certified, Rung rung) {
  return certified.RungCounts()[static_cast<std::size_t>(rung)];
}

// A number of /proc/self/status, such as VmHWM (peak resident memory in KiB); 0 where there is
// none.
Index ProcessStatus(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1));
  }
  return 0;
}

Case NormalCase(const Dimensions& s) {
  Case problem;
  problem.contract.shape = s;
  problem.contract.outputs = {"out", "lse"};
  for (const auto& [name, shape] :
       {std::pair{"q", Shape{s.batch, s.q_heads, s.q_len, s.qk_dim}},
        std::pair{"k", Shape{s.batch, s.kv_heads, s.kv_len, s.k_dim}},
        std::pair{"v", Shape{s.batch, s.kv_heads, s.kv_len, s.v_dim}}}) {
    Tensor tensor(DType::kF32, shape);
    const RandomStream stream(0, "ladder", name);
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.Set(i, 3.4 * stream.Uniform(static_cast<std::uint64_t>(i)) - 1.7);
    }
    problem.tensors[name] = std::move(tensor);
  }
  EXPECT_TRUE(FinishCase(&problem).ok());
  return problem;
}

// First in this file, so that nothing before it has raised the peak.
TEST(CertifyMemory, StaysFarBelowRowsTimesKeys) {
  const Case problem = NormalCase({1, 1, 1, 256, 1 << 18, 4, 4, 2});
  const Index before = ProcessStatus("VmRSS");
  if (before == 0) GTEST_SKIP() << "no /proc/self/status";
  const Certified certified = MustCertify(problem);
  EXPECT_EQ(certified.undecided, 0);
  EXPECT_EQ(certified.outputs.at("lse").values.size(), 256u);
  const Index grown = ProcessStatus("VmHWM") - before;
  const Index buffer = 256 * (Index{1} << 18) * 8 / 1024;  // rows times keys in double, KiB
  RecordProperty("grown_kib", static_cast<int>(grown));
  EXPECT_LT(grown, buffer / 4);
}

TEST(CertifyMemory, TakesAMillionKeys) {
  const Case problem = NormalCase({1, 1, 1, 1, 1 << 20, 16, 16, 8});
  const Certified certified = MustCertify(problem);
  EXPECT_EQ(certified.undecided, 0);
  // Scores are small, so that the LSE is little more than ln(2^20).
  EXPECT_GT(certified.outputs.at("lse").values[0].nearest, std::log(0x1p20));
  EXPECT_LT(certified.outputs.at("lse").values[0].nearest, std::log(0x1p20) + 4.0);
  EXPECT_LT(std::fabs(certified.outputs.at("out").values[0].nearest), 0.01);
}

// Forward alone, gradients alone and both, with elements for every rung.
std::vector<Case> CasesForProgress() {
  std::vector<Case> cases;
  for (const bool forward : {true, false}) {
    for (const bool gradients : {true, false}) {
      if (!forward && !gradients) continue;
      for (const DType dtype : {DType::kF32, DType::kF64}) {
        Case problem = CombinedWithGradients(0x102, ScoreKind::kDot, dtype);
        std::erase_if(problem.contract.outputs, [&](const std::string& name) {
          return name.starts_with("grad_") ? !gradients : !forward;
        });
        cases.push_back(std::move(problem));
      }
    }
  }
  // Only balls know this score.
  cases.push_back(CombinedWithGradients(0x102, ScoreKind::kGeneral, DType::kF32));
  cases.push_back(cases.back());
  cases.back().contract.outputs = {"out", "lse"};
  return cases;
}

TEST(CertifyProgress, NeverFallsAndEndsAtAll) {
  for (const Case& problem : CasesForProgress()) {
    for (const int threads : {1, 3}) {
      Index last = 0;
      Index last_all = -1;
      CertifyOptions options;
      options.threads = threads;
      options.progress = [&](Index done, Index all) {
        EXPECT_GE(done, last);
        EXPECT_LE(done, all);
        EXPECT_TRUE(last_all < 0 || all == last_all);
        last = done;
        last_all = all;
        return true;
      };
      MustCertify(problem, options);
      EXPECT_GT(last_all, 0);
      EXPECT_EQ(last, last_all);
    }
  }
}

TEST(CertifyProgress, CancelsAtEveryPointAndLeavesNoThread) {
  const Index threads_before = ProcessStatus("Threads");
  for (const Case& problem : CasesForProgress()) {
    for (const int threads : {1, 3}) {
      int most = 0;
      CertifyOptions options;
      options.threads = threads;
      options.progress = [&](Index, Index) { return ++most > 0; };
      MustCertify(problem, options);
      ASSERT_GE(most, 4);
      // Every call of few, a dozen of many.
      for (int last = 1; last <= most; last += std::max(1, most / 12)) {
        int calls = 0;
        options.progress = [&](Index, Index) { return ++calls < last; };
        const StatusOr<Certified> certified = Certify(problem, options);
        ASSERT_FALSE(certified.ok()) << last << " of " << most;
        EXPECT_EQ(certified.status().message(), "cancelled");
        EXPECT_EQ(calls, last);  // none after the one that cancelled
        EXPECT_EQ(ProcessStatus("Threads"), threads_before);
      }
    }
  }
}

// All outputs of a case of this shape with a bias and grad_out, grad_lse and sinks.
Case Degenerate(const Dimensions& s, DType dtype, bool sinks) {
  Case problem;
  problem.contract.shape = s;
  problem.contract.dtype = problem.contract.out_dtype = dtype;
  problem.contract.arithmetic.profile = DefaultProfile(dtype);
  const auto add = [&](const char* name, const Shape& shape) {
    problem.tensors[name] = NormalTensor(dtype, shape, name);
  };
  add("q", {s.batch, s.q_heads, s.q_len, s.qk_dim});
  add("k", {s.batch, s.kv_heads, s.kv_len, s.k_dim});
  add("v", {s.batch, s.kv_heads, s.kv_len, s.v_dim});
  add("bias", {s.batch, s.q_heads, s.q_len, s.kv_len});
  add("grad_out", {s.batch, s.q_heads, s.q_len, s.v_dim});
  add("grad_lse", {s.batch, s.q_heads, s.q_len});
  if (sinks) add("sinks", {s.q_heads});
  problem.contract.outputs = AllowedOutputs(problem);
  const Status finished = FinishCase(&problem);
  EXPECT_TRUE(finished.ok()) << finished.message();
  return problem;
}

// Every element is `value` (NaN: not looked at) and decided.
void ExpectAll(const Certified& certified, const std::string& output, double value) {
  for (const CertifiedValue& v : certified.outputs.at(output).values) {
    EXPECT_TRUE(v.decided) << output;
    EXPECT_TRUE(std::isnan(value) || v.nearest == value) << output << ": " << v.nearest;
  }
}

class CertifyDegenerate : public ::testing::TestWithParam<DType> {};

TEST_P(CertifyDegenerate, RowsWithoutKeys) {
  // No keys at all, and keys that a mask hides.
  for (const Index keys : {0, 3}) {
    for (const bool sinks : {false, true}) {
      Case problem = Degenerate({2, 2, 1, 3, keys, 2, 2, 2}, GetParam(), sinks);
      if (keys > 0) problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, keys});
      const Certified certified = MustCertify(problem);
      EXPECT_EQ(certified.undecided, 0);
      for (const std::string& output : problem.contract.outputs) {
        if (output != "lse" && output != "grad_sinks") ExpectAll(certified, output, 0.0);
      }
      if (!sinks) {
        ExpectAll(certified, "lse", -kInfinity);
        continue;
      }
      const Tensor& lse = problem.tensors.at("grad_lse");
      for (Index h = 0; h < 2; ++h) {
        const auto head = static_cast<std::size_t>(h);
        EXPECT_EQ(certified.outputs.at("lse").values[3 * head].nearest,
                  problem.tensors.at("sinks").At(h));
        double sum = 0.0;  // the sink's share is 1 in every row
        for (Index b = 0; b < 2; ++b) {
          for (Index i = 0; i < 3; ++i) sum += lse.At((2 * b + h) * 3 + i);
        }
        const double got = certified.outputs.at("grad_sinks").values[head].nearest;
        EXPECT_NEAR(got, sum, 8.0 * FormatOf(GetParam()).unit_roundoff() * std::fabs(sum));
      }
    }
  }
}

TEST_P(CertifyDegenerate, NoQueries) {
  const Case problem = Degenerate({2, 2, 1, 0, 3, 2, 2, 2}, GetParam(), true);
  const Certified certified = MustCertify(problem);
  EXPECT_TRUE(certified.outputs.at("out").values.empty());
  for (const char* output : {"grad_k", "grad_v", "grad_sinks"}) {
    EXPECT_FALSE(certified.outputs.at(output).values.empty());
    ExpectAll(certified, output, 0.0);
  }
}

TEST_P(CertifyDegenerate, ASingleKey) {
  const Case problem = Degenerate({1, 2, 1, 3, 1, 1, 1, 1}, GetParam(), false);
  const Certified certified = MustCertify(problem);
  EXPECT_EQ(certified.undecided, 0);
  ExpectAll(certified, "weights", 1.0);
  ExpectAll(certified, "out", problem.tensors.at("v").At(0));
  // The weight does not move, whatever the score: only the LSE's gradient is left.
  const Tensor& lse = problem.tensors.at("grad_lse");
  for (Index i = 0; i < 6; ++i) {
    EXPECT_EQ(certified.outputs.at("grad_bias").values[static_cast<std::size_t>(i)].nearest,
              lse.At(i));
  }
  ExpectAll(certified, "grad_q", std::nan(""));
}

TEST_P(CertifyDegenerate, OneColumn) {
  for (const Dimensions& s :
       {Dimensions{1, 1, 1, 3, 5, 1, 1, 4}, Dimensions{1, 1, 1, 3, 5, 4, 4, 1},
        Dimensions{1, 1, 1, 1, 1, 1, 1, 1}}) {
    const Case problem = Degenerate(s, GetParam(), true);
    CertifyOptions balls;
    balls.first_rung = Rung::kBall;
    const Certified certified = MustCertify(problem);
    const Certified want = MustCertify(problem, balls);
    EXPECT_EQ(certified.undecided, 0);
    for (const std::string& output : problem.contract.outputs) {
      for (std::size_t i = 0; i < want.outputs.at(output).values.size(); ++i) {
        EXPECT_EQ(certified.outputs.at(output).values[i].nearest,
                  want.outputs.at(output).values[i].nearest);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CertifyDegenerate,
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kF64));

void ExpectSameNearest(const Certified& got, const Certified& want, const std::string& what) {
  for (const auto& [name, tensor] : want.outputs) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const CertifiedValue& a = got.outputs.at(name).values[i];
      const CertifiedValue& b = tensor.values[i];
      ASSERT_EQ(a.nearest, b.nearest) << what << " " << name << " element " << i;
      ASSERT_LE(std::fabs((a.hi - b.hi) + (a.lo - b.lo)), (a.radius + b.radius) * (1.0 + 0x1p-40))
          << what << " " << name << " element " << i;
    }
  }
}

// Padding of real activations is a bias of -1e9, which must not count into the size of scores.
TEST(FaintKeys, LeavePaddedActivationsToDouble) {
  for (const char* name : {"batch_L0", "batch_L1"}) {
    StatusOr<Case> problem =
        ReadCase(std::string(ATTEST_SOURCE_DIR "/cases/use_lite/") + name + ".safetensors");
    ASSERT_TRUE(problem.ok()) << problem.status().message();
    const Tensor& bias = *problem->Find("bias");
    ASSERT_EQ(bias.At(bias.size() - 1), -1e9);
    const Certified certified = MustCertify(*problem);
    Index elements = 0;
    for (const auto& [output, tensor] : certified.outputs) {
      elements += static_cast<Index>(tensor.values.size());
    }
    EXPECT_GT(100 * Count(certified, Rung::kDouble), 99 * elements) << name;
    // A few rows take seconds on balls.
    Case part = *problem;
    part.contract.shape.q_len = 2;
    const Tensor& q = *problem->Find("q");
    const Index heads = q.shape()[0] * q.shape()[1];
    Tensor few(q.dtype(), {q.shape()[0], q.shape()[1], 2, q.shape()[3]});
    for (Index h = 0; h < heads; ++h) {
      for (Index i = 0; i < 2 * q.shape()[3]; ++i) {
        few.Set(h * 2 * q.shape()[3] + i, q.At((h * q.shape()[2]) * q.shape()[3] + i));
      }
    }
    part.tensors["q"] = std::move(few);
    CertifyOptions balls;
    balls.first_rung = Rung::kBall;
    ExpectSameNearest(MustCertify(part), MustCertify(part, balls), name);
  }
}

// Around the edges of what counts as faint, with sinks that are faint themselves.
TEST(FaintKeys, HaveTheValuesOfBalls) {
  CertifyOptions balls;
  balls.first_rung = Rung::kBall;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const double low : {-500.0, -760.0, -16000.0, -16384.0, -16390.0, -3e4, -1e9, -3e38}) {
      for (const double sink : {0.5, -2e4, -1e30, 2e4}) {
        for (const double size : {1.0, 60.0, 3000.0}) {  // 3000^2 takes scores beyond kFaintScore
          Case problem = Degenerate({1, 1, 1, 3, 6, 2, 2, 2}, dtype, true);
          for (const char* name : {"q", "k"}) {
            Tensor& tensor = problem.tensors.at(name);
            for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, size * tensor.At(i));
          }
          Tensor& bias = problem.tensors.at("bias");
          for (Index i = 0; i < bias.size(); ++i) {
            if (i % 6 > 3 || i / 6 == 1) bias.Set(i, low + bias.At(i));
          }
          problem.tensors.at("sinks").Set(0, sink);
          ExpectSameNearest(MustCertify(problem), MustCertify(problem, balls),
                            "bias " + std::to_string(low) + " sink " + std::to_string(sink) +
                                " size " + std::to_string(size));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// -1e300 stands for an excluded key inside the rungs; a bias or sink of that size is none.
TEST(FaintKeys, DoNotMistakeLowBiasesForExclusion) {
  for (const double low : {-1e300, -1.5e308}) {
    Case problem = Degenerate({1, 1, 1, 1, 4, 2, 2, 2}, DType::kF64, true);
    problem.tensors.at("q") = Tensor(DType::kF64, {1, 1, 1, 2});
    for (Index j = 0; j < 4; ++j) problem.tensors.at("bias").Set(j, low);
    problem.tensors.at("sinks").Set(0, -kInfinity);
    ExpectAll(MustCertify(problem), "weights", 0.25);
    problem.tensors.at("sinks").Set(0, low);
    ExpectAll(MustCertify(problem), "weights", 0.2);
    CertifyOptions balls;
    balls.first_rung = Rung::kBall;
    ExpectSameNearest(MustCertify(problem), MustCertify(problem, balls), std::to_string(low));
  }
}

}  // namespace
}  // namespace attest
