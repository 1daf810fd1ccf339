// SPDX-License-Identifier: Apache-2.0
// The kernels' exponential, element by element.
#pragma once

#include <cstddef>

namespace attest {

// y[i] = exp(x[i]) for i < n, by the function of optimized/exp-inl.h (which states its error).
// x and y may be the same array; otherwise they must not overlap.
void ExpEach(const float* x, float* y, std::size_t n);

}  // namespace attest
