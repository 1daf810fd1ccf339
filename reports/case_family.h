// SPDX-License-Identifier: Apache-2.0
// Groups the cases of an audit into families and keeps the worst errors of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/fields.h"

namespace attest::reports {

// The worst errors of one tensor over the cases of one suite that share a family.
struct CaseFamily {
  std::string suite;
  std::string family;
  std::string tensor;
  std::int64_t cases = 0;
  std::int64_t elements = 0;
  std::int64_t not_correctly_rounded = 0;
  std::optional<double> max_ulp;
  std::optional<double> max_scaled_error;
  std::optional<double> max_bound_ratio;
  std::optional<double> max_logit_spread;
  std::optional<double> min_entropy;
};

// Suites in the record's order; within one, in order of error / bound, worst first. A case without
// the field `family` is a family of its own. Families with equal errors stay in the record's order.
std::vector<CaseFamily> CaseFamilies(const Json& case_results);

}  // namespace attest::reports
