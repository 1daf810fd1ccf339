// SPDX-License-Identifier: Apache-2.0
// CPU time of every attention kernel on every SIMD target of this machine.
#include <benchmark/benchmark.h>

#include <string>

#include "core/random.h"
#include "core/tensor.h"
#include "optimized/attention.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"

namespace attest {
namespace {

struct BenchShape {
  Index heads;
  Index length;  // queries and keys
  Index dim;
  bool causal;
};

Tensor Drawn(const char* name, const BenchShape& shape) {
  Tensor tensor(DType::kF32, {1, shape.heads, shape.length, shape.dim});
  const RandomStream stream(0, "bench", name);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, stream.Normal(static_cast<std::uint64_t>(i)));
  }
  return tensor;
}

// Reports GFLOP/s as 4 H n^2 D multiplications and additions, n (n + 1) / 2 pairs when causal.
void Forward(benchmark::State& state, AttentionAlgorithm algorithm, std::string_view target,
             BenchShape shape) {
  const StatusOr<ScopedTarget> forced = ScopedTarget::Force(target);
  const Tensor q = Drawn("q", shape);
  const Tensor k = Drawn("k", shape);
  const Tensor v = Drawn("v", shape);
  Tensor out(DType::kF32, q.shape());
  AttentionArgs args;
  args.q = q.view<float, 4>();
  args.k = k.view<float, 4>();
  args.v = v.view<float, 4>();
  args.causal = shape.causal ? Causal::kTopLeft : Causal::kNone;
  AttentionOutputs outputs;
  outputs.out = out.view<float, 4>();
  for (auto _ : state) {
    const Status status = AttentionForward(algorithm, args, outputs);
    if (!status.ok()) state.SkipWithError(status.message().c_str());
    benchmark::ClobberMemory();
  }
  const double n = static_cast<double>(shape.length);
  const double pairs = shape.causal ? n * (n + 1.0) / 2.0 : n * n;
  state.counters["GFLOP/s"] =
      benchmark::Counter(4e-9 * static_cast<double>(shape.heads * shape.dim) * pairs,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void RegisterAll() {
  for (const BenchShape& shape : {BenchShape{8, 1024, 64, false}, BenchShape{8, 1024, 64, true},
                                  BenchShape{4, 2048, 128, false}}) {
    for (const KernelInfo& kernel : Kernels()) {
      for (const std::string_view target : RunnableTargets()) {
        const std::string name = std::string(kernel.name) + "@" + std::string(target) + "/" +
                                 std::to_string(shape.heads) + "x" + std::to_string(shape.length) +
                                 "x" + std::to_string(shape.dim) + (shape.causal ? "/causal" : "");
        benchmark::RegisterBenchmark(name.c_str(), Forward, kernel.algorithm, target, shape)
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
