// SPDX-License-Identifier: Apache-2.0
#include "core/run_record.h"

#include <cmath>
#include <fstream>

#include "core/build_info.h"
#include "core/file_io.h"

namespace attest {

using nlohmann::ordered_json;

ordered_json ToJson(const Manifest& manifest) {
  ordered_json json;
  json["attest_version"] = kAttestVersion;
  json["git"] = kGitState;
  json["compiler"] = kCompiler;
  json["flags"] = kCompileFlags;
  json["cpu"] = CpuName();
  json["simd_target"] = manifest.simd_target;
  json["libraries"] = manifest.libraries;
  json["seed"] = manifest.seed;
  json["command"] = manifest.command;
  json["inputs_sha256"] = manifest.inputs_sha256;
  json["outputs_sha256"] = manifest.outputs_sha256;
  return json;
}

std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string key = "model name";
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

ordered_json NumberToJson(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Status WriteRecord(const std::filesystem::path& file, const ordered_json& record) {
  return WriteWholeFile(file, record.dump(2) + "\n");
}

}  // namespace attest
