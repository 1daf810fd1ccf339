// SPDX-License-Identifier: Apache-2.0
// The choice between the number types of the textbook formula.
#include "reference/textbook.h"

#include "reference/textbook_types.h"

namespace attest {

bool TextbookHas(TextbookNumber number) {
  return number == TextbookNumber::kCppBinFloat100 || kTextbookHasMpfr;
}

StatusOr<TextbookResult> TextbookForward(const Case& problem, TextbookNumber number) {
  if (problem.contract.score != ScoreKind::kDot) {
    return Unsupported("score.kind: the textbook reference computes 'dot' only");
  }
  if (!TextbookHas(number)) return Unsupported("this build has no MPFR");
  return number == TextbookNumber::kMpfr100 ? TextbookForwardMpfr(problem)
                                            : TextbookForwardCppBinFloat(problem);
}

}  // namespace attest
