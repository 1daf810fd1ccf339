// SPDX-License-Identifier: Apache-2.0
// The score of a call as the row kernels evaluate it: its kind, its factors and its parameters as
// numbers of the accumulation type. Private to optimized/.
//
// Scores are multiplied by a unit U: log2(e) where weights are powers of two, 1 where they are
// exponentials. With f = scale U, or scale/c under a soft cap c, in double, and T the accumulation
// type:
//   dot       q' = T(f q),                        s = <q', k>
//   general   q' = W^T T(f q),                    s = <q', k>
//   additive  a = W_q q + b, v' = T(f v_a),       s = sum over a of v'_a tanh(a_a + <w_k a, k>)
// and with the soft cap s becomes T(c U) tanh(s). Every sum runs in ascending order from 0, one
// MulAdd a term.
#pragma once

#include <cstddef>

#include "optimized/attention.h"
#include "optimized/execution.h"

namespace attest {

template <class T>
struct ScoreTask {
  ScoreKind kind = ScoreKind::kDot;
  double unit = 1.0;      // U
  double factor = 1.0;    // f
  T cap = 0;              // T(c U); 0: no soft cap
  std::size_t q_dim = 0;  // Dq
  std::size_t k_dim = 0;  // Dk
  // Of a prepared query: q' or a.
  std::size_t width = 0;

  // Padded rows; null where the kind has no such parameter.
  T* w = nullptr;    // [Dq, Dk]
  T* w_q = nullptr;  // transposed: [Dq, A]
  T* w_k = nullptr;  // [A, Dk]
  T* b = nullptr;    // [A], zeros without one
  T* v_a = nullptr;  // [A], v'

  // Takes the memory of the parameters; `args` as in optimized/row_kernels.h.
  ScoreTask(const AttentionArgs& args, double score_unit, Carver& carver);
  // Fills it.
  void Read(const AttentionArgs& args);
};

extern template struct ScoreTask<float>;
extern template struct ScoreTask<double>;

}  // namespace attest
