// SPDX-License-Identifier: Apache-2.0
// The tables and plots of the experiment "real-activations".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/activation_audit.h"

namespace attest {

// A head of a sentence with what was measured.
struct AuditedHead {
  int layer = 0;
  Index head = 0;
  HeadAudit audit;
};

// All heads of one shape, tokens x tokens with this head size, and random draws of it.
struct HeadGroup {
  Index tokens = 0;
  Index dim = 0;
  std::vector<AuditedHead> real;
  std::vector<HeadAudit> random;
};

double MedianOf(std::vector<double> values);  // at least one

// Of a loss or an error over the random draws of a group.
struct RandomRange {
  double median = 0.0;
  double largest = 0.0;
};
template <class Value>
RandomRange RangeOf(const HeadGroup& group, const Value& value) {
  std::vector<double> values;
  double largest = 0.0;
  for (const HeadAudit& audit : group.random) {
    values.push_back(value(audit));
    if (!(values.back() <= largest)) largest = values.back();
  }
  return {MedianOf(values), largest};
}

nlohmann::ordered_json ShapeTable(const std::vector<HeadGroup>& groups);
nlohmann::ordered_json LossTable(const std::vector<HeadGroup>& groups);
nlohmann::ordered_json KernelTable(const std::vector<HeadGroup>& groups,
                                   const std::vector<std::string>& kernels);
nlohmann::ordered_json HeadErrorTable(const std::vector<HeadGroup>& groups);
nlohmann::ordered_json QuantisedTable(const std::vector<HeadGroup>& groups);
nlohmann::ordered_json ActivationPlots(const std::vector<HeadGroup>& groups);

}  // namespace attest
