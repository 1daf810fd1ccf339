// SPDX-License-Identifier: Apache-2.0
// What one row of attention contributes to gradients, at the thread's working precision.
//
// Of L = sum grad_out * out + sum grad_lse * LSE, with dO = grad_out and dL = grad_lse of the row
// (absent: 0), m_j = keep_j / (1 - rate) * gaussian_j and the sink's share p_s of the denominator:
//   dP_j = m_j <dO, v_j>      delta = sum_j p_j dP_j
//   dS_j = p_j (dP_j - delta + dL)      dsink = p_s (dL - delta)
// dS is the gradient by the score after the soft cap, dR by the score before cap and scale.
#pragma once

#include <optional>
#include <vector>

#include "reference/ball.h"
#include "reference/row_enclosure.h"
#include "reference/row_plan.h"

namespace attest {

// Vectors are by term of the row's plan.
struct RowGradient {
  std::vector<Ball> kept;  // p_j m_j, the gradient of out_c by v_jc
  std::vector<Ball> ds;    // dS_j
  std::vector<Ball> dr;    // dR_j; filled where asked for
  Ball d_sink;             // 0 without a finite sink
};

// Whether anything that takes part in the row is NaN or infinite: q, an allowed key's k, v and
// bias, the parameters of the score, the slope, a sink other than -infinity, grad_out or grad_lse.
// A row without an allowed key has only its sink and, with a sink, grad_lse.
bool RowIsPoisoned(const CaseData& data, const RowId& row, const RowPlan& plan);

// Of a row that is not poisoned. `enclosure` is the row's, or null when it has no allowed key.
RowGradient EncloseRowGradient(const CaseData& data, const RowId& row, const RowPlan& plan,
                               const RowEnclosure* enclosure, bool with_dr);

// Where all scores of a row (and its sink) are equal, its gradients are rational numbers. The same
// quantities times count^2 (1 - rate), and dR by the scaled score, all of them exact numbers where
// the working precision holds them. Nothing for other rows, for those with a Gaussian, and for dR
// under a soft cap unless the score is 0 there.
struct UniformRowGradient {
  RowGradient gradient;
  Index count = 1;  // of keys, and the sink
};
std::optional<UniformRowGradient> UniformGradient(const CaseData& data, const RowId& row,
                                                  const RowPlan& plan,
                                                  const RowEnclosure* enclosure, bool with_dr);

}  // namespace attest
