// SPDX-License-Identifier: Apache-2.0
// The index of exported cases: which file is which case of which suite (docs/plugins.md).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/suite.h"
#include "core/status.h"

namespace attest {

inline constexpr const char* kCaseIndexFile = "cases.json";

struct CaseEntry {
  std::string file;  // in the directory of the index
  std::string name;  // the case's own, in full
  std::string suite;
  std::string family;

  bool operator==(const CaseEntry&) const = default;
};

// A file name for the case of this position and name: unique by the position, at most 100 letters,
// digits, '-', '_' and '.', so that every file system takes it.
std::string CaseFileName(std::size_t position, const std::string& name);

// The entries of an export, in order.
std::vector<CaseEntry> CaseEntries(const std::vector<SuiteCase>& cases);

// The index as JSON: every entry with the contract and the outputs that it asks for. `entries` are
// those of `cases`.
nlohmann::ordered_json CaseIndexToJson(const std::vector<CaseEntry>& entries,
                                       const std::vector<SuiteCase>& cases,
                                       const nlohmann::ordered_json& manifest);

// The entries of DIRECTORY/cases.json; NotFound when there is no such file. One line says where it
// is damaged.
StatusOr<std::vector<CaseEntry>> ReadCaseIndex(const std::filesystem::path& directory);

}  // namespace attest
