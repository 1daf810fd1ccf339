// SPDX-License-Identifier: Apache-2.0
// Rows of numbers of any element type and stride, read into and written from the accumulation type.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "core/tensor.h"

namespace attest {

// to[i] = element i of the row at `from`, whose elements lie `stride` elements apart; i < count.
// The widening is exact, except for f64 read as float, which is rounded to nearest. T is float or
// double.
template <class T>
void ReadRow(DType dtype, const void* from, Index stride, std::size_t count, T* to);

// The opposite: rounded to nearest, ties to even, once (double to a 16-bit type as well).
template <class T>
void WriteRow(const T* from, std::size_t count, DType dtype, void* to, Index stride);

// One element, as a double.
double ReadElement(DType dtype, const void* at);
void WriteElement(double value, DType dtype, void* at);

}  // namespace attest
