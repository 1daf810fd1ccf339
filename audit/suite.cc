// SPDX-License-Identifier: Apache-2.0
#include "audit/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "audit/case_index.h"
#include "audit/installed_places.h"
#include "audit/suite_family.h"

namespace attest {
namespace {

std::vector<SuiteCase> FromSpecs(const std::string& suite, const FamilySpecs& specs,
                                 std::uint64_t seed) {
  std::vector<SuiteCase> cases;
  std::set<std::string> seen;  // a case that two families ask for runs once
  for (const FamilySpec& s : specs) {
    if (!seen.insert(NameOf(s.spec)).second) continue;
    cases.push_back({suite, s.family, MakeCase(s.spec, seed)});
  }
  return cases;
}

}  // namespace

const std::vector<SuiteInfo>& Suites() {
  static const std::vector<SuiteInfo> suites{
      {"quick",
       "generated: tails, masks, windows, ranges of scores, gradients, and every two features"},
      {"standard", "quick, every length to 257 and rows to 4096 keys"},
      {"real", "activations of a trained sentence encoder on English sentences of 5 to 128 tokens"},
      {"onnx", "node tests of ONNX in --cases DIR: Attention 23 and 24, Softmax, LogSoftmax"},
  };
  return suites;
}

StatusOr<std::vector<SuiteCase>> MakeSuite(const std::string& name, std::uint64_t seed) {
  if (name == "quick") return FromSpecs(name, QuickSpecs(), seed);
  if (name == "standard") return FromSpecs(name, StandardSpecs(), seed);
  if (name == "real") {
    StatusOr<std::filesystem::path> directory = ShippedCases("use_lite");
    if (!directory.ok()) return directory.status();
    StatusOr<std::vector<SuiteCase>> cases = ReadCases(*directory);
    if (!cases.ok()) return cases.status();
    for (SuiteCase& c : *cases) c.suite = name;
    return cases;
  }
  if (name == "onnx")
    return InvalidArgument("suite 'onnx': its cases are in a folder that is given");
  std::vector<std::string> names;
  for (const SuiteInfo& suite : Suites()) names.push_back(suite.name);
  return NotFound(fmt::format("no suite '{}' (known: {})", name, fmt::join(names, ", ")));
}

StatusOr<std::vector<SuiteCase>> MakeSuites(const std::vector<std::string>& names,
                                            std::uint64_t seed) {
  std::vector<SuiteCase> all;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) continue;
    StatusOr<std::vector<SuiteCase>> cases = MakeSuite(name, seed);
    if (!cases.ok()) return cases.status();
    std::move(cases->begin(), cases->end(), std::back_inserter(all));
  }
  return all;
}

StatusOr<std::vector<SuiteCase>> ReadCases(const std::filesystem::path& directory,
                                           const std::optional<std::filesystem::path>& contract) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_regular_file(directory, error)) {
    files.push_back(directory);
  } else {
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".safetensors" || extension == ".npz") files.push_back(entry.path());
    }
  }
  if (error) return NotFound(fmt::format("{}: {}", directory.string(), error.message()));
  if (files.empty()) {
    return NotFound(fmt::format("{}: no .safetensors or .npz case in it", directory.string()));
  }
  std::sort(files.begin(), files.end());
  std::map<std::string, CaseEntry> index;
  const bool alone = std::filesystem::is_regular_file(directory, error);
  const StatusOr<std::vector<CaseEntry>> entries =
      ReadCaseIndex(alone ? directory.parent_path() : directory);
  if (!entries.ok() && entries.status().code() != StatusCode::kNotFound) return entries.status();
  if (entries.ok()) {
    for (const CaseEntry& entry : *entries) index.emplace(entry.file, entry);
  }
  std::vector<SuiteCase> cases;
  for (const std::filesystem::path& file : files) {
    StatusOr<Case> problem = ReadCase(file, contract);
    if (!problem.ok()) return problem.status();
    const auto known = index.find(file.filename().string());
    const std::string suite = known == index.end() ? "files" : known->second.suite;
    const std::string family = known == index.end() ? problem->name : known->second.family;
    cases.push_back({suite, family, *std::move(problem)});
  }
  return cases;
}

StatusOr<std::filesystem::path> ShippedCases(const std::string& name) {
  const std::vector<std::filesystem::path> roots =
      PlacesOf("ATTEST_CASES", "share/attest/cases", ATTEST_SOURCE_CASES);
  for (const std::filesystem::path& root : roots) {
    if (std::filesystem::is_directory(root / name)) return root / name;
  }
  return NotFound(
      fmt::format("no shipped cases '{}' in {} (set ATTEST_CASES to their folder)", name,
                  fmt::join(std::vector<std::string>(roots.begin(), roots.end()), ", ")));
}

}  // namespace attest
