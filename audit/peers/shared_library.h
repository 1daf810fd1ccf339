// SPDX-License-Identifier: Apache-2.0
// Finding and loading a peer's shared library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/status.h"

namespace attest {

// A library that stays loaded until the process ends.
class SharedLibrary {
 public:
  // `name`: a path, or a name that the system's loader looks up. The floating-point state is as it
  // was afterwards, whatever the library's initialisers did to it.
  static StatusOr<SharedLibrary> Open(const std::string& name);

  bool changed_fp_state() const { return changed_fp_state_; }

  // Sets *function, a pointer to a function; false where the library has none of this name.
  template <class Function>
  bool Find(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(Address(name));
    return *function != nullptr;
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* Address(const char* name) const;

  void* handle_;
  bool changed_fp_state_ = false;
};

// Where `make peers` puts packages of npm: $ATTEST_PEERS, or else the folder peers/ beside this
// program or beside a folder that the program lies in. A file below its node_modules/, if it
// exists.
std::optional<std::filesystem::path> FindPeerFile(const std::filesystem::path& in_node_modules);

}  // namespace attest
