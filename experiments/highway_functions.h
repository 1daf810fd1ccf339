// SPDX-License-Identifier: Apache-2.0
// Exp, Log and Tanh of Highway's contrib/math on arrays, on the SIMD target that is chosen.
#pragma once

#include <cstddef>

namespace attest {

// y[i] = f(x[i]) for i < n, whole vectors and a filled up last one.
void HighwayExpEach(const float* x, float* y, std::size_t n);
void HighwayLogEach(const float* x, float* y, std::size_t n);
void HighwayTanhEach(const float* x, float* y, std::size_t n);

}  // namespace attest
