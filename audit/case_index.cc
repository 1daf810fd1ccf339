// SPDX-License-Identifier: Apache-2.0
#include "audit/case_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/file_io.h"
#include "core/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t kIndexSizeLimit = std::uint64_t{1} << 30;
constexpr std::size_t kLongestFileName = 100;
constexpr std::string_view kExtension = ".safetensors";

bool IsPortable(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// A plain name in the directory, of a case.
bool IsCaseFile(const std::string& file) {
  return file.ends_with(kExtension) && file.size() > kExtension.size() && !file.starts_with('.') &&
         std::all_of(file.begin(), file.end(), IsPortable);
}

Status ReadEntry(const json& object, const std::string& path, CaseEntry* entry) {
  ObjectReader reader(object, path);
  for (const auto& [field, value] :
       {std::pair{"file", &entry->file}, std::pair{"name", &entry->name},
        std::pair{"suite", &entry->suite}, std::pair{"family", &entry->family}}) {
    if (!reader.Has(field)) reader.Fail(field, "missing");
    reader.ReadText(field, value);
  }
  if (!IsCaseFile(entry->file)) {
    reader.Fail("file", "expected the name of a .safetensors file, found " + Quoted(entry->file));
  }
  reader.ReadAny("outputs");  // for whoever computes results; the files have them as well
  reader.ReadAny("contract");
  return reader.Finish();
}

StatusOr<std::vector<CaseEntry>> ParseCaseIndex(const std::string& text) {
  StatusOr<json> parsed = ParseStrictJson(text);
  if (!parsed.ok()) return parsed.status();
  ObjectReader reader(*parsed, "");
  Index version = 0;
  reader.ReadIndex("attest_cases", &version);
  if (version != 1) reader.Fail("attest_cases", fmt::format("expected 1, found {}", version));
  reader.ReadAny("manifest");
  const json* list = reader.ReadAny("cases");
  if (list == nullptr || !list->is_array()) reader.Fail("cases", "expected a list");
  if (Status s = reader.Finish(); !s.ok()) return s;
  std::vector<CaseEntry> entries;
  std::set<std::string> files;
  for (const json& object : *list) {
    const std::string path = fmt::format("cases[{}]", entries.size());
    CaseEntry& entry = entries.emplace_back();
    if (Status s = ReadEntry(object, path, &entry); !s.ok()) return s;
    if (!files.insert(entry.file).second) {
      return InvalidArgument(fmt::format("{}.file: {} appears twice", path, Quoted(entry.file)));
    }
  }
  return entries;
}

}  // namespace

std::string CaseFileName(std::size_t position, const std::string& name) {
  std::string file = fmt::format("{:04}", position);
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = IsPortable(name[i]) ? name[i] : '-';
    if (i == 0 && c != '-') file += '-';
    if (c == '-' && file.back() == '-') continue;
    file += c;
  }
  file.resize(std::min(file.size(), kLongestFileName - kExtension.size()));
  while (file.back() == '-' || file.back() == '.') file.pop_back();
  return file + std::string(kExtension);
}

std::vector<CaseEntry> CaseEntries(const std::vector<SuiteCase>& cases) {
  std::vector<CaseEntry> entries;
  for (const SuiteCase& item : cases) {
    entries.push_back({CaseFileName(entries.size() + 1, item.problem.name), item.problem.name,
                       item.suite, item.family});
  }
  return entries;
}

ordered_json CaseIndexToJson(const std::vector<CaseEntry>& entries,
                             const std::vector<SuiteCase>& cases, const ordered_json& manifest) {
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Contract& contract = cases[i].problem.contract;
    list.push_back({{"file", entries[i].file},
                    {"name", entries[i].name},
                    {"suite", entries[i].suite},
                    {"family", entries[i].family},
                    {"outputs", contract.outputs},
                    {"contract", ordered_json::parse(ContractToJson(contract))}});
  }
  return {{"attest_cases", 1}, {"manifest", manifest}, {"cases", std::move(list)}};
}

StatusOr<std::vector<CaseEntry>> ReadCaseIndex(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kCaseIndexFile;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    return NotFound(Printable(file.native()) + ": no such file");
  }
  const StatusOr<std::string> text = ReadWholeFile(file, kIndexSizeLimit);
  if (!text.ok()) return InvalidArgument(text.status().message());
  StatusOr<std::vector<CaseEntry>> entries =
      WithoutExceptions(file, [&] { return ParseCaseIndex(*text); });
  if (entries.ok()) return entries;
  return InvalidArgument(Printable(file.native()) + ": " + entries.status().message());
}

}  // namespace attest
