// SPDX-License-Identifier: Apache-2.0
// In place of textbook_mpfr.cc where MPFR is not to be used.
#include "reference/textbook_types.h"

namespace attest {

const bool kTextbookHasMpfr = false;

TextbookResult EvaluateTextbookOnMpfr(const Case&) { return {}; }

}  // namespace attest
