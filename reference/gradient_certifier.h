// SPDX-License-Identifier: Apache-2.0
// Rungs 2 and 3 of the ladder for gradients.
#pragma once

#include <string>
#include <vector>

#include "reference/ball_settle.h"
#include "reference/certify.h"
#include "reference/row_plan.h"

namespace attest {

// Settles `elements` of the gradient of `tensor` ("q", not "grad_q"), all at once, at a precision
// that is doubled until every one is decided. Elements that a poisoned row reaches are NaN.
BallEffort CertifyGradient(const CaseData& data, int digits, const std::string& tensor,
                           std::vector<Index> elements, CertifiedTensor* gradient);

}  // namespace attest
