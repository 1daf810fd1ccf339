// SPDX-License-Identifier: Apache-2.0
// CPU time of every attention kernel on every SIMD target of this machine, for Google Benchmark.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "bench/attention_problem.h"
#include "bench/attention_rows.h"
#include "bench/own_kernels.h"
#include "optimized/targets.h"

namespace attest {
namespace {

constexpr AttentionShape kShapes[] = {
    {8, 1024, 1024, 64, false}, {8, 1024, 1024, 64, true}, {4, 2048, 2048, 128, false},
    {4, 2048, 2048, 128, true}, {8, 1, 8192, 128, false},
};

constexpr KernelChoice kChoices[] = {
    {},
    {.mode = Mode::kReproducible},
    {.mode = Mode::kAccurate},
    {.storage = DType::kBF16},
    {.backward = true},
};

// GFLOP/s and GB/s count what the formula needs (AttentionWork).
void Run(benchmark::State& state, AttentionShape shape, KernelChoice choice,
         std::string_view target) {
  const StatusOr<ScopedTarget> forced = ScopedTarget::Force(target);
  const AttentionProblem problem = DrawProblem(shape, 0);
  const StatusOr<std::unique_ptr<AttentionCall>> call = PrepareOwnKernel(problem, choice);
  for (auto _ : state) {
    const Status status = call.ok() ? call.value()->Run() : call.status();
    if (!status.ok()) {
      state.SkipWithError(status.message().c_str());
      break;
    }
    benchmark::ClobberMemory();
  }
  const Work work = AttentionWork(shape, choice);
  constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GFLOP/s"] = benchmark::Counter(1e-9 * work.flops, kRate);
  state.counters["GB/s"] = benchmark::Counter(1e-9 * work.bytes, kRate);
}

bool Exists(const KernelChoice& choice) {
  const AttentionProblem problem = DrawProblem({1, 1, 1, 64, false}, 0);
  return PrepareOwnKernel(problem, choice).ok();
}

void RegisterAll() {
  for (const KernelChoice& choice : kChoices) {
    if (!Exists(choice)) continue;
    for (const AttentionShape& shape : kShapes) {
      if (choice.backward && shape.queries == 1) continue;
      for (const std::string_view target : RunnableTargets()) {
        const Work work = AttentionWork(shape, choice);
        const std::string name = work.kernel + "@" + std::string(target) + "/" + work.shape;
        benchmark::RegisterBenchmark(name.c_str(), Run, shape, choice, target)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  attest::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
