// SPDX-License-Identifier: Apache-2.0
// The textbook formula on MPFR; and the choice between the number types.
#include <boost/multiprecision/eigen.hpp>
#include <boost/multiprecision/mpfr.hpp>

#include "reference/textbook-inl.h"
#include "reference/textbook_types.h"

namespace attest {

StatusOr<TextbookResult> TextbookForward(const Case& problem, TextbookNumber number) {
  if (problem.contract.score != ScoreKind::kDot) {
    return Unsupported("score.kind: the textbook reference computes 'dot' only");
  }
  if (number == TextbookNumber::kCppBinFloat100) return TextbookForwardCppBinFloat(problem);
  using Number = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<100>,
                                               boost::multiprecision::et_off>;
  return Textbook<Number>(problem).Forward();
}

}  // namespace attest
