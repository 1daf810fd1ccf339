// SPDX-License-Identifier: Apache-2.0
#include "audit/output_capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <system_error>

#include "core/file_io.h"

namespace attest {
namespace {

constexpr off_t kLimit = off_t{1} << 20;  // bytes; nobody can fill the machine's memory

void FlushBuffers() {
  std::cout.flush();
  std::fflush(nullptr);
}

Status Failed() {
  return Internal(fmt::format("standard output cannot be captured: {}",
                              std::generic_category().message(errno)));
}

}  // namespace

StatusOr<std::unique_ptr<OutputCapture>> OutputCapture::Start() {
  FlushBuffers();
  const int original = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (original < 0) return Failed();
  const int memory = ::memfd_create("attest stdout", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  std::unique_ptr<OutputCapture> capture(new OutputCapture(original, memory));
  if (memory < 0 || ::ftruncate(memory, kLimit) != 0 ||
      ::fcntl(memory, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0 ||
      ::dup2(memory, STDOUT_FILENO) < 0) {
    return Failed();
  }
  return capture;
}

OutputCapture::~OutputCapture() {
  FlushBuffers();
  ::dup2(original_, STDOUT_FILENO);
  ::close(original_);
  if (memory_ >= 0) ::close(memory_);
}

std::string OutputCapture::Take() {
  FlushBuffers();
  // The position is shared by every copy of the descriptor: it is how much was written.
  const off_t written = ::lseek(memory_, 0, SEEK_CUR);
  if (written <= 0) return "";
  std::array<char, 128> first{};
  const ssize_t got =
      ::pread(memory_, first.data(), std::min(first.size(), static_cast<std::size_t>(written)), 0);
  ::lseek(memory_, 0, SEEK_SET);
  return fmt::format(
      "wrote {} bytes to standard output: {}", written,
      Quoted(std::string_view(first.data(), got > 0 ? static_cast<std::size_t>(got) : 0)));
}

}  // namespace attest
