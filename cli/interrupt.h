// SPDX-License-Identifier: Apache-2.0
// Ctrl-C while long work runs: asks it to stop instead of ending the process.
#pragma once

#include <csignal>

namespace attest {

// The exit status of a command that SIGINT stopped, as shells count (128 + the signal).
inline constexpr int kExitInterrupted = 130;

// While one exists, the first SIGINT only sets a flag that the work polls; a second one ends the
// process at once. A process that ignores SIGINT goes on ignoring it. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool Requested();

 private:
  struct sigaction previous_{};
};

}  // namespace attest
