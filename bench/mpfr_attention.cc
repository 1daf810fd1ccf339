// SPDX-License-Identifier: Apache-2.0
// Plain loops over Boost.Multiprecision's mpfr_float_backend<50>, without expression templates.
#include "bench/mpfr_attention.h"

#include <boost/multiprecision/mpfr.hpp>

#include "bench/cpu_clock.h"

namespace attest {
namespace {

using Number = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<50>,
                                             boost::multiprecision::et_off>;
using Numbers = std::vector<Number>;

Numbers Converted(const Tensor& tensor, Index begin, Index count) {
  Numbers numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (Index i = begin; i < begin + count; ++i) numbers.emplace_back(tensor.At(i));
  return numbers;
}

// sum += a * b, as anybody writes it.
inline void AddProduct(const Number& a, const Number& b, Number* sum) { *sum += a * b; }

// One query's rows of everything, and the loops over them.
class Rows {
 public:
  explicit Rows(const Case& problem)
      : n_(static_cast<std::size_t>(problem.contract.shape.kv_len)),
        d_(static_cast<std::size_t>(problem.contract.shape.qk_dim)),
        v_dim_(static_cast<std::size_t>(problem.contract.shape.v_dim)),
        keys_(Converted(*problem.Find("k"), 0, problem.Find("k")->size())),
        values_(Converted(*problem.Find("v"), 0, problem.Find("v")->size())),
        scale_(1 / sqrt(Number(problem.contract.shape.k_dim))),
        weights_(n_),
        score_gradients_(n_) {}

  // result[j] = <x, row j of y> for the n rows of y.
  void DotRows(const Numbers& x, const Numbers& y, Numbers* result) {
    const std::size_t width = x.size();
    for (std::size_t j = 0; j < n_; ++j) {
      Number& sum = (*result)[j];
      sum = 0;
      for (std::size_t c = 0; c < width; ++c) AddProduct(x[c], y[j * width + c], &sum);
    }
  }

  // result += sum over j of factors[j] * (row j of y).
  void AddCombination(const Numbers& factors, const Numbers& y, Numbers* result) {
    const std::size_t width = result->size();
    for (std::size_t j = 0; j < n_; ++j) {
      for (std::size_t c = 0; c < width; ++c) {
        AddProduct(factors[j], y[j * width + c], &(*result)[c]);
      }
    }
  }

  // Row j of result += factors[j] * x, for the n rows.
  void AddOuterProduct(const Numbers& factors, const Numbers& x, Numbers* result) {
    const std::size_t width = x.size();
    for (std::size_t j = 0; j < n_; ++j) {
      for (std::size_t c = 0; c < width; ++c) {
        AddProduct(factors[j], x[c], &(*result)[j * width + c]);
      }
    }
  }

  // Fills the weights with the exponentials of query `q`'s scores less the largest one; their sum.
  Number Exponentials(const Numbers& q) {
    DotRows(q, keys_, &weights_);
    Number largest = weights_[0];
    for (const Number& score : weights_) {
      if (score > largest) largest = score;
    }
    Number sum = 0;
    for (Number& weight : weights_) {
      weight -= largest;
      weight *= scale_;
      weight = exp(weight);
      sum += weight;
    }
    return sum;
  }

  void Forward(const Numbers& q, Numbers* out) {
    const Number sum = Exponentials(q);
    AddCombination(weights_, values_, out);
    for (Number& element : *out) element /= sum;
  }

  // grad_q of one query, and what it adds to grad_k and grad_v.
  void Backward(const Numbers& q, const Numbers& grad_out, Numbers* grad_q, Numbers* grad_k,
                Numbers* grad_v) {
    const Number sum = Exponentials(q);
    for (Number& weight : weights_) weight /= sum;
    AddOuterProduct(weights_, grad_out, grad_v);
    DotRows(grad_out, values_, &score_gradients_);  // of the weights, so far
    Number mean = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      AddProduct(weights_[j], score_gradients_[j], &mean);
    }
    for (std::size_t j = 0; j < n_; ++j) {
      Number& gradient = score_gradients_[j];
      gradient -= mean;
      gradient *= weights_[j];
      gradient *= scale_;
    }
    AddCombination(score_gradients_, keys_, grad_q);
    AddOuterProduct(score_gradients_, q, grad_k);
  }

  std::size_t n() const { return n_; }
  std::size_t d() const { return d_; }
  std::size_t v_dim() const { return v_dim_; }

 private:
  std::size_t n_, d_, v_dim_;
  Numbers keys_, values_;  // [n, D]
  Number scale_;
  Numbers weights_, score_gradients_;
};

void Append(const Numbers& numbers, MpfrRows* result) {
  for (const Number& number : numbers) {
    result->hi.push_back(static_cast<double>(number));
    result->lo.push_back(static_cast<double>(Number(number - result->hi.back())));
  }
}

Numbers RowOf(const Case& problem, const char* tensor, Index row, std::size_t width) {
  const auto count = static_cast<Index>(width);
  return Converted(*problem.Find(tensor), row * count, count);
}

}  // namespace

const bool kMpfrAttention = true;

MpfrRows MpfrForward(const Case& problem, const std::vector<Index>& rows) {
  MpfrRows result;
  Rows work(problem);
  for (const Index row : rows) {
    const Numbers q = RowOf(problem, "q", row, work.d());
    Numbers out(work.v_dim(), Number(0));
    const double begin = ThreadSeconds();
    work.Forward(q, &out);
    result.seconds.push_back(ThreadSeconds() - begin);
    Append(out, &result);
  }
  return result;
}

MpfrRows MpfrBackward(const Case& problem, const std::vector<Index>& rows) {
  MpfrRows result;
  Rows work(problem);
  Numbers grad_k(work.n() * work.d(), Number(0));
  Numbers grad_v(work.n() * work.v_dim(), Number(0));
  for (const Index row : rows) {
    const Numbers q = RowOf(problem, "q", row, work.d());
    const Numbers grad_out = RowOf(problem, "grad_out", row, work.v_dim());
    Numbers grad_q(work.d(), Number(0));
    const double begin = ThreadSeconds();
    work.Backward(q, grad_out, &grad_q, &grad_k, &grad_v);
    result.seconds.push_back(ThreadSeconds() - begin);
    Append(grad_q, &result);
  }
  return result;
}

}  // namespace attest
