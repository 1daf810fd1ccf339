// SPDX-License-Identifier: Apache-2.0
// The instantiations of the textbook formula that live in files of their own (they compile slowly).
#pragma once

#include <cmath>

#include "core/case.h"
#include "reference/textbook.h"
#include "reference/textbook_gradient-inl.h"

namespace attest {

TextbookResult EvaluateTextbookOnCppBinFloat(const Case& problem);

// textbook_mpfr.cc; or textbook_no_mpfr.cc in a build without MPFR, which has no results.
extern const bool kTextbookHasMpfr;
TextbookResult EvaluateTextbookOnMpfr(const Case& problem);

// Every value as the sum of two doubles.
template <class Number>
TextbookResult ToDoubles(const TextbookValues<Number>& values) {
  TextbookResult result;
  for (const auto& [name, numbers] : values) {
    TextbookTensor& tensor = result[name];
    for (const Number& number : numbers) {
      const auto hi = static_cast<double>(number);
      const auto lo = std::isfinite(hi) ? static_cast<double>(Number(number - Number(hi))) : 0.0;
      tensor.hi.push_back(hi);
      tensor.lo.push_back(lo);
    }
  }
  return result;
}

}  // namespace attest
