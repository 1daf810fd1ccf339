// SPDX-License-Identifier: Apache-2.0
#include "audit/installed_places.h"

#include <cstdlib>
#include <system_error>

namespace attest {

std::vector<std::filesystem::path> PlacesOf(const char* variable, const char* installed,
                                            const char* built) {
  if (const char* given = std::getenv(variable); given != nullptr) return {given};
  std::vector<std::filesystem::path> places;
  std::error_code error;
  const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) places.push_back(command.parent_path().parent_path() / installed);
  places.emplace_back(built);
  return places;
}

}  // namespace attest
