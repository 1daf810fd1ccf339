// SPDX-License-Identifier: Apache-2.0
// Minimal cases of an audit's findings: shrinks, writes files, and says how to replay them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "audit/suite.h"
#include "core/status.h"

namespace attest {

// Shrinks the worst case of each of the first `most` findings of a record and gives the finding a
// field "minimal": "description" in words, and, where `out` is not empty, "case", a file in
// out/minimal, and "replay", the command that audits it ("attest audit SUBJECT_ARGUMENT --cases
// FILE"). A finding that does not show when its case is run alone, as those of unrepeatable
// subjects may, gets none.
Status AddMinimalCases(const Subject& subject, const std::vector<SuiteCase>& cases,
                       const std::string& subject_argument, const std::string& out,
                       std::size_t most, nlohmann::ordered_json* record);

// The field "minimal" below its finding.
void PrintMinimal(const nlohmann::ordered_json& minimal);

}  // namespace attest
