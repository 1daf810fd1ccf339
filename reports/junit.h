// SPDX-License-Identifier: Apache-2.0
// Audits as JUnit XML, the form that continuous integration lists tests in.
#pragma once

#include <string>

#include "reports/model.h"

namespace attest::reports {

// One <testsuite> for each audit, one <testcase> for each case (class: suite and family). A case
// that fails says which outputs are above their bounds; one that does not count is skipped. Times
// are left out, so that the same records give the same bytes.
std::string JunitOf(const Report& report);

}  // namespace attest::reports
