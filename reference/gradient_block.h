// SPDX-License-Identifier: Apache-2.0
// The SIMD rungs for gradients: blocks of rows for q, bias and sinks, blocks of keys for k and v.
//
// With p_ij the weights before the factor m_ij (dropout's keep / (1 - rate) times the Gaussian):
//   dP_ij = m_ij <grad_out_i, v_j>,  delta_i = sum_j p_ij dP_ij,
//   dS_ij = p_ij (dP_ij - delta_i + grad_lse_i),  dR_ij = dS_ij (1 - tanh^2) under a soft cap,
//   grad_q_i = scale sum_j dR_ij k_j,  grad_k_j = scale sum_i dR_ij q_i,
//   grad_v_j = sum_i p_ij m_ij grad_out_i,  grad_bias_ij = dS_ij,
//   grad_sink = sum_i p_sink,i (grad_lse_i - delta_i).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "reference/row_block.h"

namespace attest {

// What a column needs to know of a row, in the arithmetic of the rung that computed it. Errors are
// bounds; p is an exact weight of the row.
struct RowStatistics {
  bool valid = false;  // false: no key takes part, or nothing is known
  double pivot = 0.0;
  double inverse_hi = 0.0, inverse_lo = 0.0;  // 1 / sum of e^(s - pivot)
  double delta_hi = 0.0, delta_lo = 0.0;
  double grad_lse = 0.0;
  // |computed - exact| <= p m `weight_error` for p m, and
  // <= p (|dP - delta + grad_lse| `relative_error` + `absolute_error`) for dR.
  double weight_error = 0.0;
  double relative_error = 0.0;
  double absolute_error = 0.0;
  // The row's term of the gradient of its head's sink.
  double sink_hi = 0.0, sink_lo = 0.0, sink_radius = 0.0;
};

// What a RowBlock needs besides, for gradients.
struct GradientRows {
  const double* grad_out = nullptr;         // [v_dim, lanes]
  double grad_out_norm[kMaxRowLanes] = {};  // at least the Euclidean norm
  alignas(64) double grad_lse[kMaxRowLanes] = {};

  // Where results go, by row; null: not wanted. Elements that are decided are left alone.
  CertifiedValue* grad_q[kMaxRowLanes] = {};     // [k_dim]
  CertifiedValue* grad_bias[kMaxRowLanes] = {};  // [all keys of the head]
  RowStatistics* statistics[kMaxRowLanes] = {};
  DType dtype = DType::kF32;
  DType bias_dtype = DType::kF32;
};

// Up to kKeyBlock rows that keys see, one row after the other.
struct RowTile {
  std::size_t rows = 0;
  const double* q = nullptr;         // [rows, k_dim]
  const double* grad_out = nullptr;  // [rows, v_dim]
  const RowStatistics* statistics = nullptr;
  Plane additive;                  // [rows, lanes], as RowBlock's; null hi: none
  const double* keep = nullptr;    // [rows, lanes]
  const double* center = nullptr;  // [rows], local attention's centres
};

// Up to kMaxRowLanes keys of one head operand.
struct ColumnBlock {
  std::size_t lanes = 0;
  std::size_t keys = 0;                       // lanes in use
  const double* k = nullptr;                  // [k_dim, lanes]
  const double* v = nullptr;                  // [v_dim, lanes]
  alignas(64) double key[kMaxRowLanes] = {};  // the positions of the keys
  double score_bound[kMaxRowLanes] = {};      // of |<q_i, k>| over all valid rows i
  double dp_bound[kMaxRowLanes] = {};         // of |<grad_out_i, v>|
  Index k_dim = 0;
  Index v_dim = 0;
  Index rows = 0;  // of all tiles together, each counted as full (kKeyBlock)
  Enclosed scale;
  double softcap = 0.0;
  double gaussian_half_width = 0.0;
  Enclosed kept{1.0, 0.0, 0.0};
  bool exact_products = false;
  std::function<bool(RowTile*)> next;  // fills in the next tile; false after the last

  CertifiedValue* grad_k[kMaxRowLanes] = {};  // [k_dim]
  CertifiedValue* grad_v[kMaxRowLanes] = {};  // [v_dim]
  DType dtype = DType::kF32;
};

// Certify what a block asks for, as far as the rung's arithmetic goes. The rows, or keys, as bits,
// that are left with an undecided element (statistics are always set).
std::uint32_t GradientRowsInDouble(const HeadOperands& head, const RowBlock& block,
                                   const GradientRows& gradients, RungWorkspace& workspace);
std::uint32_t GradientRowsInDoubleDouble(const HeadOperands& head, const RowBlock& block,
                                         const GradientRows& gradients, RungWorkspace& workspace);
std::uint32_t GradientColumnsInDouble(const ColumnBlock& block, RungWorkspace& workspace);
std::uint32_t GradientColumnsInDoubleDouble(const ColumnBlock& block, RungWorkspace& workspace);

}  // namespace attest
