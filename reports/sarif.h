// SPDX-License-Identifier: Apache-2.0
// Findings as SARIF 2.1.0 (OASIS), the form that code scanning takes.
#pragma once

#include "reports/model.h"

namespace attest::reports {

// One run for all audits. Each kind of finding is a rule with its statement as help; each finding
// is a result at the minimal case's file, where there is one, and at the logical location
// implementation / case / tensor. The fingerprint of a result does not depend on what was measured.
Json SarifOf(const Report& report);

}  // namespace attest::reports
