// SPDX-License-Identifier: Apache-2.0
// The instantiations of the textbook formula that live in files of their own (they compile slowly).
#pragma once

#include "core/case.h"
#include "reference/textbook.h"

namespace attest {

TextbookResult TextbookForwardCppBinFloat(const Case& problem);

}  // namespace attest
