// SPDX-License-Identifier: Apache-2.0
// The textbook formula on Boost's own binary float, which needs no other library.
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/eigen.hpp>

#include "reference/textbook_types.h"

namespace attest {

TextbookResult EvaluateTextbookOnCppBinFloat(const Case& problem) {
  using Number = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<100>,
                                               boost::multiprecision::et_off>;
  return ToDoubles(EvaluateTextbook(Textbook<Number>(problem)));
}

}  // namespace attest
