// SPDX-License-Identifier: Apache-2.0
// Pass rules by which public projects judge attention, each as one function of one output.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace attest {

// One output of one case: its finite elements. What is NaN or infinite where the exact value is
// not, or the other way round, is rejected by every rule before any of this is looked at.
struct RuleInput {
  DType dtype = DType::kF32;  // of the output
  bool softcap = false;
  std::span<const double> exact;  // certified, to a double
  std::span<const double> got;
  std::span<const double> plain;  // of a plain right implementation in the same precision
};

struct PassRule {
  std::string name;
  std::string statement;
  std::string source;
  bool (*accepts)(const RuleInput& input);
};
const std::vector<PassRule>& PassRules();

}  // namespace attest
