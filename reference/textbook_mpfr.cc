// SPDX-License-Identifier: Apache-2.0
// The textbook formula on MPFR.
#include <boost/multiprecision/eigen.hpp>
#include <boost/multiprecision/mpfr.hpp>

#include "reference/textbook_types.h"

namespace attest {

const bool kTextbookHasMpfr = true;

TextbookResult EvaluateTextbookOnMpfr(const Case& problem) {
  using Number = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<100>,
                                               boost::multiprecision::et_off>;
  return ToDoubles(EvaluateTextbook(Textbook<Number>(problem)));
}

}  // namespace attest
