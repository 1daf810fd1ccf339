// SPDX-License-Identifier: Apache-2.0
// Enclosures of gradients at the thread's working precision, and their exact values where they are
// rational numbers.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/ball.h"
#include "reference/row_plan.h"

namespace attest {

struct GradientElement {
  Ball value;
  bool not_a_number = false;  // then `value` means nothing
};

// Elements (row-major, any order) of the gradient of L = sum grad_out * out + sum grad_lse * LSE
// with respect to the case's tensor `tensor`: q, k, v, bias, sinks, w, w_q, w_k, v_a or b; in the
// order asked for. An element is NaN when a row that reaches it is poisoned
// (reference/row_gradient.h). Takes the rows that matter one by one; memory is that of one row and
// of the results.
std::vector<GradientElement> EncloseGradient(const CaseData& data, const std::string& tensor,
                                             std::span<const Index> elements);

// The element as an exact quotient of exact numbers, where every row that reaches it has equal
// scores only (see UniformGradient) and the working precision holds both. Not for elements that are
// NaN.
struct ExactQuotient {
  Ball numerator;
  Ball denominator{1.0};  // positive
};
std::optional<ExactQuotient> ExactGradient(const CaseData& data, const std::string& tensor,
                                           Index element);

// The elements of a tensor in parts that no row has in common, or a single one where every row
// reaches every element: work that different threads can do.
std::vector<std::vector<Index>> IndependentParts(const CaseData& data, const std::string& tensor);

}  // namespace attest
