// SPDX-License-Identifier: Apache-2.0
// The certified ladder against plain MPFR of 50 decimal digits, per output element.
#pragma once

#include "bench/benchmark.h"

namespace attest {

// Measures, by processor time of one thread, whole cases through Certify, a few rows of each in
// plain MPFR, and the peak of double multiply-adds, in interleaved rounds; the least time of each
// counts, as does the least time of each row in MPFR. Refuses to report when the two disagree about
// an element. The record's "rows" are the shapes; a shape that Certify does not support says so in
// its "unsupported".
StatusOr<nlohmann::ordered_json> RunReferenceBench(const BenchmarkOptions& options);

}  // namespace attest
