// SPDX-License-Identifier: Apache-2.0
// Errors of implementations of one elementary function over sets of floats.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/status.h"
#include "experiments/exact_function.h"

namespace attest {

struct FunctionSubject {
  std::string library;  // "Attest", "Highway", "C library"
  std::string variant;  // the mode; empty for others
  std::string target;   // SIMD target to force; empty: none
  std::function<void(const float* x, float* y, std::size_t n)> each;
  // Arguments that it answers for; without limits NaN is one.
  float lowest = -std::numeric_limits<float>::infinity();
  float highest = std::numeric_limits<float>::infinity();
};

// Floats by their bits: first, first + stride, ..., `count` of them.
struct FloatRange {
  std::uint32_t first = 0;
  std::uint32_t stride = 1;
  std::uint64_t count = 0;
};

std::vector<FloatRange> AllFloats();
// Every stride-th float of every binade, from the middle of the first stride on.
std::vector<FloatRange> EveryFloat(std::uint32_t stride);
// The 2^16 floats that share the upper half of their bits with x.
FloatRange WindowAround(float x);

struct UlpTally {
  std::uint64_t inputs = 0;
  std::uint64_t wrong = 0;    // not correctly rounded; 0 of either sign is 0
  std::uint64_t differs = 0;  // bits that differ from the first subject of the library and variant
  double largest = 0.0;       // certified
  float at = 0.0f;            // the witness: of the smallest bits
  float got = 0.0f;
  float wanted = 0.0f;
  // Largest error by sign and exponent bits of x (upper 9), right to 2^-26 ULP.
  std::array<double, 512> by_binade{};
};

// One tally a subject, the same at any number of threads. Subjects of one target should be
// neighbours. Forces SIMD targets, so that no kernel may run meanwhile. Overlapping ranges count
// twice. `done`, where given, hears of numbers of floats.
StatusOr<std::vector<UlpTally>> ScanFunction(ExactFunction function,
                                             const std::vector<FunctionSubject>& subjects,
                                             const std::vector<FloatRange>& ranges, int threads,
                                             const std::function<void(std::uint64_t)>& done);

}  // namespace attest
