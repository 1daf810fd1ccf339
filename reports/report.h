// SPDX-License-Identifier: Apache-2.0
// Writes the report of a set of run records: one page, one summary, the records, and CSV tables.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/status.h"

namespace attest {

// Writes into `directory`, which is created if it does not exist:
//   report.html         the whole report in one file that needs no script and no network
//   report.md           a summary for a terminal or a continuous-integration job
//   report.json         the records
//   junit.xml           the cases of the audits as tests, if there are audits
//   findings.sarif      their findings as SARIF 2.1.0, likewise
//   csv/<name>-<n>.csv  table n (from 1) of the experiment of that name
// `records` is an array of run records, audits ("attest_result": 1) and experiments
// ("attest_experiment": 1) in any order. A field that is absent or of another type shows as a dash;
// anything that is not such a record is InvalidArgument, and then nothing is written. The same
// records give the same bytes. A file appears under its name only when it is complete, the page
// last. Never throws.
Status WriteReport(const std::filesystem::path& directory, const nlohmann::ordered_json& records);

// Writes report.md, junit.xml and findings.sarif alone.
Status WriteSummaries(const std::filesystem::path& directory,
                      const nlohmann::ordered_json& records);

}  // namespace attest
