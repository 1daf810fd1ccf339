// SPDX-License-Identifier: Apache-2.0
// Families of pairs: the parameters whose values meet two by two.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "audit/case_spec.h"

namespace attest {

// One feature and the values that it takes, as changes of a specification. Changes are made in the
// order of the parameters.
struct PairParameter {
  std::string name;
  std::vector<std::function<void(CaseSpec&)>> values;
};

struct PairFamily {
  std::string name;
  std::vector<PairParameter> parameters;

  // Whether value `a_value` of parameter a and `b_value` of parameter b > a make sense together.
  bool CanCombine(std::size_t a, std::size_t a_value, std::size_t b, std::size_t b_value) const;
  // One value for each parameter and case, see CoverPairs.
  std::vector<std::vector<std::size_t>> Rows() const;
};

PairFamily ForwardPairFamily();
PairFamily GradientPairFamily();
PairFamily AllPairFamily();

}  // namespace attest
