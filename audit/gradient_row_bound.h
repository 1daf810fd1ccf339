// SPDX-License-Identifier: Apache-2.0
// Errors of what one row contributes to gradients; derivation in docs/bounds.md, "Gradients".
#pragma once

#include <vector>

#include "audit/bound.h"
#include "audit/row_bound.h"

namespace attest {

// A magnitude, and the error of what is computed for it; both at most.
struct Erring {
  double size = 0.0;
  double error = 0.0;
};

// One key of a row, in the symbols of docs/reference.md, "Gradients".
struct GradientTerm {
  Erring kept;  // p_j m_j, the gradient of out_c by v_jc
  Erring ds;    // dS_j, the gradient by the score after the soft cap
  Erring dr;    // dR_j / scale: dS_j times the derivative of the soft cap
};

struct GradientRowBound {
  std::vector<GradientTerm> terms;  // by term of the plan
  Erring d_sink;
  // False: intermediate results may overflow, or rounded scores may change the weights altogether,
  // and nothing that the row reaches is judged.
  bool in_range = true;
};

class GradientRowBounds {
 public:
  // All must outlive the object. `forward` is EvaluateBounds of the same case.
  GradientRowBounds(const CaseData& data, const Certified& certified, const ForwardBounds& forward,
                    const ArithmeticModel& model);

  // Of a row of kind kFinite or kEmpty.
  GradientRowBound Of(Index flat, const RowId& row, const RowPlan& plan) const;

  const ScoreErrors& scores() const { return rows_.scores(); }
  // Error of 1 - t^2 where t = tanh is off by `tanh.error`.
  double SlopeError(const HiddenError& tanh) const;

 private:
  struct Weights;
  struct Products;

  GradientRowBound OfEmptyRow(Index flat, const RowPlan& plan) const;
  Products ProductsOf(Index flat, const RowId& row, const RowPlan& plan,
                      const RowBound& bound) const;
  double GradLse(Index flat) const;

  const CaseData& data_;
  const Contract& contract_;
  const ForwardBounds& forward_;
  const ArithmeticModel& model_;
  const RowBounds rows_;
  std::vector<double> grad_out_;  // empty without one
  std::vector<double> grad_lse_;
};

}  // namespace attest
