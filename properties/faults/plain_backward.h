// SPDX-License-Identifier: Apache-2.0
// The plain backward pass: what every row adds to the gradients that are asked for.
//
// With dO = grad_out, dL = grad_lse, f = Gaussian and dropout factor of a key:
//   dV_j += p_j f_j dO      dP_j = f_j <dO, v_j>      delta = sum_j p_j dP_j
//   dS_j = p_j (dP_j - delta + dL)      dsink += exp(sink - LSE) (dL - delta)
#pragma once

#include <vector>

#include "properties/faults/plain_args.h"
#include "properties/faults/plain_forward.h"
#include "properties/faults/plain_score.h"

namespace attest {

// A gradient while it is summed up; nothing where it is not asked for.
template <class T>
class GradientSum {
 public:
  explicit GradientSum(const PlainTensor& to);

  void Add(T value, Index a, Index b = 0, Index c = 0, Index d = 0) {
    if (to_.present()) At(a, b, c, d) += value;
  }
  void Replace(T value, Index a, Index b = 0, Index c = 0, Index d = 0) {
    if (to_.present()) At(a, b, c, d) = value;
  }
  void Write() const;

 private:
  T& At(Index a, Index b, Index c, Index d);

  const PlainTensor to_;
  std::vector<T> sums_;  // row-major; an axis of length 1 takes every index
};

template <class T>
class PlainBackward {
 public:
  explicit PlainBackward(const PlainCall& call);

  // Rows come in the order of (b, h, i).
  void Add(const PlainRow<T>& row);
  void Write() const;

 private:
  // What a key needs to pass a gradient on.
  struct Flow {
    bool passes = false;
    T p = 0;
    T factor = 0;
    T dp = 0;
  };

  void StartHead(const RowIndex& at);
  void AddEmpty(const PlainRow<T>& row, T d_lse);
  std::vector<Flow> Flows(const PlainRow<T>& row, const std::vector<T>& d_out) const;
  T Delta(const PlainRow<T>& row, const std::vector<T>& d_out, const std::vector<Flow>& flows,
          Index first, Index last) const;
  Index FirstKey(Index keys) const;
  void AddBias(const RowIndex& at, Index j, T ds);
  void AddScore(const RowIndex& at, Index j, T dr, PlainScore<T>* score);
  void AddUnits(const RowIndex& at, Index j, T dr, PlainScore<T>* score);

  const PlainCall& call_;
  GradientSum<T> q_, k_, v_, bias_, sinks_, w_, w_q_, w_k_, b_, v_a_;
};

extern template class PlainBackward<float>;
extern template class PlainBackward<double>;

}  // namespace attest
