// SPDX-License-Identifier: Apache-2.0
#include "audit/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "core/file_io.h"

namespace attest {
namespace {

constexpr double kSecondsBetweenLooks = 0.05;  // at the memory
constexpr std::size_t kErrorTail = 4096;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A write to a pipe whose reader is gone raises SIGPIPE, which would end this process. While this
// lives the signal is blocked in this thread, and one that comes is taken back.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
  }
  ~WithoutSigpipe() {
    if (!was_pending_) {
      const timespec none{};
      while (sigtimedwait(&pipe_, nullptr, &none) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t old_{};
  bool was_pending_ = false;
};

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    if (write_end >= 0) ::close(write_end);
  }
  bool Open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
};

// Process group and resident pages of a process; nothing when it has gone.
struct ProcessStatus {
  pid_t group;
  std::uint64_t pages;
};
std::optional<ProcessStatus> StatusOf(const std::filesystem::path& directory) {
  std::ifstream file(directory / "stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  ProcessStatus status{};
  // Fields 3 to 24 of proc(5): the group is the fifth, the resident pages are the last of them.
  for (int number = 3; number <= 24 && fields >> field; ++number) {
    if (number == 5) status.group = static_cast<pid_t>(std::stol(field));
    if (number == 24) status.pages = std::stoull(field);
  }
  return status;
}

}  // namespace

StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments) {
  Pipe input;
  Pipe output;
  Pipe errors;
  if (!input.Open() || !output.Open() || !errors.Open()) {
    return Internal(fmt::format("no pipe for {}: {}", arguments.front(), std::strerror(errno)));
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    return Internal(fmt::format("no process for {}: {}", arguments.front(), std::strerror(errno)));
  }
  if (pid == 0) {
    // Only what is safe between fork and exec.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(input.read_end, STDIN_FILENO);
    ::dup2(output.write_end, STDOUT_FILENO);
    ::dup2(errors.write_end, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
    ::execvp(argv.front(), argv.data());
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // also here, so that it holds whoever comes first
  ChildProcess child;
  child.pid_ = pid;
  child.input_ = std::exchange(input.write_end, -1);
  child.output_ = std::exchange(output.read_end, -1);
  child.errors_ = std::exchange(errors.read_end, -1);
  for (const int descriptor : {child.input_, child.output_, child.errors_}) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  }
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  Kill();
  pid_ = std::exchange(other.pid_, -1);
  input_ = std::exchange(other.input_, -1);
  output_ = std::exchange(other.output_, -1);
  errors_ = std::exchange(other.errors_, -1);
  pending_ = std::move(other.pending_);
  error_tail_ = std::move(other.error_tail_);
  exit_status_ = other.exit_status_;
  next_look_ = other.next_look_;
  return *this;
}

void ChildProcess::Kill() {
  for (int* descriptor : {&input_, &output_, &errors_}) {
    if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
  }
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
}

bool ChildProcess::Drain(int descriptor, std::string* text) {
  std::array<char, 4096> buffer;
  while (text->size() <= kLongestLine) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    text->append(buffer.data(), static_cast<std::size_t>(count));
  }
  return true;
}

void ChildProcess::WaitForPipes(bool to_write, double deadline) {
  std::array<pollfd, 3> pipes{
      {{output_, POLLIN, 0}, {errors_, POLLIN, 0}, {to_write ? input_ : -1, POLLOUT, 0}}};
  const double seconds = std::clamp(deadline - Now(), 0.0, kSecondsBetweenLooks);
  ::poll(pipes.data(), pipes.size(), static_cast<int>(seconds * 1000.0) + 1);
  if (errors_ >= 0 && pipes[1].revents != 0) {
    if (!Drain(errors_, &error_tail_)) ::close(std::exchange(errors_, -1));
    if (error_tail_.size() > kErrorTail) error_tail_.erase(0, error_tail_.size() - kErrorTail);
  }
}

bool ChildProcess::HoldsMoreThan(std::uint64_t memory_bytes) {
  if (Now() < next_look_) return false;
  next_look_ = Now() + kSecondsBetweenLooks;
  return ResidentBytes() > memory_bytes;
}

bool ChildProcess::Give(const std::string& line, double deadline, std::uint64_t memory_bytes,
                        End* end) {
  const WithoutSigpipe quiet;
  std::size_t given = 0;
  while (given < line.size()) {
    const ssize_t count = ::write(input_, line.data() + given, line.size() - given);
    if (count >= 0) {
      given += static_cast<std::size_t>(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      *end = End::kEnded;
      return false;
    } else if (Now() > deadline) {
      *end = End::kTimeout;
      return false;
    } else if (HoldsMoreThan(memory_bytes)) {
      *end = End::kMemory;
      return false;
    } else {
      WaitForPipes(true, deadline);
    }
  }
  return true;
}

ChildProcess::Answer ChildProcess::Ask(const std::string& line, double seconds,
                                       std::uint64_t memory_bytes) {
  const double deadline = Now() + seconds;
  next_look_ = Now() + kSecondsBetweenLooks;
  bool open = Drain(output_, &pending_);
  if (!pending_.empty()) return {End::kUnasked, std::exchange(pending_, "")};
  End end = End::kAnswered;
  if (open && !Give(line + "\n", deadline, memory_bytes, &end) && end != End::kEnded) return {end};
  std::size_t searched = 0;
  while (true) {
    open = Drain(output_, &pending_);
    const std::size_t line_end = pending_.find('\n', searched);
    if (line_end != std::string::npos) {
      Answer answer{End::kAnswered, pending_.substr(0, line_end)};
      pending_.erase(0, line_end + 1);
      return answer;
    }
    searched = pending_.size();
    if (searched > kLongestLine) return {End::kEndless};
    if (!open) {
      const double patience = Now() + 0.1;  // for its last words
      while (errors_ >= 0 && Now() < patience) WaitForPipes(false, patience);
      return {End::kEnded, DescribeEnd()};
    }
    if (Now() > deadline) return {End::kTimeout};
    if (HoldsMoreThan(memory_bytes)) return {End::kMemory};
    WaitForPipes(false, deadline);
  }
}

std::string ChildProcess::DescribeEnd() {
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {
    ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (ended != pid_) return "closed its standard output";
  ::kill(-pid_, SIGKILL);  // what it left behind
  pid_ = -1;
  const auto signal_text = [](int number) {
    return fmt::format("ended by signal {} ({})", number, ::strsignal(number));
  };
  if (WIFSIGNALED(status)) return signal_text(WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  exit_status_ = code;
  // How a shell passes a signal on.
  if (code > 128 && code < 128 + SIGRTMIN) return signal_text(code - 128);
  return fmt::format("ended with status {}", code);
}

std::uint64_t ChildProcess::ResidentBytes() const {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t pages = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::optional<ProcessStatus> status = StatusOf(entry.path());
    if (status && status->group == pid_) pages += status->pages;
  }
  return pages * page;
}

std::string ChildProcess::LastError() const {
  std::string text = error_tail_;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  if (text.size() > 200) text.resize(200);
  return Printable(text);
}

}  // namespace attest
