// SPDX-License-Identifier: Apache-2.0
// The attention kernels against what the machine can do at most, and against other libraries.
#pragma once

#include "bench/benchmark.h"

namespace attest {

// Measures, in one process and in interleaved rounds, our kernels on each SIMD target of interest,
// the floors of bench/floors.h and every peer that is found (bench/peers/peer.h), on the shapes of
// the table. The least time of each counts. A row whose kernel does not exist is left out; every
// row has its floor. A peer's output is compared with ours once, and the difference is recorded.
StatusOr<nlohmann::ordered_json> RunAttentionComparison(const BenchmarkOptions& options);

}  // namespace attest
