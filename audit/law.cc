// SPDX-License-Identifier: Apache-2.0
#include "audit/law.h"

#include <iterator>
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

LawResult WithinBound(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  return StaysWithinBounds(subject, problem, expectations,
                           "an element is farther from the exact value than its bound");
}

}  // namespace

const std::vector<Law>& Laws() {
  static const std::vector<Law> laws = [] {
    std::vector<Law> all{{"within-bound",
                          "every element is within its derived bound of the certified value",
                          WithinBound}};
    for (const auto& theme : {WeightLaws, SaturationLaws, JunkLaws, MaskLaws, SymmetryLaws, KeyLaws,
                              ScalingLaws, CallLaws, GradientLaws}) {
      std::vector<Law> some = theme();
      std::move(some.begin(), some.end(), std::back_inserter(all));
    }
    return all;
  }();
  return laws;
}

}  // namespace attest
