// SPDX-License-Identifier: Apache-2.0
// Suites: named lists of cases that an audit runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"

namespace attest {

struct SuiteInfo {
  std::string name;
  std::string description;
};
const std::vector<SuiteInfo>& Suites();

struct SuiteCase {
  std::string suite;
  std::string family;  // cases that ask the same question; reports tell them together
  Case problem;
};

// The cases of one suite. NotFound for a name that is not in Suites(), or where the files of the
// suite `real` are not there. Those of `onnx` are MakeOnnxSuite's (audit/onnx_suite.h).
StatusOr<std::vector<SuiteCase>> MakeSuite(const std::string& name, std::uint64_t seed);

// The cases of several suites, in order; one that is named twice counts once.
StatusOr<std::vector<SuiteCase>> MakeSuites(const std::vector<std::string>& names,
                                            std::uint64_t seed);

// Every .safetensors and .npz case of a directory, in the order of file names, or the one case of a
// file. Suites and families are those of the directory's cases.json (audit/case_index.h); where
// that has none the suite is named "files" and the family is the case. Contracts come from the
// files, or from `contract` where they have none.
StatusOr<std::vector<SuiteCase>> ReadCases(
    const std::filesystem::path& directory,
    const std::optional<std::filesystem::path>& contract = std::nullopt);

// Where the shipped activations of real models are: $ATTEST_CASES, else beside the installed
// command, else in the source tree. `name` is "use_lite" or a folder in it.
StatusOr<std::filesystem::path> ShippedCases(const std::string& name);

}  // namespace attest
