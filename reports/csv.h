// SPDX-License-Identifier: Apache-2.0
// One table of an experiment as comma-separated values.
#pragma once

#include <string>

#include "reports/fields.h"

namespace attest::reports {

// The table {"columns": [...], "rows": [[...]]} after RFC 4180, except that a line ends with LF.
// Numbers keep every digit; an absent cell is empty.
std::string CsvOf(const Json& table);

// Where table `number` (from 1) of the experiment `id` lies, relative to the report.
std::string CsvPath(const std::string& id, std::size_t number);

}  // namespace attest::reports
