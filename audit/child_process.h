// SPDX-License-Identifier: Apache-2.0
// A process that answers one line for each line it is given, under limits of time and memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace attest {

class ChildProcess {
 public:
  // What came of a question.
  enum class End {
    kAnswered,  // `text` is the line, without its end
    kEnded,     // the process ended or closed its output; `text` says how
    kTimeout,   // no line within the time limit
    kMemory,    // the process group holds more memory than the limit
    kEndless,   // more than kLongestLine bytes without the end of a line
    kUnasked,   // `text` was written before the question
  };
  struct Answer {
    End end = End::kAnswered;
    std::string text{};
  };
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;

  // Runs a program, found by PATH, in a process group of its own. Its standard input, output and
  // error are pipes; it is ended with the thread that started it.
  static StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess() { Kill(); }

  // Gives it a line and waits for one. After anything but kAnswered the process should be killed.
  Answer Ask(const std::string& line, double seconds, std::uint64_t memory_bytes);

  // The last line that it wrote to standard error, printable and cut to 200 bytes; empty if none.
  std::string LastError() const;

  // The status that it ended with, once an answer was kEnded; nothing where a signal ended it.
  std::optional<int> exit_status() const { return exit_status_; }

  // Whether it has been started and not killed; it may have ended by itself.
  bool running() const { return pid_ > 0; }
  // Ends it and everything in its process group.
  void Kill();

 private:
  ChildProcess() = default;

  // Reads what is there; false at the end of the stream.
  static bool Drain(int descriptor, std::string* text);
  bool Give(const std::string& line, double deadline, std::uint64_t memory_bytes, End* end);
  // Waits for the process, a second at most, and says how it ended.
  std::string DescribeEnd();
  std::uint64_t ResidentBytes() const;
  // Looks from time to time only, because a look costs more than most answers.
  bool HoldsMoreThan(std::uint64_t memory_bytes);
  // Waits until one of its pipes can be used, or until the next look at its memory; keeps what
  // comes from standard error.
  void WaitForPipes(bool to_write, double deadline);

  pid_t pid_ = -1;
  int input_ = -1;          // we write
  int output_ = -1;         // we read
  int errors_ = -1;         // we read
  std::string pending_;     // of output_, not yet a line
  std::string error_tail_;  // of errors_
  std::optional<int> exit_status_;
  double next_look_ = 0.0;  // at its memory
};

}  // namespace attest
