// SPDX-License-Identifier: Apache-2.0
// Finds out by small cases what an implementation supports, where it does not say so.
#pragma once

#include <string>
#include <vector>

#include "audit/capabilities.h"
#include "audit/subject.h"

namespace attest {

// Fills in what `capabilities` leaves open, with a sentence for each of them in `assumptions`.
//   dtypes, scores, masks, features: missing where a case that needs it is answered by
//     "unsupported" or "error"; an answer that is wrong is not missing, it is for the audit to find
//   outputs: those that come; layouts: dense alone, where others give another result
//   empty_row: zero, nan or uniform, where a row without an allowed key gives that
//   arithmetic of 16-bit types: the -math profile, where its bounds hold and those of -flash do not
// Nothing is declared for a subject that fails at the plainest case: the audit will tell.
void Probe(const Subject& subject, Capabilities* capabilities,
           std::vector<std::string>* assumptions);

}  // namespace attest
