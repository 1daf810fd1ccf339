// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation over matrices whose memory is reused from batch to batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "experiments/seq2seq/products.h"
#include "optimized/execution.h"

namespace attest {

// Rows of consecutive elements, and their gradients in the same layout (null without gradients).
// Does not own its elements.
template <class T>
struct Matrix {
  Index rows = 0;
  Index columns = 0;
  T* value = nullptr;
  T* grad = nullptr;

  Index size() const { return rows * columns; }
  T* Row(Index row) const { return value + row * columns; }
  T* GradRow(Index row) const { return grad + row * columns; }
  // Rows first, ..., first + count - 1 of this matrix, in place.
  Matrix Rows(Index first, Index count) const {
    return {count, columns, Row(first), grad == nullptr ? nullptr : GradRow(first)};
  }
};

// Hands out matrices and remembers how to go back. Operations (operations.h, attend.h) compute a
// result at once and record a function that adds to the gradients of what they read. T: float and
// double, which run on SIMD kernels, or a type of many digits, for which every operation is its
// definition. Not for use by two threads at a time.
template <class T>
class Tape {
 public:
  // Forgets everything, but keeps the memory. Without `gradients` nothing is recorded.
  void Reset(bool gradients) {
    gradients_ = gradients;
    steps_.clear();
    transposed_.clear();
    block_ = 0;
    used_ = 0;
    flops_ = 0.0;
    status_ = Status();
  }

  bool gradients() const { return gradients_; }
  // Operations of the matrix products since Reset, a multiplication and an addition each counted.
  double flops() const { return flops_; }
  void CountFlops(double flops) { flops_ += flops; }
  // The first failure of an operation.
  const Status& status() const { return status_; }
  void Note(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  Execution& execution() { return execution_; }

  // Elements with values from before.
  T* Scratch(Index count) {
    // Whole cache lines, so that no two arrays share one.
    const auto size = (static_cast<std::size_t>(count) + 15) / 16 * 16;
    while (block_ < blocks_.size() && used_ + size > blocks_[block_].size()) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) blocks_.emplace_back(std::max(size, kBlockSize));
    T* const at = blocks_[block_].data() + used_;
    used_ += size;
    return at;
  }
  // The same for use within one step: what an earlier call returned is lost.
  T* Temporary(Index count) {
    if (temporary_.size() < static_cast<std::size_t>(count)) {
      temporary_.resize(static_cast<std::size_t>(count));
    }
    return temporary_.data();
  }
  // Values and gradients are 0.
  Matrix<T> Zeros(Index rows, Index columns) {
    Matrix<T> matrix = Uninitialised(rows, columns);
    std::fill_n(matrix.value, matrix.size(), T(0));
    return matrix;
  }
  // Values from before, gradients 0.
  Matrix<T> Uninitialised(Index rows, Index columns) {
    Matrix<T> matrix{rows, columns, Scratch(rows * columns), nullptr};
    if (gradients_) {
      matrix.grad = Scratch(rows * columns);
      std::fill_n(matrix.grad, matrix.size(), T(0));
    }
    return matrix;
  }

  // To be called by Backward, the last one recorded first.
  template <class Step>
  void Record(Step step) {
    if (gradients_) steps_.emplace_back(std::move(step));
  }
  // Adds to all gradients, given those of the results.
  void Backward() {
    for (std::size_t i = steps_.size(); i-- > 0;) steps_[i]();
  }

  // The transpose of w, which must not change until Reset; found once.
  const T* Transposed(const Matrix<T>& w) {
    for (const auto& [of, transposed] : transposed_) {
      if (of == w.value) return transposed;
    }
    T* const to = Scratch(w.size());
    for (Index i = 0; i < w.rows; ++i) {
      for (Index j = 0; j < w.columns; ++j) to[j * w.rows + i] = w.value[i * w.columns + j];
    }
    transposed_.emplace_back(w.value, to);
    return to;
  }

 private:
  static constexpr std::size_t kBlockSize = std::size_t{1} << 18;

  bool gradients_ = false;
  std::vector<std::function<void()>> steps_;
  std::vector<std::pair<const T*, const T*>> transposed_;
  std::vector<std::vector<T>> blocks_;
  std::vector<T> temporary_;
  std::size_t block_ = 0;  // in use
  std::size_t used_ = 0;   // elements of it
  double flops_ = 0.0;
  Status status_;
  Execution execution_;
};

}  // namespace attest
