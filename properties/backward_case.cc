// SPDX-License-Identifier: Apache-2.0
#include "properties/backward_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "audit/judge.h"
#include "optimized/targets.h"
#include "properties/backward_call.h"

namespace attest {

// The case with gradients alone as outputs, and every slope given.
Case GradientsOnly(Case problem) {
  std::vector<std::string>& outputs = problem.contract.outputs;
  std::erase_if(outputs, [](const std::string& name) { return !name.starts_with("grad_"); });
  if (problem.contract.alibi == Alibi::kDefault && problem.Find("alibi_slopes") == nullptr) {
    const Index heads = problem.contract.shape.q_heads;
    Tensor slopes(problem.contract.wide_dtype(), {heads});
    for (Index h = 0; h < heads; ++h) slopes.Set(h, 0.25 / static_cast<double>(h + 1));
    problem.tensors["alibi_slopes"] = std::move(slopes);
  }
  EXPECT_TRUE(FinishCase(&problem).ok());
  return problem;
}

Case SpecCase(const Dimensions& shape, const std::function<void(CaseSpec&)>& change, DType dtype) {
  CaseSpec spec{.shape = shape, .dtype = dtype};
  spec.gradients = true;
  if (change) change(spec);
  return GradientsOnly(MakeCase(spec, 7));
}

Case LargeCase(ScoreKind score, DType dtype) {
  Case problem = SpecCase(
      {2, 4, 2, 70, 400, 20, 20, 9},
      [&](CaseSpec& s) {
        s.score = score;
        s.causal = Causal::kBottomRight;
        s.sinks = true;
        s.softcap = 3.0;
        s.broadcast_bias = true;
        s.kv_lengths = true;
        s.grad_lse = true;
        s.dropout_rate = 0.25;
      },
      dtype);
  return problem;
}

TensorMap MustRun(Mode mode, const Case& problem, Execution& execution) {
  StatusOr<TensorMap> outputs = RunBackward(mode, problem, execution);
  EXPECT_TRUE(outputs.ok()) << outputs.status().message();
  return outputs.ok() ? *std::move(outputs) : TensorMap();
}

TensorMap MustRunGiven(Mode mode, const Case& problem, Execution& execution) {
  const StatusOr<ForwardResult> forward = RunForward(mode, problem, execution);
  EXPECT_TRUE(forward.ok()) << forward.status().message();
  if (!forward.ok()) return TensorMap();
  StatusOr<TensorMap> outputs = RunBackward(mode, problem, execution, &*forward);
  EXPECT_TRUE(outputs.ok()) << outputs.status().message();
  return outputs.ok() ? *std::move(outputs) : TensorMap();
}

void ExpectWithinBounds(const Case& problem, const std::string& what,
                        std::map<std::string, double>* worst) {
  Execution execution;
  for (const Mode mode : kModes) {
    // f64 tensors: nothing is more accurate than f64. Accurate sums up f32 and less in f64.
    Case judged = problem;
    judged.contract.arithmetic.profile = mode == Mode::kAccurate ? "f64" : "f32";
    const StatusOr<Expectation> expected = Expect(judged);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    for (const std::string_view target : RunnableTargets()) {
      const StatusOr<ScopedTarget> scope = ScopedTarget::Force(target);
      for (const bool given : {false, true}) {
        const std::string run = std::string(NameOf(mode)) + (given ? " given" : "");
        for (const auto& [name, tensor] :
             given ? MustRunGiven(mode, problem, execution) : MustRun(mode, problem, execution)) {
          const TensorVerdict verdict = Judge(*expected, name, tensor);
          ASSERT_EQ(verdict.violations, 0)
              << what << ", " << run << ", " << target << ", " << name << ": got "
              << verdict.worst.got << ", expected " << verdict.worst.expected << ", error / bound "
              << verdict.worst.bound_ratio;
          ASSERT_EQ(verdict.not_judged, 0) << what << ", " << name;
          double& of_tensor = (*worst)[run + " " + name];
          of_tensor = std::max(of_tensor, verdict.max_bound_ratio);
        }
      }
    }
  }
}

}  // namespace attest
