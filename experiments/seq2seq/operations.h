// SPDX-License-Identifier: Apache-2.0
// What models are made of, besides attention: products, gates, embeddings, the loss.
//
// Each operation states its result; gradients are added to those of everything it reads. A result
// that is named y and taken as an argument is written in place.
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "experiments/seq2seq/tape.h"
#include "optimized/functions.h"

namespace attest {

template <class T>
inline constexpr bool kHasKernels = std::is_same_v<T, float> || std::is_same_v<T, double>;

// y[i] = tanh x[i]; x and y may be the same.
template <class T>
void TanhOf(const T* x, T* y, Index count) {
  if constexpr (kHasKernels<T>) {
    TanhEach(Mode::kFast, x, y, static_cast<std::size_t>(count));
  } else {
    using std::exp;
    for (Index i = 0; i < count; ++i) y[i] = T(1) - T(2) / (exp(T(2) * x[i]) + T(1));
  }
}

// y[i] = e^x[i]; x and y may be the same.
template <class T>
void ExpOf(const T* x, T* y, Index count) {
  if constexpr (kHasKernels<T>) {
    ExpEach(Mode::kFast, x, y, static_cast<std::size_t>(count));
  } else {
    using std::exp;
    for (Index i = 0; i < count; ++i) y[i] = exp(x[i]);
  }
}

// y += x w. For x [m, k], w [k, n].
template <class T>
void AddProduct(Tape<T>& tape, const Matrix<T>& x, const Matrix<T>& w, const Matrix<T>& y) {
  const double flops = 2.0 * static_cast<double>(x.rows) * static_cast<double>(w.size());
  tape.CountFlops(flops);
  AddProduct(x.rows, w.columns, w.rows, Factor<T>{x.value, x.columns, 1}, w.value, w.columns,
             y.value, y.columns);
  tape.Record([&tape, x, w, y, flops] {
    tape.CountFlops(2.0 * flops);
    AddProduct(x.rows, w.rows, w.columns, Factor<T>{y.grad, y.columns, 1}, tape.Transposed(w),
               w.rows, x.grad, x.columns);
    AddProduct(w.rows, w.columns, x.rows, Factor<T>{x.value, 1, x.columns}, y.grad, y.columns,
               w.grad, w.columns);
  });
}

// Every row of y += b, b [1, n].
template <class T>
void AddToRows(Tape<T>& tape, const Matrix<T>& b, const Matrix<T>& y) {
  for (Index i = 0; i < y.rows; ++i) {
    T* const row = y.Row(i);
    for (Index j = 0; j < y.columns; ++j) row[j] += b.value[j];
  }
  tape.Record([b, y] {
    for (Index i = 0; i < y.rows; ++i) {
      const T* const row = y.GradRow(i);
      for (Index j = 0; j < y.columns; ++j) b.grad[j] += row[j];
    }
  });
}

// x w + b.
template <class T>
Matrix<T> Linear(Tape<T>& tape, const Matrix<T>& x, const Matrix<T>& w, const Matrix<T>& b) {
  const Matrix<T> y = tape.Zeros(x.rows, w.columns);
  AddProduct(tape, x, w, y);
  AddToRows(tape, b, y);
  return y;
}

// x w.
template <class T>
Matrix<T> Linear(Tape<T>& tape, const Matrix<T>& x, const Matrix<T>& w) {
  const Matrix<T> y = tape.Zeros(x.rows, w.columns);
  AddProduct(tape, x, w, y);
  return y;
}

// y += x.
template <class T>
void Add(Tape<T>& tape, const Matrix<T>& x, const Matrix<T>& y) {
  for (Index i = 0; i < y.size(); ++i) y.value[i] += x.value[i];
  tape.Record([x, y] {
    for (Index i = 0; i < y.size(); ++i) x.grad[i] += y.grad[i];
  });
}

// y = tanh y; everything that reads the old y must come before.
template <class T>
void Tanh(Tape<T>& tape, const Matrix<T>& y) {
  TanhOf(y.value, y.value, y.size());
  tape.Record([y] {
    for (Index i = 0; i < y.size(); ++i) y.grad[i] *= T(1) - y.value[i] * y.value[i];
  });
}

// y = max(y, 0).
template <class T>
void Relu(Tape<T>& tape, const Matrix<T>& y) {
  for (Index i = 0; i < y.size(); ++i) y.value[i] = y.value[i] > T(0) ? y.value[i] : T(0);
  tape.Record([y] {
    for (Index i = 0; i < y.size(); ++i) {
      if (!(y.value[i] > T(0))) y.grad[i] = T(0);
    }
  });
}

// Row i of y = factors[i] logistic(y).
template <class T>
void Logistic(Tape<T>& tape, std::vector<T> factors, const Matrix<T>& y) {
  T* const unit = tape.Scratch(y.size());
  for (Index i = 0; i < y.size(); ++i) unit[i] = y.value[i] / T(2);
  TanhOf(unit, unit, y.size());
  for (Index i = 0; i < y.size(); ++i) {
    unit[i] = (unit[i] + T(1)) / T(2);
    y.value[i] = factors[static_cast<std::size_t>(i / y.columns)] * unit[i];
  }
  tape.Record([y, factors = std::move(factors), unit] {
    for (Index i = 0; i < y.size(); ++i) {
      y.grad[i] *= factors[static_cast<std::size_t>(i / y.columns)] * unit[i] * (T(1) - unit[i]);
    }
  });
}

// Columns from `column` on of y's row i = row rows[i] of x, 0 for rows[i] = -1.
template <class T>
void Gather(Tape<T>& tape, const Matrix<T>& x, std::vector<Index> rows, const Matrix<T>& y,
            Index column = 0) {
  for (Index i = 0; i < y.rows; ++i) {
    const Index row = rows[static_cast<std::size_t>(i)];
    if (row < 0) {
      std::fill_n(y.Row(i) + column, x.columns, T(0));
    } else {
      std::copy_n(x.Row(row), x.columns, y.Row(i) + column);
    }
  }
  tape.Record([x, rows = std::move(rows), y, column] {
    for (Index i = 0; i < y.rows; ++i) {
      const Index row = rows[static_cast<std::size_t>(i)];
      if (row < 0) continue;
      T* const to = x.GradRow(row);
      const T* const from = y.GradRow(i) + column;
      for (Index j = 0; j < x.columns; ++j) to[j] += from[j];
    }
  });
}

// One step of a gated recurrent unit in the reset-after form, for a batch of states h [B, H]:
//   (r, z) = logistic(x_rz + h U_rz + c_rz), n = tanh(x_n + r (h U_n + c_n)), y = n + z (h - n);
// x [B, 3H] is the input's part with its bias. y = h in rows of sentences that are no longer than
// `step`.
template <class T>
void GruStep(Tape<T>& tape, const Matrix<T>& x, const Matrix<T>& h, const Matrix<T>& u,
             const Matrix<T>& c, const std::vector<int>& lengths, Index step, const Matrix<T>& y) {
  const Index size = h.columns;
  const Index batch = h.rows;
  T* const gates = tape.Scratch(batch * 3 * size);  // first h U + c, then r, z, n
  T* const hidden = tape.Scratch(batch * size);     // h U_n + c_n
  for (Index b = 0; b < batch; ++b) std::copy_n(c.value, 3 * size, gates + b * 3 * size);
  const double flops = 2.0 * static_cast<double>(batch) * static_cast<double>(u.size());
  tape.CountFlops(flops);
  AddProduct(batch, 3 * size, size, Factor<T>{h.value, size, 1}, u.value, 3 * size, gates,
             3 * size);
  std::vector<char> alive(static_cast<std::size_t>(batch));
  for (Index b = 0; b < batch; ++b) {
    alive[static_cast<std::size_t>(b)] = step < lengths[static_cast<std::size_t>(b)] ? 1 : 0;
    T* const row = gates + b * 3 * size;
    const T* const in = x.Row(b);
    for (Index j = 0; j < 2 * size; ++j) row[j] = (row[j] + in[j]) / T(2);
    TanhOf(row, row, 2 * size);
    for (Index j = 0; j < 2 * size; ++j) row[j] = (row[j] + T(1)) / T(2);
    T* const n = row + 2 * size;
    for (Index j = 0; j < size; ++j) {
      hidden[b * size + j] = n[j];
      n[j] = in[2 * size + j] + row[j] * n[j];
    }
    TanhOf(n, n, size);
    const T* const z = row + size;
    const T* const old = h.Row(b);
    T* const out = y.Row(b);
    if (alive[static_cast<std::size_t>(b)]) {
      for (Index j = 0; j < size; ++j) out[j] = n[j] + z[j] * (old[j] - n[j]);
    } else {
      std::copy_n(old, size, out);
    }
  }
  tape.Record([&tape, x, h, u, c, y, gates, hidden, alive = std::move(alive), size, batch, flops] {
    T* const grads = tape.Temporary(batch * 3 * size);  // of h U + c
    for (Index b = 0; b < batch; ++b) {
      const T* const dy = y.GradRow(b);
      T* const dh = h.GradRow(b);
      T* const dg = grads + b * 3 * size;
      if (!alive[static_cast<std::size_t>(b)]) {
        for (Index j = 0; j < size; ++j) dh[j] += dy[j];
        std::fill_n(dg, 3 * size, T(0));
        continue;
      }
      const T* const r = gates + b * 3 * size;
      const T* const z = r + size;
      const T* const n = z + size;
      const T* const hu = hidden + b * size;
      const T* const old = h.Row(b);
      T* const dx = x.GradRow(b);
      for (Index j = 0; j < size; ++j) {
        const T dn = dy[j] * (T(1) - z[j]) * (T(1) - n[j] * n[j]);
        const T dz = dy[j] * (old[j] - n[j]) * z[j] * (T(1) - z[j]);
        const T dr = dn * hu[j] * r[j] * (T(1) - r[j]);
        dh[j] += dy[j] * z[j];
        dg[j] = dr;
        dg[size + j] = dz;
        dg[2 * size + j] = dn * r[j];
        dx[j] += dr;
        dx[size + j] += dz;
        dx[2 * size + j] += dn;
      }
      for (Index j = 0; j < 3 * size; ++j) c.grad[j] += dg[j];
    }
    tape.CountFlops(2.0 * flops);
    AddProduct(batch, size, 3 * size, Factor<T>{grads, 3 * size, 1}, tape.Transposed(u), size,
               h.grad, size);
    AddProduct(size, 3 * size, batch, Factor<T>{h.value, 1, size}, grads, 3 * size, u.grad,
               3 * size);
  });
}

// Rows of x with mean 0 and variance 1, times gain, plus shift, both [1, n].
template <class T>
Matrix<T> LayerNorm(Tape<T>& tape, const Matrix<T>& x, const Matrix<T>& gain,
                    const Matrix<T>& shift) {
  using std::sqrt;
  const Matrix<T> y = tape.Uninitialised(x.rows, x.columns);
  const Index n = x.columns;
  T* const normal = tape.Scratch(x.size());
  T* const inverse = tape.Scratch(x.rows);  // 1 / standard deviation
  for (Index i = 0; i < x.rows; ++i) {
    const T* const row = x.Row(i);
    T mean(0);
    for (Index j = 0; j < n; ++j) mean += row[j];
    mean = mean / T(n);
    T variance(0);
    for (Index j = 0; j < n; ++j) variance += (row[j] - mean) * (row[j] - mean);
    inverse[i] = T(1) / sqrt(variance / T(n) + T(1) / T(100000));
    for (Index j = 0; j < n; ++j) {
      normal[i * n + j] = (row[j] - mean) * inverse[i];
      y.Row(i)[j] = normal[i * n + j] * gain.value[j] + shift.value[j];
    }
  }
  tape.Record([x, gain, shift, y, normal, inverse, n] {
    for (Index i = 0; i < x.rows; ++i) {
      const T* const dy = y.GradRow(i);
      const T* const unit = normal + i * n;
      T sum(0);
      T product(0);
      for (Index j = 0; j < n; ++j) {
        gain.grad[j] += dy[j] * unit[j];
        shift.grad[j] += dy[j];
        sum += dy[j] * gain.value[j];
        product += dy[j] * gain.value[j] * unit[j];
      }
      sum = sum / T(n);
      product = product / T(n);
      T* const dx = x.GradRow(i);
      for (Index j = 0; j < n; ++j) {
        dx[j] += inverse[i] * (dy[j] * gain.value[j] - sum - unit[j] * product);
      }
    }
  });
  return y;
}

// Scores v_a . tanh(q_b + k_bj) of one query a sentence against its Tk keys: q [B, A], k [B Tk, A],
// v_a [1, A] to [B Tk, 1].
template <class T>
Matrix<T> AdditiveScores(Tape<T>& tape, const Matrix<T>& q, const Matrix<T>& k,
                         const Matrix<T>& v_a) {
  const Index keys = q.rows == 0 ? 0 : k.rows / q.rows;
  const Index size = q.columns;
  const Matrix<T> scores = tape.Uninitialised(k.rows, 1);
  T* const units = tape.Scratch(k.size());
  for (Index b = 0; b < q.rows; ++b) {
    const T* const query = q.Row(b);
    for (Index j = b * keys; j < (b + 1) * keys; ++j) {
      for (Index a = 0; a < size; ++a) units[j * size + a] = query[a] + k.Row(j)[a];
    }
  }
  TanhOf(units, units, k.size());
  std::fill_n(scores.value, k.rows, T(0));
  AddProduct(k.rows, 1, size, Factor<T>{units, size, 1}, v_a.value, 1, scores.value, 1);
  tape.Record([q, k, v_a, scores, units, keys, size] {
    for (Index b = 0; b < q.rows; ++b) {
      T* const dq = q.GradRow(b);
      for (Index j = b * keys; j < (b + 1) * keys; ++j) {
        const T ds = scores.grad[j];
        if (ds == T(0)) continue;
        const T* const unit = units + j * size;
        T* const dk = k.GradRow(j);
        for (Index a = 0; a < size; ++a) {
          v_a.grad[a] += ds * unit[a];
          const T dx = ds * v_a.value[a] * (T(1) - unit[a] * unit[a]);
          dk[a] += dx;
          dq[a] += dx;
        }
      }
    }
  });
  return scores;
}

// Of the logits' rows whose target is not negative.
struct Loss {
  double sum = 0.0;   // of -log p(target)
  Index words = 0;    // rows counted
  Index correct = 0;  // rows whose largest logit is the target's
};

// Also sets the logits' gradients, to those of sum / words, or of `sum` itself.
template <class T>
Loss CrossEntropy(Tape<T>& tape, const Matrix<T>& logits, const std::vector<int>& targets,
                  bool mean, T* exact_sum = nullptr) {
  using std::log;
  Loss loss;
  for (const int target : targets) loss.words += target >= 0 ? 1 : 0;
  const T factor = mean && loss.words > 0 ? T(1) / T(loss.words) : T(1);
  T* const row = tape.Scratch(logits.columns);
  T sum(0);
  for (Index i = 0; i < logits.rows; ++i) {
    const int target = targets[static_cast<std::size_t>(i)];
    if (target < 0) continue;
    const T* const x = logits.Row(i);
    const T* const largest = std::max_element(x, x + logits.columns);
    loss.correct += largest - x == target ? 1 : 0;
    for (Index j = 0; j < logits.columns; ++j) row[j] = x[j] - *largest;
    const T shifted = row[target];
    ExpOf(row, row, logits.columns);
    T total(0);
    for (Index j = 0; j < logits.columns; ++j) total += row[j];
    const T value = log(total) - shifted;
    sum += value;
    loss.sum += static_cast<double>(value);
    if (!tape.gradients()) continue;
    T* const grad = logits.GradRow(i);
    for (Index j = 0; j < logits.columns; ++j) grad[j] = row[j] / total * factor;
    grad[target] -= factor;
  }
  if (exact_sum != nullptr) *exact_sum = sum;
  return loss;
}

}  // namespace attest
