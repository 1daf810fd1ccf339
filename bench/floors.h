// SPDX-License-Identifier: Apache-2.0
// What one thread of this machine can do at most: the floors that kernels are measured against.
//
// Everything runs on the SIMD target that dispatch chooses at the time (optimized/targets.h) and is
// timed by the processor time of the calling thread.
#pragma once

#include <cstddef>
#include <vector>

namespace attest {

// Rates of operations in registers or in the first cache, each measured again and again for about
// `seconds`; the best counts.

// Operations per second (two for each multiply-add) of independent chains of fused multiply-adds.
double FloatFmaPeak(double seconds);
double DoubleFmaPeak(double seconds);
// Exponentials per second: 2^y of 4096 floats of [-30, 0], loaded and stored, by the function of
// the fast attention kernels (optimized/exp2-inl.h).
double ExpPeak(double seconds);

// Two buffers that lie far apart in memory and have been written once, for the rates below.
class MemoryFloor {
 public:
  explicit MemoryFloor(std::size_t bytes);  // of each buffer; a multiple of 4096

  // Bytes per second of one pass. A copy counts every byte twice, read and written.
  double Copy();
  double Read();

 private:
  std::vector<float> from_, to_;
};

}  // namespace attest
