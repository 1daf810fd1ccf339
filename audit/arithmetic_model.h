// SPDX-License-Identifier: Apache-2.0
// Arithmetic profiles as numbers: what the bounds are functions of (docs/bounds.md, "Model").
#pragma once

#include <string>
#include <vector>

#include "core/contract.h"

namespace attest {

// What a profile allows.
struct ArithmeticModel {
  double unit_roundoff;           // u of scores, exponentials, sums and accumulation
  double smallest_normal;         // of that format
  double smallest_subnormal;      // of that format
  double largest_finite;          // of that format
  double score_roundoff = 0.0;    // unit roundoff of the type scores are stored in; 0: as above
  double score_largest = 0.0;     // largest finite number of that type; 0: as above
  double weight_roundoff = 0.0;   // unit roundoff of the type weights are stored in; 0: as above
  double weight_subnormal = 0.0;  // smallest subnormal of that type
  double weight_largest = 0.0;    // largest finite number of that type; 0: as above
  double exp_ulp = 2.0;
};

ArithmeticModel ModelOf(const Contract& contract);

// A profile's name and what it means, for `attest list profiles`.
struct ProfileInfo {
  std::string name;
  std::string description;
};
const std::vector<ProfileInfo>& Profiles();

}  // namespace attest
