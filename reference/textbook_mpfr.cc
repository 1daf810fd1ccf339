// SPDX-License-Identifier: Apache-2.0
// The textbook formula on MPFR; and the choice between the number types.
#include <boost/multiprecision/eigen.hpp>
#include <boost/multiprecision/mpfr.hpp>

#include "reference/textbook_types-inl.h"

namespace attest {

TextbookResult EvaluateTextbook(const Case& problem, TextbookNumber number) {
  if (number == TextbookNumber::kCppBinFloat100) return EvaluateTextbookOnCppBinFloat(problem);
  using Number = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<100>,
                                               boost::multiprecision::et_off>;
  return ToDoubles(EvaluateTextbook(Textbook<Number>(problem)));
}

}  // namespace attest
