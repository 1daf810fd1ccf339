// SPDX-License-Identifier: Apache-2.0
// Standard output while foreign code runs in this process: kept away from whoever reads it, and
// looked at.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/status.h"

namespace attest {

// While one exists, what the process writes to standard output (descriptor 1) goes to memory.
class OutputCapture {
 public:
  static StatusOr<std::unique_ptr<OutputCapture>> Start();
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;
  // Standard output is again what it was.
  ~OutputCapture();

  // What was written since the last time, C's and C++'s buffers included, as 'wrote 5 bytes to
  // standard output: "hello"', cut after about 100 bytes; empty where nothing was written. Writing
  // more than 1 MiB between two looks fails for the writer.
  std::string Take();

 private:
  OutputCapture(int original, int memory) : original_(original), memory_(memory) {}

  int original_;
  int memory_;
};

}  // namespace attest
