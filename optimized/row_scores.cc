// SPDX-License-Identifier: Apache-2.0
#include "optimized/row_scores.h"

#include <algorithm>
#include <cmath>

#include "optimized/row_tile.h"
#include "optimized/rows.h"

namespace attest {
namespace {

// to[r * Padded(columns) + c] = matrix[r][c], and zeros beyond the columns.
template <class T>
void ReadMatrix(const Input<2>& matrix, T* to) {
  const auto columns = static_cast<std::size_t>(matrix.shape[1]);
  const std::size_t step = Padded<T>(columns);
  for (Index r = 0; r < matrix.shape[0]; ++r, to += step) {
    ReadRow(matrix.dtype, At(matrix, r), matrix.strides[1], columns, to);
    std::fill(to + columns, to + step, T{0});
  }
}

Input<2> Transposed(const Input<2>& matrix) {
  return {matrix.data,
          matrix.dtype,
          {matrix.shape[1], matrix.shape[0]},
          {matrix.strides[1], matrix.strides[0]}};
}

}  // namespace

template <class T>
ScoreTask<T>::ScoreTask(const AttentionArgs& args, double score_unit, Carver& carver)
    : kind(args.score),
      unit(score_unit),
      q_dim(static_cast<std::size_t>(args.q.shape[3])),
      k_dim(static_cast<std::size_t>(args.k.shape[3])),
      width(k_dim) {
  const double scale = args.scale.value_or(
      kind == ScoreKind::kDot ? 1.0 / std::sqrt(static_cast<double>(k_dim)) : 1.0);
  factor = args.softcap > 0.0 ? scale / args.softcap : scale * unit;
  cap = static_cast<T>(args.softcap * unit);
  if (kind == ScoreKind::kGeneral) w = carver.Take<T>(q_dim * Padded<T>(k_dim));
  if (kind == ScoreKind::kAdditive) {
    width = static_cast<std::size_t>(args.w_k->shape[0]);
    w_q = carver.Take<T>(q_dim * Padded<T>(width));
    w_k = carver.Take<T>(width * Padded<T>(k_dim));
    b = carver.Take<T>(Padded<T>(width));
    v_a = carver.Take<T>(Padded<T>(width));
  }
}

template <class T>
void ScoreTask<T>::Read(const AttentionArgs& args) {
  if (kind == ScoreKind::kGeneral) ReadMatrix(*args.w, w);
  if (kind != ScoreKind::kAdditive) return;
  ReadMatrix(Transposed(*args.w_q), w_q);
  ReadMatrix(*args.w_k, w_k);
  std::fill(b, b + Padded<T>(width), T{0});
  if (args.b) ReadRow(args.b->dtype, args.b->data, args.b->strides[0], width, b);
  for (std::size_t a = 0; a < width; ++a) {
    const double value = ReadElement(args.v_a->dtype, At(*args.v_a, a));
    v_a[a] = static_cast<T>(value * factor);
  }
}

template struct ScoreTask<float>;
template struct ScoreTask<double>;

}  // namespace attest
