// SPDX-License-Identifier: Apache-2.0
// The textbook formula, templated over the number type; included by one file per type.
//
// For one head, with Q [m, Dq], K [n, Dk], V [n, Dv] and all matrices of shape [m, n]:
//   R = scale * Q K^T                                     (dot)
//     = scale * Q W K^T                                   (general)
//     = scale * sum_u v_a[u] tanh(Q w_q[u]^T + (K w_k[u]^T)^T + b[u])   (additive)
//   S = c tanh(R / c) + bias - slope |i + n - m - j|,  -infinity where a key is excluded
//   P = exp(S) / D,  D = row sums of exp(S) + exp(sink),  LSE = ln D
//   weights = P o G (G: the local Gaussian),  O = (P o M) V,  M = G o keep / (1 - rate)
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/case.h"
#include "reference/textbook_inputs-inl.h"

namespace attest {

// Row-major values of every output that is asked for, by its name.
template <class Number>
using TextbookValues = std::map<std::string, std::vector<Number>>;

// What the forward formula makes of one head, and the gradient starts from.
template <class Number>
struct TextbookHead {
  typename TextbookInputs<Number>::Mask allowed;    // [m, n]
  typename TextbookInputs<Number>::Matrix q, k, v;  // [m, Dq], [n, Dk], [n, Dv]
  // tanh(...) of the additive score, one [m, n] per unit.
  std::vector<typename TextbookInputs<Number>::Matrix> hidden;
  typename TextbookInputs<Number>::Matrix raw;      // R
  typename TextbookInputs<Number>::Matrix softmax;  // P; 0 in rows without an allowed key
  typename TextbookInputs<Number>::Column sink;     // exp(sink) / D
  typename TextbookInputs<Number>::Column lse;
  typename TextbookInputs<Number>::Matrix gaussian;  // G
  typename TextbookInputs<Number>::Matrix factor;    // M
};

template <class Number>
class Textbook {
 public:
  using Inputs = TextbookInputs<Number>;
  using Matrix = typename Inputs::Matrix;
  using Column = typename Inputs::Column;
  using Head = TextbookHead<Number>;

  explicit Textbook(const Case& problem) : inputs_(problem), shape_(inputs_.shape()) {}

  Inputs& inputs() { return inputs_; }
  const Inputs& inputs() const { return inputs_; }

  Head OneHead(Index b, Index h) const {
    Head head;
    const Index g = inputs_.Group(h);
    head.allowed = inputs_.Allowed(b, h);
    head.q = inputs_.Slice(*inputs_.Find("q"), b, h, shape_.q_len, shape_.qk_dim);
    head.k = inputs_.Slice(*inputs_.Find("k"), b, g, shape_.kv_len, shape_.k_dim);
    head.v = inputs_.Slice(*inputs_.Find("v"), b, g, shape_.kv_len, shape_.v_dim);
    RawScores(&head);
    Softmax(h, Scores(b, h, head), &head);
    Factors(b, h, &head);
    return head;
  }

  Number ScaleFactor() const {
    using std::sqrt;
    const Scale& scale = inputs_.contract().scale;
    if (!scale.rsqrt_dk) return Number(scale.value);
    return Number(Number(1.0) / sqrt(Inputs::Real(shape_.k_dim)));
  }

  // Appends the head's "out", "lse" and "weights", as far as they are asked for.
  void AppendOutputs(const Head& head, TextbookValues<Number>* values) const {
    Matrix weights = head.softmax.cwiseProduct(head.gaussian);
    Matrix kept = head.softmax.cwiseProduct(head.factor);
    Matrix empty = Matrix::Zero(shape_.q_len, shape_.v_dim);  // out, where no key decides it
    for (Index i = 0; i < shape_.q_len; ++i) {
      const bool decided = head.allowed.row(i).any() || head.sink(i) > Number(0.0);
      if (decided || inputs_.contract().empty_row == EmptyRow::kZero) continue;
      if (shape_.kv_len > 0) weights.row(i).setConstant(EmptyWeight());
      kept.row(i) = weights.row(i);
      if (inputs_.contract().empty_row == EmptyRow::kNan) {
        empty.row(i).setConstant(EmptyWeight());
      }
    }
    const Contract& contract = inputs_.contract();
    if (contract.Wants("out")) Append(Matrix(kept * head.v + empty), &(*values)["out"]);
    if (contract.Wants("lse")) Append(Matrix(head.lse), &(*values)["lse"]);
    if (contract.Wants("weights")) Append(weights, &(*values)["weights"]);
  }

 private:
  void RawScores(Head* head) const {
    using std::tanh;
    switch (inputs_.contract().score) {
      case ScoreKind::kDot:
        head->raw = head->q * head->k.transpose();
        break;
      case ScoreKind::kGeneral:
        head->raw = (head->q * inputs_.Whole(*inputs_.Find("w"))) * head->k.transpose();
        break;
      case ScoreKind::kAdditive: {
        const Matrix w_q = inputs_.Whole(*inputs_.Find("w_q"));
        const Matrix w_k = inputs_.Whole(*inputs_.Find("w_k"));
        const Matrix v_a = inputs_.Whole(*inputs_.Find("v_a"));
        head->raw = Matrix::Zero(shape_.q_len, shape_.kv_len);
        for (Index u = 0; u < v_a.rows(); ++u) {
          const Column from_q = head->q * w_q.row(u).transpose();
          const Column from_k = head->k * w_k.row(u).transpose();
          Matrix hidden =
              from_q.replicate(1, shape_.kv_len) + from_k.transpose().replicate(shape_.q_len, 1);
          if (const Tensor* b = inputs_.Find("b")) hidden.array() += inputs_.At(*b, u);
          hidden = hidden.unaryExpr([](const Number& x) { return Number(tanh(x)); });
          head->raw += v_a(u, 0) * hidden;
          head->hidden.push_back(std::move(hidden));
        }
        break;
      }
    }
    head->raw *= ScaleFactor();
  }

  // S; only elements of allowed keys mean anything.
  Matrix Scores(Index b, Index h, const Head& head) const {
    using std::tanh;
    Matrix scores = head.raw;
    if (inputs_.contract().softcap > 0.0) {
      const Number cap(inputs_.contract().softcap);
      scores = scores.unaryExpr([&](const Number& r) { return Number(cap * tanh(r / cap)); });
    }
    const Tensor* bias = inputs_.Find("bias");
    const Number slope = inputs_.Slope(h);
    for (Index i = 0; i < shape_.q_len; ++i) {
      for (Index j = 0; j < shape_.kv_len; ++j) {
        if (!head.allowed(i, j)) continue;
        if (bias != nullptr) {
          scores(i, j) += inputs_.At(*bias, Inputs::FlatIndex(*bias, b, h, i, j));
        }
        scores(i, j) -= slope * Inputs::Real(std::abs(i + shape_.kv_len - shape_.q_len - j));
      }
    }
    return scores;
  }

  // P, the sink's share and the LSE, by exponentials of differences to the row's largest score.
  void Softmax(Index h, const Matrix& scores, Head* head) const {
    using std::exp;
    using std::log;
    const bool has_sink = std::isfinite(inputs_.Sink(h));
    const Number sink = has_sink ? inputs_.At(*inputs_.Find("sinks"), h) : Number(0.0);
    head->softmax = Matrix::Zero(shape_.q_len, shape_.kv_len);
    head->sink = Column::Zero(shape_.q_len);
    head->lse = Column::Zero(shape_.q_len);
    for (Index i = 0; i < shape_.q_len; ++i) {
      if (!head->allowed.row(i).any()) {
        if (has_sink) head->sink(i) = Number(1.0);
        head->lse(i) = has_sink ? sink : EmptyLse();
        continue;
      }
      Number largest(-Inputs::kInfinity);
      for (Index j = 0; j < shape_.kv_len; ++j) {
        if (head->allowed(i, j) && scores(i, j) > largest) largest = scores(i, j);
      }
      for (Index j = 0; j < shape_.kv_len; ++j) {
        if (head->allowed(i, j)) head->softmax(i, j) = exp(Number(scores(i, j) - largest));
      }
      if (has_sink) head->sink(i) = exp(Number(sink - largest));
      const Number sum = head->softmax.row(i).sum() + head->sink(i);
      head->softmax.row(i) /= sum;
      head->sink(i) /= sum;
      head->lse(i) = largest + log(sum);
    }
  }

  void Factors(Index b, Index h, Head* head) const {
    using std::exp;
    const Contract& contract = inputs_.contract();
    head->gaussian = Matrix::Constant(shape_.q_len, shape_.kv_len, Number(1.0));
    if (contract.local && contract.local->gaussian) {
      const Number sigma(Number(contract.local->half_width) / Number(2.0));
      const Column center = inputs_.Line(*inputs_.Find("local_center"), b, h, shape_.q_len);
      for (Index i = 0; i < shape_.q_len; ++i) {
        for (Index j = 0; j < shape_.kv_len; ++j) {
          const Number distance = Inputs::Real(j) - center(i);
          head->gaussian(i, j) =
              exp(Number(-(distance * distance) / (Number(2.0) * sigma * sigma)));
        }
      }
    }
    head->factor = head->gaussian;
    if (const Tensor* given = inputs_.Find("keep")) {
      const Matrix keep = inputs_.Slice(*given, b, h, shape_.q_len, shape_.kv_len);
      head->factor = head->factor.cwiseProduct(keep);
      head->factor /= Number(Number(1.0) - Number(contract.dropout_rate));
    }
  }

  // Rows without an allowed key and without a sink follow the contract's policy.
  Number EmptyLse() const {
    const bool nan = inputs_.contract().empty_row == EmptyRow::kNan;
    return Number(nan ? std::numeric_limits<double>::quiet_NaN() : -Inputs::kInfinity);
  }
  Number EmptyWeight() const {
    switch (inputs_.contract().empty_row) {
      case EmptyRow::kZero:
        return Number(0.0);
      case EmptyRow::kNan:
        return Number(std::numeric_limits<double>::quiet_NaN());
      case EmptyRow::kUniform:
        return Number(Number(1.0) / Inputs::Real(shape_.kv_len));
    }
    return Number(0.0);
  }

  static void Append(const Matrix& matrix, std::vector<Number>* values) {
    for (Index r = 0; r < matrix.rows(); ++r) {
      for (Index c = 0; c < matrix.cols(); ++c) values->push_back(matrix(r, c));
    }
  }

  Inputs inputs_;
  const Dimensions& shape_;
};

}  // namespace attest
