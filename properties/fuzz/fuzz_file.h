// SPDX-License-Identifier: Apache-2.0
// The bytes of one fuzzing step as a file, because readers take names of files.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace attest {

// A file in memory, reused from step to step.
class FuzzFile {
 public:
  explicit FuzzFile(const char* name) : descriptor_(memfd_create(name, 0)) {
    if (descriptor_ < 0) std::abort();
  }
  std::filesystem::path Hold(const std::uint8_t* data, std::size_t size) {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, data, size, 0) != static_cast<ssize_t>(size)) {
      std::abort();
    }
    return "/proc/self/fd/" + std::to_string(descriptor_);
  }

 private:
  int descriptor_;
};

// What must hold whatever the input is.
inline void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace attest

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
