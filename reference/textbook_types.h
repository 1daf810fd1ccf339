// SPDX-License-Identifier: Apache-2.0
// The instantiations of the textbook formula that live in files of their own (they compile slowly).
#pragma once

#include "core/case.h"
#include "reference/textbook.h"

namespace attest {

TextbookResult TextbookForwardCppBinFloat(const Case& problem);

// textbook_mpfr.cc; or textbook_no_mpfr.cc in a build without MPFR, where it is not to be called.
extern const bool kTextbookHasMpfr;
TextbookResult TextbookForwardMpfr(const Case& problem);

}  // namespace attest
