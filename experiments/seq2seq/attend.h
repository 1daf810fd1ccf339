// SPDX-License-Identifier: Apache-2.0
// Attention on the tape: the kernels of optimized/attention.h, or the textbook formula.
#pragma once

#include <optional>
#include <vector>

#include "core/contract.h"
#include "experiments/seq2seq/operations.h"
#include "experiments/seq2seq/tape.h"

namespace attest {

// Row b * Tq + i of q is query i of sentence b, as are rows of k and v; the heads are side by side
// in their columns. Tq = q.rows / batch, Tk = k.rows / batch.
template <class T>
struct Attention {
  Matrix<T> q;  // [B Tq, H Dk]
  Matrix<T> k;  // [B Tk, H Dk]
  Matrix<T> v;  // [B Tk, H Dv]
  Index batch = 1;
  Index heads = 1;
  // Keys of each sentence; those beyond take no part. Must outlive the tape's Backward.
  const std::vector<int>* lengths = nullptr;
  bool scaled = false;           // by 1/sqrt(Dk)
  bool causal = false;           // key j <= query i only
  std::optional<Matrix<T>> v_a;  // [1, Dk]: scores v_a . tanh(q + k), else q . k; one head
  std::optional<LocalWindow> local;
  Matrix<T> center;  // of `local`, [B, 1]; one query and one head
  bool wants_weights = false;

  Index q_len() const { return batch == 0 ? 0 : q.rows / batch; }
  Index kv_len() const { return batch == 0 ? 0 : k.rows / batch; }
  Index k_dim() const { return q.columns / heads; }
  Index v_dim() const { return v.columns / heads; }
};

template <class T>
struct Attended {
  Matrix<T> out;               // [B Tq, H Dv]
  const T* weights = nullptr;  // [B, H, Tq, Tk] if wanted, or for a Gaussian window
};

// The contract's function (docs/contract.md). A query without keys gets 0.
Attended<float> Attend(Tape<float>& tape, const Attention<float>& args);
Attended<double> Attend(Tape<double>& tape, const Attention<double>& args);

// The same by its definition, for a type of many digits; nothing is recorded.
template <class T>
Attended<T> Attend(Tape<T>& tape, const Attention<T>& args) {
  using std::abs;
  using std::exp;
  using std::sqrt;
  using std::tanh;
  const Index q_len = args.q_len();
  const Index kv_len = args.kv_len();
  const Index k_dim = args.k_dim();
  const Index v_dim = args.v_dim();
  Attended<T> result{tape.Zeros(args.q.rows, args.v.columns), nullptr};
  T* const all_weights = tape.Scratch(args.batch * args.heads * q_len * kv_len);
  result.weights = all_weights;
  for (Index b = 0; b < args.batch; ++b) {
    for (Index h = 0; h < args.heads; ++h) {
      for (Index i = 0; i < q_len; ++i) {
        T* const weights = all_weights + ((b * args.heads + h) * q_len + i) * kv_len;
        const T* const q = args.q.Row(b * q_len + i) + h * k_dim;
        T sum(0);
        for (Index j = 0; j < kv_len; ++j) {
          weights[j] = T(0);
          if (j >= (*args.lengths)[static_cast<std::size_t>(b)] || (args.causal && j > i)) continue;
          T factor(1);
          if (args.local) {
            const T distance = T(j) - args.center.value[b];
            if (abs(distance) > T(args.local->half_width)) continue;
            const T deviation = T(args.local->half_width) / T(2);
            if (args.local->gaussian) {
              factor = exp(-distance * distance / (T(2) * deviation * deviation));
            }
          }
          const T* const k = args.k.Row(b * kv_len + j) + h * k_dim;
          T score(0);
          for (Index d = 0; d < k_dim; ++d) {
            score += args.v_a ? args.v_a->value[d] * tanh(q[d] + k[d]) : q[d] * k[d];
          }
          if (args.scaled) score = score / sqrt(T(k_dim));
          weights[j] = exp(score);
          sum += weights[j];
          weights[j] *= factor;
        }
        for (Index j = 0; j < kv_len; ++j) {
          if (weights[j] == T(0)) continue;
          weights[j] = weights[j] / sum;
          const T* const v = args.v.Row(b * kv_len + j) + h * v_dim;
          T* const out = result.out.Row(b * q_len + i) + h * v_dim;
          for (Index d = 0; d < v_dim; ++d) out[d] += weights[j] * v[d];
        }
      }
    }
  }
  return result;
}

}  // namespace attest
