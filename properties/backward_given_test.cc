// SPDX-License-Identifier: Apache-2.0
// Attention backward from what the forward pass left: rows that are special, bits, the audit's use.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "audit/kernel_call.h"
#include "core/digest.h"
#include "optimized/targets.h"
#include "properties/backward_call.h"
#include "properties/backward_case.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rows without an allowed key under every policy, which decides what their out and lse are: by
// the mask (rows 3 and 70), by the causal rule (the first two) and by their length (the last).
TEST(BackwardGiven, TakesEmptyRowsOfEveryPolicy) {
  std::map<std::string, double> worst;
  for (const EmptyRow policy : {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform}) {
    for (const bool sinks : {false, true}) {
      Case problem = SpecCase({1, 2, 1, 72, 70, 4, 4, 3}, [&](CaseSpec& s) {
        s.causal = Causal::kBottomRight;
        s.empty_row = policy;
        s.sinks = sinks;
        s.grad_lse = true;
      });
      problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 72, 70});
      for (Index i = 0; i < 72 * 70; ++i) {
        problem.tensors["mask"].Set(i, i / 70 == 3 || i / 70 == 70 ? 0.0 : 1.0);
      }
      problem.tensors["q_lengths"] = Tensor(DType::kI32, {1});
      problem.tensors["q_lengths"].Set(0, 71);
      ASSERT_TRUE(FinishCase(&problem).ok());
      ExpectWithinBounds(problem, "policy " + std::to_string(static_cast<int>(policy)), &worst);
      // What q holds in a row that the mask leaves empty does not matter, to a sink neither.
      Execution execution;
      Case junk = problem;
      junk.tensors["q"].Set(3 * 4, kNaN);
      EXPECT_EQ(Sha256(MustRunGiven(Mode::kFast, junk, execution)),
                Sha256(MustRunGiven(Mode::kFast, problem, execution)));
    }
  }
}

// One row of what is given is special: an lse of -infinity takes its row out, anything else that is
// not finite makes it NaN, with the gradients of the keys that it sees and of its sink.
TEST(BackwardGiven, KeepsSpecialRowsApart) {
  constexpr Index kRows = 70;
  constexpr Index kRow = 66;  // of head 1, sees keys 0 to 66
  const Case problem = SpecCase({1, 2, 2, kRows, kRows, 4, 4, 3}, [&](CaseSpec& s) {
    s.causal = Causal::kTopLeft;
    s.sinks = true;
    s.grad_lse = true;
  });
  Execution execution;
  for (const Mode mode : kModes) {
    const StatusOr<ForwardResult> forward = RunForward(mode, problem, execution);
    ASSERT_TRUE(forward.ok());
    const TensorMap clean = MustRunGiven(mode, problem, execution);
    const auto run = [&](double lse, double out) {
      ForwardResult changed = *forward;
      if (lse != 0.0) changed.lse.Set(kRows + kRow, lse);
      if (out != 0.0) changed.out.Set((kRows + kRow) * 3 + 1, out);
      StatusOr<TensorMap> outputs = RunBackward(mode, problem, execution, &changed);
      EXPECT_TRUE(outputs.ok());
      return *outputs;
    };
    const auto touched = [&](const std::string& name, Index i) {
      if (name == "grad_sinks") return i == 1;
      const Index row = i / (name == "grad_v" ? 3 : 4);
      if (name == "grad_q") return row == kRows + kRow;
      return row >= kRows && row <= kRows + kRow;
    };
    for (const auto& [lse, out] : std::initializer_list<std::pair<double, double>>{
             {kNaN, 0.0}, {kInfinity, 0.0}, {0.0, kNaN}, {0.0, -kInfinity}}) {
      for (const auto& [name, tensor] : run(lse, out)) {
        for (Index i = 0; i < tensor.size(); ++i) {
          if (touched(name, i)) {
            ASSERT_TRUE(std::isnan(tensor.At(i))) << name << " " << i << " " << lse << " " << out;
          } else {
            ASSERT_EQ(tensor.At(i), clean.at(name).At(i)) << name << " " << i;
          }
        }
      }
    }
    for (const auto& [name, tensor] : run(-kInfinity, 0.0)) {
      for (Index i = 0; i < tensor.size(); ++i) {
        if (name == "grad_q" && touched(name, i)) {
          ASSERT_EQ(tensor.At(i), 0.0) << i;
        } else if (touched(name, i)) {
          ASSERT_TRUE(std::isfinite(tensor.At(i))) << name << " " << i;
        } else {
          ASSERT_EQ(tensor.At(i), clean.at(name).At(i)) << name << " " << i;
        }
      }
    }
  }
}

// Forward and backward of `reproducible`: one digest on every target.
TEST(BackwardGiven, IsReproducibleOnEveryTarget) {
  const std::map<DType, std::string> golden = {
      {DType::kF32, "95d37e2845dafa8ea989b1584b0f0716bd48a5f7b84de34cafb040fba501eef2"},
      {DType::kF64, "d79ef9ffeb7d58165761017c4ec7c09e34877c7a3185d56ae754b0f93ca82db4"}};
  Execution execution;
  for (const auto& [dtype, digest] : golden) {
    const Case problem = LargeCase(ScoreKind::kDot, dtype);
    for (const std::string_view target : RunnableTargets()) {
      const StatusOr<ScopedTarget> scope = ScopedTarget::Force(target);
      EXPECT_EQ(Sha256(MustRunGiven(Mode::kReproducible, problem, execution)), digest) << target;
    }
  }
}

// The audit's call passes on what its forward pass left exactly if both tensors are asked for.
TEST(BackwardGiven, IsWhatTheAuditRunsAfterAForwardPass) {
  Execution execution;
  const Case problem = LargeCase(ScoreKind::kDot, DType::kF32);
  const auto digest = [&](const std::vector<std::string>& more) {
    Case asked = problem;
    for (const std::string& name : more) asked.contract.outputs.push_back(name);
    StatusOr<TensorMap> outputs =
        RunKernel(asked, Mode::kFast, AttentionAlgorithm::kTiled, execution);
    EXPECT_TRUE(outputs.ok()) << outputs.status().message();
    for (const std::string& name : more) outputs->erase(name);
    return Sha256(*outputs);
  };
  const std::string alone = Sha256(MustRun(Mode::kFast, problem, execution));
  const std::string given = Sha256(MustRunGiven(Mode::kFast, problem, execution));
  EXPECT_NE(alone, given);
  EXPECT_EQ(digest({}), alone);
  EXPECT_EQ(digest({"out"}), alone);
  EXPECT_EQ(digest({"lse"}), alone);
  EXPECT_EQ(digest({"out", "lse"}), given);
}

}  // namespace
}  // namespace attest
