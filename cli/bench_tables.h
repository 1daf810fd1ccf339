// SPDX-License-Identifier: Apache-2.0
// Benchmark records as text for a terminal of 100 columns.
#pragma once

#include <nlohmann/json.hpp>

namespace attest {

// Prints a record of RunBenchmark to standard output, by its "name".
void PrintBenchmark(const nlohmann::ordered_json& record);

}  // namespace attest
