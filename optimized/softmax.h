// SPDX-License-Identifier: Apache-2.0
// Softmax of the rows of a float matrix.
#pragma once

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

enum class SoftmaxAlgorithm {
  kShifted,  // maximum, then exponentials and their sum, then scaling
  kOnline,   // maximum and sum in one pass with rescaling, then the weights
};

// y = softmax of each row of x [m, n], lse[i] = ln sum_j exp(x_ij) ([m], may be null). The
// formulas, roundings and bounds are those of optimized/softmax-inl.h.
//
// The last axis of x and of y must have stride 1 (InvalidArgument otherwise; it does not matter for
// n <= 1); the stride of the rows is arbitrary, but 0 in y only for m <= 1. y may be x (same data
// and strides, in place); any other overlap is not allowed.
//
// An entry of -inf has weight 0. A row of -inf alone, and every row for n = 0: y = 0, lse = -inf.
// A NaN or +inf in a row makes its y and lse NaN.
Status RowSoftmax(SoftmaxAlgorithm algorithm, View<const float, 2> x, View<float, 2> y, float* lse);

}  // namespace attest
