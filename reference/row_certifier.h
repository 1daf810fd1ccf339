// SPDX-License-Identifier: Apache-2.0
// Rungs 2 and 3 of the ladder, and the contract's rules, for one row of out, LSE and weights.
#pragma once

#include "reference/ball_settle.h"
#include "reference/certify.h"
#include "reference/row_plan.h"

namespace attest {

class RowCertifier {
 public:
  // All must outlive it. `result` has its tensors, and conditions where they are wanted.
  RowCertifier(const CaseData& data, const CertifyOptions& options, Certified* result);

  // Settles every element of row `flat` of [B, Hq, Tq] that is not decided, and its conditions.
  // Different rows may be certified by different threads at once.
  BallEffort CertifyRow(Index flat) const;

 private:
  const CaseData& data_;
  const CertifyOptions& options_;
  Certified* result_;
};

}  // namespace attest
