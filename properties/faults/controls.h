// SPDX-License-Identifier: Apache-2.0
// What controls declare, and which cases their conventions exclude.
#pragma once

#include "audit/subject.h"
#include "core/status.h"
#include "properties/faults/plain_args.h"

namespace attest {

// Changes what the plain implementation declares to what the control declares.
void Declare(Control control, SubjectInfo* info);

// kUnsupported, with the reason, for a call for which the control does not claim to be right.
Status Accepts(const PlainCall& call);

}  // namespace attest
