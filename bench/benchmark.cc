// SPDX-License-Identifier: Apache-2.0
#include "bench/benchmark.h"

#include "bench/attention_comparison.h"
#include "bench/reference_bench.h"

namespace attest {

const std::vector<Benchmark>& Benchmarks() {
  static const std::vector<Benchmark> benchmarks{
      {"attention",
       "How near are the attention kernels to the machine's floors, and to other libraries?",
       RunAttentionComparison},
      {"reference", "How much cheaper is a certified element than one in plain 50-digit MPFR?",
       RunReferenceBench},
  };
  return benchmarks;
}

StatusOr<nlohmann::ordered_json> RunBenchmark(const std::string& name,
                                              const BenchmarkOptions& options) {
  std::string known;
  for (const Benchmark& benchmark : Benchmarks()) {
    if (benchmark.name == name) return benchmark.run(options);
    known += (known.empty() ? "" : ", ") + benchmark.name;
  }
  return NotFound("no benchmark '" + name + "' (there are: " + known + ")");
}

}  // namespace attest
