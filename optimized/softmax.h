// SPDX-License-Identifier: Apache-2.0
// Softmax, log-softmax and log-sum-exp of the rows of a matrix.
#pragma once

#include <type_traits>

#include "core/status.h"
#include "core/tensor.h"
#include "optimized/mode.h"

namespace attest {

enum class SoftmaxAlgorithm {
  kUnshifted,  // sum of exp(x_j) as it stands: overflows for x_j > 88.7 (709.7) and underflows for
               // rows below -104 (-745); a specimen, not for use
  kShifted,    // maximum, then exponentials and their sum, then scaling
  kOnline,     // maximum and sum in one pass with rescaling, then the weights
  kTwoPass,    // no maximum: sums of mantissas with an exponent of their own (Dukhan and Ablavatski
               // 2020), then the weights, whose exponentials are computed again
};

// Type of a log-sum-exp of elements T: float for float and the 16-bit types, double for double.
template <class T>
using LseOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// y = softmax of each row of x [m, n], lse[i] = ln sum_j exp(x_ij) ([m], may be null). T is float,
// double, BFloat16 or Float16; Policy is Fast, Reproducible or Accurate (optimized/mode.h). The
// formulas, roundings and bounds are those of optimized/softmax-inl.h; 16-bit elements are widened
// to float, and results rounded to nearest even, once, at the end.
//
// The last axis of x and of y must have stride 1 (InvalidArgument otherwise; it does not matter for
// n <= 1); the stride of the rows is arbitrary, but 0 in y only for m <= 1. y may be x (same data
// and strides, in place); any other overlap is not allowed.
//
// An entry of -inf has weight 0. A row of -inf alone, and every row for n = 0: y = 0, lse = -inf.
// A NaN or +inf in a row makes its y and lse NaN.
template <class Policy, class T>
Status RowSoftmax(Policy policy, SoftmaxAlgorithm algorithm, View<const T, 2> x, View<T, 2> y,
                  LseOf<T>* lse);

// y_ij = x_ij - lse_i; -inf for an entry of -inf and throughout a row of -inf alone. Otherwise as
// RowSoftmax.
template <class Policy, class T>
Status RowLogSoftmax(Policy policy, SoftmaxAlgorithm algorithm, View<const T, 2> x, View<T, 2> y,
                     LseOf<T>* lse);

// lse alone; it must not be null for m > 0.
template <class Policy, class T>
Status RowLogSumExp(Policy policy, SoftmaxAlgorithm algorithm, View<const T, 2> x, LseOf<T>* lse);

}  // namespace attest
