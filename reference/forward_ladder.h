// SPDX-License-Identifier: Apache-2.0
// The ladder for out, LSE, weights and conditions.
#pragma once

#include "reference/certify.h"
#include "reference/row_inputs.h"
#include "reference/work_queue.h"

namespace attest {

// Settles every element of those of out, lse and weights that `result` has, and the conditions
// where they are wanted; rows are reported to `work`, and work stops where that is cancelled.
void CertifyForward(const RowInputs& inputs, const CertifyOptions& options, WorkQueue* work,
                    Certified* result);

}  // namespace attest
