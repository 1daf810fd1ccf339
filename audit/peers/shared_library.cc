// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/shared_library.h"

#include <dlfcn.h>

#include <cfenv>
#include <cstdlib>
#include <system_error>

#include "core/fp_environment.h"

namespace attest {

StatusOr<SharedLibrary> SharedLibrary::Open(const std::string& name) {
  std::fenv_t state;
  std::fegetenv(&state);
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  const bool changed = !CheckFloatingPointEnvironment().ok();
  std::fesetenv(&state);
  if (handle == nullptr) {
    const char* error = dlerror();
    return NotFound(error != nullptr ? error : name + ": cannot be loaded");
  }
  SharedLibrary library(handle);
  library.changed_fp_state_ = changed;
  return library;
}

void* SharedLibrary::Address(const char* name) const { return dlsym(handle_, name); }

std::optional<std::filesystem::path> FindPeerFile(const std::filesystem::path& in_node_modules) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto below = [&](const fs::path& peers) -> std::optional<fs::path> {
    const fs::path file = peers / "node_modules" / in_node_modules;
    return fs::exists(file, error) ? std::optional(file) : std::nullopt;
  };
  if (const char* peers = std::getenv("ATTEST_PEERS"); peers != nullptr && *peers != '\0') {
    return below(peers);
  }
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  while (!folder.empty()) {
    if (const auto file = below(folder / "peers")) return file;
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return std::nullopt;
}

}  // namespace attest
