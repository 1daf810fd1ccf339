// SPDX-License-Identifier: Apache-2.0
// The textbook gradient of L = sum grad_out o O + sum grad_lse o LSE, over the forward formula.
//
// In the notation of textbook-inl.h, with dO = grad_out and dL = grad_lse (absent: 0):
//   dP    = M o (dO V^T)
//   delta = row sums of P o dP
//   dS    = P o (dP - delta 1^T + dL 1^T)            = dBias, summed over the axes it broadcasts
//   dSink = sum_i (sink share of row i) (dL_i - delta_i)
//   dV    = (P o M)^T dO
//   dR    = dS o (1 - tanh^2(R / c)), times the scale from here on
//   dot:      dQ = dR K          dK = dR^T Q
//   general:  dQ = dR K W^T      dK = dR^T Q W      dW = Q^T dR K
//   additive: with H_u = tanh(...) and Z_u = v_a[u] dR o (1 - H_u o H_u) for every unit u:
//     dv_a[u] = sum dR o H_u     db[u] = sum Z_u
//     dQ = sum_u Z_u 1 w_q[u]    dw_q[u] = (Z_u 1)^T Q
//     dK = sum_u Z_u^T 1 w_k[u]  dw_k[u] = (Z_u^T 1)^T K
// Rows without an allowed key have P = 0: nothing but their LSE reaches anything, and that a sink.
#pragma once

#include <string>
#include <vector>

#include "reference/textbook-inl.h"

namespace attest {

template <class Number>
class TextbookGradient {
 public:
  using Inputs = TextbookInputs<Number>;
  using Matrix = typename Inputs::Matrix;
  using Column = typename Inputs::Column;
  using Head = TextbookHead<Number>;

  explicit TextbookGradient(const Textbook<Number>& forward)
      : forward_(forward), inputs_(forward.inputs()), shape_(inputs_.shape()) {
    for (const std::string& name : inputs_.contract().outputs) {
      if (!name.starts_with("grad_")) continue;
      const Tensor& of = TensorOf(name);
      values_[name].assign(static_cast<std::size_t>(of.size()), Number(0.0));
    }
  }

  // The gradients that are asked for, each in the shape of its tensor.
  TextbookValues<Number>& values() { return values_; }

  // Adds what one head contributes.
  void AddHead(Index b, Index h, const Head& head) {
    if (values_.empty()) return;
    const Index g = inputs_.Group(h);
    const Index m = shape_.q_len;
    const Index n = shape_.kv_len;
    Matrix d_out = Matrix::Zero(m, shape_.v_dim);
    if (const Tensor* given = inputs_.Find("grad_out")) {
      d_out = inputs_.Slice(*given, b, h, m, shape_.v_dim);
    }
    Column d_lse = Column::Zero(m);
    if (const Tensor* given = inputs_.Find("grad_lse")) d_lse = inputs_.Line(*given, b, h, m);

    const Matrix d_softmax = head.factor.cwiseProduct(d_out * head.v.transpose());
    const Column delta = head.softmax.cwiseProduct(d_softmax).rowwise().sum();
    const Column d_denominator = d_lse - delta;
    const Matrix d_scores = head.softmax.cwiseProduct(d_softmax + d_denominator.replicate(1, n));

    if (Wants("grad_v")) {
      Add("grad_v", b, g, head.softmax.cwiseProduct(head.factor).transpose() * d_out);
    }
    if (Wants("grad_bias")) Add("grad_bias", b, h, d_scores);
    if (Wants("grad_sinks")) {
      At("grad_sinks", h) += head.sink.cwiseProduct(d_denominator).sum();
    }
    Matrix d_raw = d_scores;
    if (inputs_.contract().softcap > 0.0) {
      using std::tanh;
      const Number cap(inputs_.contract().softcap);
      d_raw = d_raw.cwiseProduct(head.raw.unaryExpr([&](const Number& r) {
        const Number t = tanh(Number(r / cap));
        return Number(Number(1.0) - t * t);
      }));
    }
    d_raw *= forward_.ScaleFactor();
    switch (inputs_.contract().score) {
      case ScoreKind::kDot:
        if (Wants("grad_q")) Add("grad_q", b, h, d_raw * head.k);
        if (Wants("grad_k")) Add("grad_k", b, g, d_raw.transpose() * head.q);
        break;
      case ScoreKind::kGeneral:
        General(b, h, head, d_raw);
        break;
      case ScoreKind::kAdditive:
        Additive(b, h, head, d_raw);
        break;
    }
  }

 private:
  void General(Index b, Index h, const Head& head, const Matrix& d_raw) {
    const Matrix w = inputs_.Whole(*inputs_.Find("w"));
    if (Wants("grad_q")) Add("grad_q", b, h, (d_raw * head.k) * w.transpose());
    if (Wants("grad_k")) Add("grad_k", b, inputs_.Group(h), (d_raw.transpose() * head.q) * w);
    if (Wants("grad_w")) AddWhole("grad_w", 0, head.q.transpose() * (d_raw * head.k));
  }

  void Additive(Index b, Index h, const Head& head, const Matrix& d_raw) {
    const Matrix w_q = inputs_.Whole(*inputs_.Find("w_q"));
    const Matrix w_k = inputs_.Whole(*inputs_.Find("w_k"));
    const Matrix v_a = inputs_.Whole(*inputs_.Find("v_a"));
    Matrix d_q = Matrix::Zero(shape_.q_len, shape_.qk_dim);
    Matrix d_k = Matrix::Zero(shape_.kv_len, shape_.k_dim);
    for (Index u = 0; u < w_q.rows(); ++u) {
      const Matrix& hidden = head.hidden[static_cast<std::size_t>(u)];
      const Matrix slope =
          hidden.unaryExpr([](const Number& t) { return Number(Number(1.0) - t * t); });
      const Matrix d_argument = v_a(u, 0) * d_raw.cwiseProduct(slope);
      const Column by_query = d_argument.rowwise().sum();
      const Column by_key = d_argument.colwise().sum().transpose();
      d_q += by_query * w_q.row(u);
      d_k += by_key * w_k.row(u);
      if (Wants("grad_v_a")) At("grad_v_a", u) += d_raw.cwiseProduct(hidden).sum();
      if (Wants("grad_b")) At("grad_b", u) += by_query.sum();
      if (Wants("grad_w_q")) AddWhole("grad_w_q", u, by_query.transpose() * head.q);
      if (Wants("grad_w_k")) AddWhole("grad_w_k", u, by_key.transpose() * head.k);
    }
    if (Wants("grad_q")) Add("grad_q", b, h, d_q);
    if (Wants("grad_k")) Add("grad_k", b, inputs_.Group(h), d_k);
  }

  const Tensor& TensorOf(const std::string& gradient) const {
    return *inputs_.Find(gradient.substr(5));
  }
  bool Wants(const char* name) const { return values_.contains(name); }
  Number& At(const char* name, Index flat) {
    return values_.at(name)[static_cast<std::size_t>(flat)];
  }

  // Adds to elements [b, h, :, :] of the gradient of a tensor of rank 4, whose axes of length 1
  // sum.
  void Add(const char* name, Index b, Index h, const Matrix& summand) {
    const Tensor& of = TensorOf(name);
    std::vector<Number>& values = values_.at(name);
    for (Index r = 0; r < summand.rows(); ++r) {
      for (Index c = 0; c < summand.cols(); ++c) {
        values[static_cast<std::size_t>(Inputs::FlatIndex(of, b, h, r, c))] += summand(r, c);
      }
    }
  }
  // Adds to the gradient of a parameter, from its row `row` on.
  void AddWhole(const char* name, Index row, const Matrix& summand) {
    for (Index r = 0; r < summand.rows(); ++r) {
      for (Index c = 0; c < summand.cols(); ++c) {
        At(name, (row + r) * summand.cols() + c) += summand(r, c);
      }
    }
  }

  const Textbook<Number>& forward_;
  const Inputs& inputs_;
  const Dimensions& shape_;
  TextbookValues<Number> values_;
};

// Every output that the case asks for.
template <class Number>
TextbookValues<Number> EvaluateTextbook(const Textbook<Number>& textbook) {
  TextbookValues<Number> values;
  TextbookGradient<Number> gradient(textbook);
  const Dimensions& shape = textbook.inputs().shape();
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.q_heads; ++h) {
      const TextbookHead<Number> head = textbook.OneHead(b, h);
      textbook.AppendOutputs(head, &values);
      gradient.AddHead(b, h, head);
    }
  }
  values.merge(gradient.values());
  return values;
}

}  // namespace attest
