// SPDX-License-Identifier: Apache-2.0
// Elementary functions of arrays.
#pragma once

#include <cstddef>

#include "optimized/mode.h"

namespace attest {

// y[i] = f(x[i]) for i < n. optimized/exp-inl.h, log-inl.h and tanh-inl.h state the formulas, the
// special values and the errors; table of docs/functions.md. An element's result depends on x[i]
// and the mode alone, in kReproducible not even on the SIMD target. NaN and infinities are values.
// x and y may be the same array; otherwise they must not overlap.
void ExpEach(Mode mode, const float* x, float* y, std::size_t n);
void ExpEach(Mode mode, const double* x, double* y, std::size_t n);
void Exp2Each(Mode mode, const float* x, float* y, std::size_t n);
void Exp2Each(Mode mode, const double* x, double* y, std::size_t n);
void LogEach(Mode mode, const float* x, float* y, std::size_t n);
void LogEach(Mode mode, const double* x, double* y, std::size_t n);
void TanhEach(Mode mode, const float* x, float* y, std::size_t n);
void TanhEach(Mode mode, const double* x, double* y, std::size_t n);

// y[i] = 2^x[i] for x[i] <= 127.5 by the function in the inner loop of softmax
// (optimized/exp2-inl.h): faster, and less accurate.
void SoftmaxExp2Each(Mode mode, const float* x, float* y, std::size_t n);

}  // namespace attest
