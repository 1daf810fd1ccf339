// SPDX-License-Identifier: Apache-2.0
#include "cli/finished_parts.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "core/file_io.h"

namespace attest {
namespace {

constexpr std::string_view kRunFile = "run";
constexpr std::string_view kExtension = ".cbor";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

Status CannotUse(const std::filesystem::path& folder, const std::error_code& error) {
  return Internal(fmt::format("{}: cannot be used: {}", folder.string(), error.message()));
}

// What tells runs apart: another build may give other records.
StatusOr<std::string> RunOf(const std::string& options) {
  StatusOr<std::string> executable = ReadWholeFile("/proc/self/exe", kMostBytes);
  if (!executable.ok()) return executable.status();
  return Sha256(std::as_bytes(std::span(*executable))) + "\n" + options + "\n";
}

StatusOr<std::size_t> CountRecords(const std::filesystem::path& folder) {
  std::size_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    count += entry.path().extension() == kExtension ? 1 : 0;
  }
  if (error) return CannotUse(folder, error);
  return count;
}

}  // namespace

StatusOr<FinishedParts> FinishedParts::Open(const std::filesystem::path& folder,
                                            const std::string& options, bool restart) {
  StatusOr<std::string> run = RunOf(options);
  if (!run.ok()) return run.status();
  const std::filesystem::path run_file = folder / kRunFile;
  FinishedParts parts;
  parts.folder_ = folder;
  std::error_code error;
  const StatusOr<std::string> before = ReadWholeFile(run_file, kMostBytes);
  if (!restart && before.ok() && *before == *run) {
    const StatusOr<std::size_t> found = CountRecords(folder);
    if (!found.ok()) return found.status();
    parts.found_ = *found;
    return parts;
  }
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) return CannotUse(folder, error);
  if (Status s = WriteWholeFile(run_file, *run); !s.ok()) return s;
  return parts;
}

std::filesystem::path FinishedParts::FileOf(const std::string& name) const {
  // Names of implementations may hold anything; two of them never share a digest.
  std::string file;
  for (const char c : name) {
    file += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '@' ? c : '_';
  }
  const std::string digest = Sha256(std::as_bytes(std::span(name)));
  return folder_ / fmt::format("{:.80}-{:.8}{}", file, digest, kExtension);
}

std::optional<nlohmann::ordered_json> FinishedParts::Load(const std::string& name) const {
  const StatusOr<std::string> bytes = ReadWholeFile(FileOf(name), kMostBytes);
  if (!bytes.ok()) return std::nullopt;
  nlohmann::ordered_json record = nlohmann::ordered_json::from_cbor(*bytes, true, false);
  if (!record.is_object()) return std::nullopt;
  return record;
}

Status FinishedParts::Store(const std::string& name, const nlohmann::ordered_json& record) const {
  const std::vector<std::uint8_t> bytes = nlohmann::ordered_json::to_cbor(record);
  return WriteWholeFile(
      FileOf(name), std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Status FinishedParts::Remove(const std::vector<std::string>& names) const {
  std::error_code error;
  for (const std::string& name : names) {
    std::filesystem::remove(FileOf(name), error);
    if (error) return CannotUse(folder_, error);
  }
  const StatusOr<std::size_t> left = CountRecords(folder_);
  if (!left.ok()) return left.status();
  if (*left == 0) std::filesystem::remove_all(folder_, error);
  return error ? CannotUse(folder_, error) : Status();
}

}  // namespace attest
