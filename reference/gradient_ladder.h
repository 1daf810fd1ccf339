// SPDX-License-Identifier: Apache-2.0
// The ladder for gradients.
#pragma once

#include "reference/certify.h"
#include "reference/row_inputs.h"
#include "reference/work_queue.h"

namespace attest {

// Settles every element of the gradients (names that begin with "grad_") that `result` has; rows
// and keys are reported to `work`, and work stops where that is cancelled.
void CertifyGradients(const RowInputs& inputs, const CertifyOptions& options, WorkQueue* work,
                      Certified* result);

}  // namespace attest
