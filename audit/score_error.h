// SPDX-License-Identifier: Apache-2.0
// Forward errors of scores of every kind, before any maximum is subtracted; derivation in
// docs/bounds.md, "Scores".
#pragma once

#include <vector>

#include "audit/arithmetic_model.h"
#include "reference/row_plan.h"

namespace attest {

// One score s_ij. Infinite or NaN where the format says nothing.
struct ScoreError {
  double magnitude = 0.0;  // A_j: |scale| times the sum of the magnitudes of what is summed up
  double added = 0.0;      // what bias and ALiBi add, in magnitude
  double raw = 0.0;        // error of the scaled score before a soft cap
  double error = 0.0;      // E_j, with soft cap, bias, ALiBi and stores
  double largest = 0.0;    // no smaller than any intermediate result before bias and ALiBi
};

// tanh(h) of one unit of an additive score: no smaller than its magnitude, that of its derivative
// 1 - tanh^2, and the error of a computed one.
struct HiddenError {
  double tanh = 0.0;
  double slope = 0.0;
  double error = 0.0;
};

// tanh(r / c) of a soft cap, likewise. Without a cap the slope is 1, the rest 0.
using CapError = HiddenError;

class ScoreErrors {
 public:
  // Both must outlive the object.
  ScoreErrors(const CaseData& data, const ArithmeticModel& model);

  // `dot_condition` is A_j of a score `dot` or of one that infinite inputs decide (Conditions),
  // `score` no smaller than |s_ij|.
  ScoreError Of(const RowId& row, const KeyTerm& term, double dot_condition, double score) const;

  // Whether the scale, the soft cap, and the factors of scores times the scale are numbers of the
  // format.
  bool ScalesFit(const RowId& row, const RowPlan& plan) const;

  // The units of an additive score; empty for other kinds.
  std::vector<HiddenError> Hidden(const RowId& row, Index key) const;
  CapError Cap(const RowId& row, const KeyTerm& term, const ScoreError& score) const;

  double scale() const { return scale_; }  // its magnitude

 private:
  // A score's sum before the soft cap.
  struct Sum {
    double magnitude = 0.0;
    double error = 0.0;
    double largest = 0.0;
  };
  Sum Dot(const RowId& row, Index key, double magnitude) const;
  Sum General(const RowId& row, Index key) const;
  Sum Additive(const RowId& row, Index key) const;
  double RawScore(const RowId& row, Index key) const;  // unscaled, in double

  const CaseData& data_;
  const Contract& contract_;
  const ArithmeticModel& model_;
  double scale_ = 0.0;
};

}  // namespace attest
