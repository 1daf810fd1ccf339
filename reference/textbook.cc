// SPDX-License-Identifier: Apache-2.0
// The choice between the number types of the textbook formula.
#include "reference/textbook.h"

#include "reference/textbook_types.h"

namespace attest {

bool TextbookHas(TextbookNumber number) {
  return number == TextbookNumber::kCppBinFloat100 || kTextbookHasMpfr;
}

TextbookResult EvaluateTextbook(const Case& problem, TextbookNumber number) {
  return number == TextbookNumber::kMpfr100 ? EvaluateTextbookOnMpfr(problem)
                                            : EvaluateTextbookOnCppBinFloat(problem);
}

}  // namespace attest
