// SPDX-License-Identifier: Apache-2.0
// How many double operations per second this machine's fused multiply-add delivers at most.
#pragma once

namespace attest {

// GFLOP/s of one thread in about `seconds` of its own time: independent chains of multiply-adds in
// registers (two operations each) on the SIMD target that dispatch chooses.
double DoubleFmaPeak(double seconds);

}  // namespace attest
