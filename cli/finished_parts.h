// SPDX-License-Identifier: Apache-2.0
// What a report that was stopped had finished, for the next run to go on from.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace attest {

// Records in a folder, one file each, which appear when they are complete. They belong to one run:
// the same executable, options and seed.
class FinishedParts {
 public:
  // Opens `folder`, and empties it if what it holds belongs to another run or if `restart` is set.
  // `options` is everything that decides the records besides the executable.
  static StatusOr<FinishedParts> Open(const std::filesystem::path& folder,
                                      const std::string& options, bool restart);

  // How many parts an earlier run left.
  std::size_t found() const { return found_; }

  // The record of part `name`; empty if there is none, or none that can be read.
  std::optional<nlohmann::ordered_json> Load(const std::string& name) const;
  // The numbers of `record` are kept bit for bit, NaN and infinity too.
  Status Store(const std::string& name, const nlohmann::ordered_json& record) const;

  // Removes these records, and the folder with the last one: a report has them.
  Status Remove(const std::vector<std::string>& names) const;

 private:
  std::filesystem::path FileOf(const std::string& name) const;

  std::filesystem::path folder_;
  std::size_t found_ = 0;
};

}  // namespace attest
