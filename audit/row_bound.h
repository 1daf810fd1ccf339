// SPDX-License-Identifier: Apache-2.0
// Errors of the weights of one row, which every bound rests on; derivation in docs/bounds.md.
#pragma once

#include <vector>

#include "audit/arithmetic_model.h"
#include "audit/score_error.h"
#include "reference/certify.h"
#include "reference/row_plan.h"

namespace attest {

// One weight of a row. All but errors are no smaller than what they are named after.
struct WeightBound {
  double weight = 0.0;          // p_j, with a local-p Gaussian
  double perturbation = 0.0;    // pi_j: error of the exactly normalised weight
  double underflow = 0.0;       // omega_j: what underflow can do to it
  double softmax = 0.0;         // p_j without the Gaussian; the share of a sink
  double log_softmax = 0.0;     // its logarithm
  double exponent = 0.0;        // T_j: error of the exponent, without the Gaussian
  double gaussian = 1.0;        // e^-G_j; 1 without one
  double gaussian_log = 0.0;    // G_j
  double gaussian_error = 0.0;  // relative to the Gaussian, as an error of its exponent
  ScoreError score;             // of a key
};

// Everything of one row that the bounds of its elements share.
struct RowBound {
  std::vector<WeightBound> terms;  // by term of the plan
  WeightBound sink;                // all 0 without one
  double accumulation = 0.0;       // relative error of a term through products and sums
  double normaliser = 0.0;         // tau: relative error of the computed denominator
  double exponent_error = 0.0;     // T: largest error of an exponent of a weight that matters
  double largest_exponent = 0.0;   // M: no smaller than the magnitude of the row maximum
  double absolute = 0.0;           // omega: what underflow can do to any weight
  bool in_range = true;

  // Whether tau is small enough to divide by 1 - tau. Written so that NaN is not.
  bool IsSharp() const { return normaliser < 0.5; }
};

class RowBounds {
 public:
  // All must outlive the object; `certified` has conditions.
  RowBounds(const CaseData& data, const Certified& certified, const ArithmeticModel& model);

  // Of a row of kind kFinite.
  RowBound Of(Index flat, const RowId& row, const RowPlan& plan) const;

  const ScoreErrors& scores() const { return scores_; }

  // A certified element; 0 where the output was not asked for.
  CertifiedValue Exact(const char* output, std::size_t element) const;

 private:
  // Shift by a maximum or by the LSE, change of base included; see "Exponents".
  double Shift(double largest_exponent, double log_weight, double keys) const;

  const Contract& contract_;
  const Certified& certified_;
  const ArithmeticModel& model_;
  const ScoreErrors scores_;
};

}  // namespace attest
