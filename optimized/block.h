// SPDX-License-Identifier: Apache-2.0
// The block of keys that all kernels work in, and the scalar ends of a softmax.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

namespace attest {

// Kernels take keys in blocks of 64 and keep 64 running sums, whatever the vector length: the
// order of every addition, and with it every bit, is then that of the block and not of the target.
inline constexpr std::size_t kBlock = 64;

// Vectors are capped at this many floats (AVX3's); a divisor of kBlock.
inline constexpr std::size_t kMaxLanes = 16;

inline constexpr std::size_t DivideUp(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// What a softmax subtracts: the maximum, or 0 where that is -inf, so that exp(-inf - shift) is 0
// instead of NaN.
inline float Shift(float max) {
  return max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
}

// ln(sum * e^shift), evaluated in double and rounded once; -inf for sum = 0, NaN for a NaN sum.
inline float LogSumExp(float shift, float sum) {
  return static_cast<float>(static_cast<double>(shift) + std::log(static_cast<double>(sum)));
}

}  // namespace attest
