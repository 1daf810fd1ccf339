// SPDX-License-Identifier: Apache-2.0
// What the textbook formula reads from a case: tensors as matrices, and which keys take part.
#pragma once

#include <Eigen/Core>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/case.h"

namespace attest {

template <class Number>
class TextbookInputs {
 public:
  using Matrix = Eigen::Matrix<Number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Column = Eigen::Matrix<Number, Eigen::Dynamic, 1>;
  using Mask = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  // A change of one element, finer than the tensor's type could hold.
  struct Nudge {
    const Tensor* tensor = nullptr;
    Index flat = 0;
    Number amount;
  };

  explicit TextbookInputs(const Case& problem) : case_(problem), shape_(problem.contract.shape) {}

  const Contract& contract() const { return case_.contract; }
  const Dimensions& shape() const { return shape_; }
  const Tensor* Find(const std::string& name) const { return case_.Find(name); }
  void SetNudge(Nudge nudge) { nudge_ = std::move(nudge); }

  Index Group(Index h) const { return h / (shape_.q_heads / shape_.kv_heads); }

  Number At(const Tensor& tensor, Index flat) const {
    Number value(tensor.At(flat));
    if (nudge_ && nudge_->tensor == &tensor && nudge_->flat == flat) value += nudge_->amount;
    return value;
  }

  // The flat index of element [b, h, r, c] of a tensor of rank 4 that repeats axes of length 1.
  static Index FlatIndex(const Tensor& tensor, Index b, Index h, Index r, Index c) {
    const Shape& s = tensor.shape();
    return ((b % s[0] * s[1] + h % s[1]) * s[2] + r % s[2]) * s[3] + c % s[3];
  }

  // Elements [b, h, :, :] of a tensor of rank 4.
  Matrix Slice(const Tensor& tensor, Index b, Index h, Index rows, Index columns) const {
    Matrix slice(rows, columns);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) slice(r, c) = At(tensor, FlatIndex(tensor, b, h, r, c));
    }
    return slice;
  }

  // A tensor of rank 2, or of rank 1 as one column.
  Matrix Whole(const Tensor& tensor) const {
    const Shape& s = tensor.shape();
    Matrix whole(s[0], s.size() == 1 ? 1 : s[1]);
    for (Index i = 0; i < whole.size(); ++i) {
      whole(i / whole.cols(), i % whole.cols()) = At(tensor, i);
    }
    return whole;
  }

  // Elements [b, h, :] of a tensor of rank 3.
  Column Line(const Tensor& tensor, Index b, Index h, Index length) const {
    Column line(length);
    for (Index i = 0; i < length; ++i) line(i) = At(tensor, (b * shape_.q_heads + h) * length + i);
    return line;
  }

  // Every kind of mask by itself; the allowed set is their conjunction.
  Mask Allowed(Index b, Index h) const {
    const Index m = shape_.q_len;
    const Index n = shape_.kv_len;
    Mask allowed = Mask::Constant(m, n, true);
    ExcludeByPosition(b, &allowed);
    const Tensor* mask = Find("mask");
    const Tensor* bias = Find("bias");
    const Tensor* q_documents = Find("q_documents");
    const Tensor* kv_documents = Find("kv_documents");
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        bool takes_part = true;
        if (mask) takes_part &= mask->At(FlatIndex(*mask, b, h, i, j)) != 0.0;
        if (bias) takes_part &= bias->At(FlatIndex(*bias, b, h, i, j)) != -kInfinity;
        if (q_documents) {
          takes_part &= q_documents->At(b * m + i) == kv_documents->At(b * n + j);
        }
        if (!takes_part) allowed(i, j) = false;
      }
    }
    if (contract().local) {
      using std::abs;
      const Number half_width(contract().local->half_width);
      const Column center = Line(*Find("local_center"), b, h, m);
      for (Index i = 0; i < m; ++i) {
        for (Index j = 0; j < n; ++j) {
          if (abs(Number(Real(j) - center(i))) > half_width) allowed(i, j) = false;
        }
      }
    }
    return allowed;
  }

  // The head's sink; -infinity is no sink.
  double Sink(Index h) const {
    const Tensor* sinks = Find("sinks");
    return sinks == nullptr ? -kInfinity : sinks->At(h);
  }

  // The slope of a head's ALiBi; 0 without.
  Number Slope(Index h) const {
    using std::pow;
    const Tensor* given = Find("alibi_slopes");
    const Alibi alibi = contract().alibi;
    if (alibi == Alibi::kNone || (alibi == Alibi::kUnset && given == nullptr)) return Number(0.0);
    if (given != nullptr) return Number(given->At(h));
    Index lower = 1;  // the largest power of two that is not above the number of heads
    while (2 * lower <= shape_.q_heads) lower *= 2;
    const bool regular = h < lower;
    const Index step = regular ? h + 1 : 2 * (h - lower) + 1;
    const Index steps = regular ? lower : 2 * lower;
    return pow(Number(2.0), Number(Real(-8 * step) / Real(steps)));
  }

  static Number Real(Index value) { return Number(static_cast<double>(value)); }

  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

 private:
  // Lengths, causality and window.
  void ExcludeByPosition(Index b, Mask* allowed) const {
    const Index m = shape_.q_len;
    const Index n = shape_.kv_len;
    const Index used_m = Length("q_lengths", b, m);
    const Index used_n = Length("kv_lengths", b, n);
    allowed->bottomRows(m - used_m).setConstant(false);
    allowed->rightCols(n - used_n).setConstant(false);
    const Causal causal = contract().causal;
    const Window& window = contract().window;
    const Index diagonal = causal == Causal::kTopLeft ? 0 : used_n - used_m;
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        const Index ahead = j - i - diagonal;  // how far the key lies beyond the diagonal
        if (causal != Causal::kNone && ahead > 0) (*allowed)(i, j) = false;
        if (window.left != -1 && -ahead > window.left) (*allowed)(i, j) = false;
        if (window.right != -1 && ahead > window.right) (*allowed)(i, j) = false;
      }
    }
  }

  Index Length(const char* name, Index b, Index capacity) const {
    const Tensor* lengths = Find(name);
    return lengths == nullptr ? capacity : static_cast<Index>(lengths->At(b));
  }

  const Case& case_;
  const Dimensions& shape_;
  std::optional<Nudge> nudge_;
};

}  // namespace attest
