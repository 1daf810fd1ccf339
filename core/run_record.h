// SPDX-License-Identifier: Apache-2.0
// Run records: what a run found, with a manifest of what produced it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/status.h"

namespace attest {

// Everything that is needed to repeat a run.
struct Manifest {
  std::string command;      // what the user typed, or the call that stands for it
  std::string simd_target;  // the SIMD target that kernels ran on; empty where none did
  std::uint64_t seed = 0;
  std::map<std::string, std::string> libraries;  // name -> version
  std::string inputs_sha256;
  std::string outputs_sha256;
};

// The manifest as JSON, completed with Attest's version and git state, compiler, flags and CPU.
nlohmann::ordered_json ToJson(const Manifest& manifest);

// "Intel(R) Xeon(R) Processor" or "unknown".
std::string CpuName();

// A double as JSON: a number, or the text "NaN", "Infinity" or "-Infinity".
nlohmann::ordered_json NumberToJson(double value);

// Writes `record` as indented JSON. The file appears under its name only when it is complete.
Status WriteRecord(const std::filesystem::path& file, const nlohmann::ordered_json& record);

}  // namespace attest
