// SPDX-License-Identifier: Apache-2.0
// The textbook formula, templated over the number type; included by one file per type.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/case.h"
#include "reference/textbook.h"

namespace attest {

template <class Number>
class Textbook {
 public:
  using Matrix = Eigen::Matrix<Number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Mask = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  explicit Textbook(const Case& problem) : case_(problem), shape_(problem.contract.shape) {}

  TextbookResult Forward() const {
    TextbookResult result;
    for (Index b = 0; b < shape_.batch; ++b) {
      for (Index h = 0; h < shape_.q_heads; ++h) OneHead(b, h, &result);
    }
    return result;
  }

 private:
  // Elements [b, h, :, :] of a tensor [B, H, rows, columns]; axes of length 1 are repeated.
  Matrix Slice(const Tensor& tensor, Index b, Index h, Index rows, Index columns) const {
    const Shape& s = tensor.shape();
    Matrix slice(rows, columns);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) {
        const Index flat =
            (((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + (s[2] == 1 ? 0 : r)) *
                s[3] +
            (s[3] == 1 ? 0 : c);
        slice(r, c) = Number(tensor.At(flat));
      }
    }
    return slice;
  }

  Index Length(const char* name, Index b, Index capacity) const {
    const Tensor* lengths = case_.Find(name);
    return lengths == nullptr ? capacity : static_cast<Index>(lengths->At(b));
  }

  // Every kind of mask as a matrix of its own; the allowed set is their product.
  Mask AllowedMatrix(Index b, Index h) const {
    const Contract& contract = case_.contract;
    const Index m = shape_.q_len;
    const Index n = shape_.kv_len;
    const Index used_m = Length("q_lengths", b, m);
    const Index used_n = Length("kv_lengths", b, n);
    Mask allowed = Mask::Constant(m, n, true);
    allowed.bottomRows(m - used_m).setConstant(false);
    allowed.rightCols(n - used_n).setConstant(false);
    const bool top_left = contract.causal == Causal::kTopLeft;
    const Index diagonal = top_left ? 0 : used_n - used_m;
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        const Index ahead = j - i - diagonal;  // how far the key lies beyond the diagonal
        if (contract.causal != Causal::kNone && ahead > 0) allowed(i, j) = false;
        if (contract.window.left != -1 && -ahead > contract.window.left) allowed(i, j) = false;
        if (contract.window.right != -1 && ahead > contract.window.right) allowed(i, j) = false;
      }
    }
    if (const Tensor* mask = case_.Find("mask")) {
      allowed = allowed && (Slice(*mask, b, h, m, n).array() != Number(0));
    }
    if (const Tensor* documents = case_.Find("q_documents")) {
      for (Index i = 0; i < m; ++i) {
        for (Index j = 0; j < n; ++j) {
          if (documents->At(b * m + i) != case_.Find("kv_documents")->At(b * n + j)) {
            allowed(i, j) = false;
          }
        }
      }
    }
    if (contract.local) {
      const Number half_width(contract.local->half_width);
      for (Index i = 0; i < m; ++i) {
        const Number center(Center(b, h, i));
        for (Index j = 0; j < n; ++j) {
          if (abs(Number(j) - center) > half_width) allowed(i, j) = false;
        }
      }
    }
    if (const Tensor* bias = case_.Find("bias")) {
      for (Index i = 0; i < m; ++i) {
        for (Index j = 0; j < n; ++j) {
          if (BiasAt(*bias, b, h, i, j) == -std::numeric_limits<double>::infinity()) {
            allowed(i, j) = false;
          }
        }
      }
    }
    return allowed;
  }

  double Center(Index b, Index h, Index i) const {
    return case_.Find("local_center")->At((b * shape_.q_heads + h) * shape_.q_len + i);
  }

  double BiasAt(const Tensor& bias, Index b, Index h, Index i, Index j) const {
    const Shape& s = bias.shape();
    return bias.At(((b % s[0] * s[1] + h % s[1]) * s[2] + i % s[2]) * s[3] + j % s[3]);
  }

  // Scores before exclusion; keys that are excluded are left at 0.
  Matrix Scores(Index b, Index h, const Mask& allowed) const {
    using std::sqrt;
    using std::tanh;
    const Contract& contract = case_.contract;
    const Index group = h / (shape_.q_heads / shape_.kv_heads);
    const Matrix q = Slice(*case_.Find("q"), b, h, shape_.q_len, shape_.qk_dim);
    const Matrix k = Slice(*case_.Find("k"), b, group, shape_.kv_len, shape_.k_dim);
    Matrix scores = q * k.transpose();
    if (contract.scale.rsqrt_dk) {
      scores /= sqrt(Number(shape_.k_dim));
    } else {
      scores *= Number(contract.scale.value);
    }
    if (contract.softcap > 0.0) {
      const Number cap(contract.softcap);
      scores = scores.unaryExpr([&](const Number& s) { return Number(cap * tanh(s / cap)); });
    }
    const Tensor* bias = case_.Find("bias");
    const Number slope = Slope(h);
    for (Index i = 0; i < shape_.q_len; ++i) {
      for (Index j = 0; j < shape_.kv_len; ++j) {
        if (!allowed(i, j)) {
          scores(i, j) = Number(0);
          continue;
        }
        if (bias != nullptr) scores(i, j) += Number(BiasAt(*bias, b, h, i, j));
        scores(i, j) -= slope * Number(std::abs(i + shape_.kv_len - shape_.q_len - j));
      }
    }
    return scores;
  }

  Number Slope(Index h) const {
    using std::pow;
    const Tensor* given = case_.Find("alibi_slopes");
    const Alibi alibi = case_.contract.alibi;
    if (alibi == Alibi::kNone || (alibi == Alibi::kUnset && given == nullptr)) return Number(0);
    if (given != nullptr) return Number(given->At(h));
    Index lower = 1;  // the largest power of two that is not above the number of heads
    while (2 * lower <= shape_.q_heads) lower *= 2;
    const bool regular = h < lower;
    const Index step = regular ? h + 1 : 2 * (h - lower) + 1;
    const Index steps = regular ? lower : 2 * lower;
    return pow(Number(2), Number(-8 * step) / Number(steps));
  }

  void OneHead(Index b, Index h, TextbookResult* result) const {
    const Mask allowed = AllowedMatrix(b, h);
    const Matrix scores = Scores(b, h, allowed);
    const Index group = h / (shape_.q_heads / shape_.kv_heads);
    const Matrix v = Slice(*case_.Find("v"), b, group, shape_.kv_len, shape_.v_dim);
    Matrix weights = Matrix::Zero(shape_.q_len, shape_.kv_len);
    Matrix kept = weights;
    for (Index i = 0; i < shape_.q_len; ++i) {
      if (allowed.row(i).any()) {
        AppendNumber(SoftmaxRow(h, i, allowed, scores, &weights), &result->lse);
        if (case_.contract.local && case_.contract.local->gaussian) {
          MultiplyByGaussian(Center(b, h, i), i, &weights);
        }
        kept.row(i) = weights.row(i);
        if (const Tensor* keep = case_.Find("keep")) {
          kept.row(i) =
              kept.row(i).cwiseProduct(Slice(*keep, b, h, shape_.q_len, shape_.kv_len).row(i) /
                                       (Number(1) - Number(case_.contract.dropout_rate)));
        }
      } else {
        AppendNumber(EmptyRowOf(h, i, &weights), &result->lse);
        kept.row(i) = weights.row(i);
      }
    }
    Append(kept * v, &result->out);
    Append(weights, &result->weights);
  }

  // The logit of a head's sink; -infinity is no sink.
  double Sink(Index h) const {
    const Tensor* sinks = case_.Find("sinks");
    return sinks == nullptr ? -std::numeric_limits<double>::infinity() : sinks->At(h);
  }

  // Fills row `i` of the weights and returns its LSE.
  Number SoftmaxRow(Index h, Index i, const Mask& allowed, const Matrix& scores,
                    Matrix* weights) const {
    using std::exp;
    using std::log;
    Number largest(0);
    bool first = true;
    for (Index j = 0; j < shape_.kv_len; ++j) {
      if (!allowed(i, j) || (!first && scores(i, j) <= largest)) continue;
      largest = scores(i, j);
      first = false;
    }
    Number sum(0);
    for (Index j = 0; j < shape_.kv_len; ++j) {
      if (!allowed(i, j)) continue;
      (*weights)(i, j) = exp(Number(scores(i, j) - largest));
      sum += (*weights)(i, j);
    }
    if (std::isfinite(Sink(h))) sum += exp(Number(Number(Sink(h)) - largest));
    weights->row(i) /= sum;
    return largest + log(sum);
  }

  // A row without any allowed key, by the contract's policy; a sink makes it 0.
  Number EmptyRowOf(Index h, Index i, Matrix* weights) const {
    const double sink = Sink(h);
    if (std::isfinite(sink)) return Number(sink);
    const Number nan(std::numeric_limits<double>::quiet_NaN());
    if (case_.contract.empty_row == EmptyRow::kNan) {
      weights->row(i).setConstant(nan);
      return nan;
    }
    if (case_.contract.empty_row == EmptyRow::kUniform && shape_.kv_len > 0) {
      weights->row(i).setConstant(Number(1) / Number(shape_.kv_len));
    }
    return Number(-std::numeric_limits<double>::infinity());
  }

  void MultiplyByGaussian(double center, Index i, Matrix* weights) const {
    using std::exp;
    const Number sigma = Number(case_.contract.local->half_width) / Number(2);
    for (Index j = 0; j < shape_.kv_len; ++j) {
      const Number distance = Number(j) - Number(center);
      (*weights)(i, j) *= exp(Number(-(distance * distance) / (Number(2) * sigma * sigma)));
    }
  }

  static void Append(const Matrix& values, TextbookTensor* tensor) {
    for (Index r = 0; r < values.rows(); ++r) {
      for (Index c = 0; c < values.cols(); ++c) AppendNumber(values(r, c), tensor);
    }
  }

  static void AppendNumber(const Number& value, TextbookTensor* tensor) {
    const auto hi = static_cast<double>(value);
    tensor->hi.push_back(hi);
    tensor->lo.push_back(std::isfinite(hi) ? static_cast<double>(Number(value - Number(hi))) : 0.0);
  }

  const Case& case_;
  const Dimensions& shape_;
};

}  // namespace attest
