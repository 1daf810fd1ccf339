// SPDX-License-Identifier: Apache-2.0
#include "audit/process_subject.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "audit/capabilities.h"
#include "audit/child_process.h"
#include "audit/installed_places.h"
#include "audit/line_answer.h"
#include "audit/probe.h"
#include "core/file_io.h"

namespace attest {
namespace {

using nlohmann::json;

// A directory of its own for the files of one subject, in memory where the machine offers that.
class ScratchDirectory {
 public:
  static StatusOr<ScratchDirectory> Make() {
    const char* const given = std::getenv("TMPDIR");
    std::string root = given != nullptr ? given : "/dev/shm";
    if (given == nullptr && ::access(root.c_str(), W_OK) != 0) root = "/tmp";
    std::string name = root + "/attest-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      return Internal(
          fmt::format("{}: no directory can be made in it: {}", root, std::strerror(errno)));
    }
    return ScratchDirectory(std::filesystem::absolute(name));
  }
  ScratchDirectory(ScratchDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// What is started, and what it is called in messages.
struct Program {
  std::vector<std::string> arguments;
  std::string what;  // "--exec 'python3 my_adapter.py'"
  bool hosts_plugin = false;
};

std::uint64_t MemoryLimit(const ProcessLimits& limits) {
  if (limits.memory_bytes > 0) return limits.memory_bytes;
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
}

class ProcessSubject : public Subject {
 public:
  static StatusOr<std::unique_ptr<Subject>> Make(Program program, const ProcessLimits& limits) {
    StatusOr<ScratchDirectory> directory = ScratchDirectory::Make();
    if (!directory.ok()) return directory.status();
    std::unique_ptr<ProcessSubject> subject(
        new ProcessSubject(std::move(program), limits, *std::move(directory)));
    if (Status s = subject->Introduce(); !s.ok()) return s;
    return std::unique_ptr<Subject>(std::move(subject));
  }

  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions& options) const override {
    if (const std::optional<std::string> missing = MissingFor(problem, capabilities_)) {
      return Outcome::Unsupported(*missing);
    }
    if (std::optional<Outcome> failed = EnsureStarted()) return *std::move(failed);
    ++calls_;
    const std::filesystem::path in = directory_.path() / fmt::format("{}.safetensors", calls_);
    const std::filesystem::path result =
        directory_.path() / fmt::format("{}.result.safetensors", calls_);
    if (Status s = WriteCase(in, problem, Durability::kTemporary); !s.ok()) {
      return {.kind = Outcome::Kind::kUnreadable, .message = s.message()};
    }
    json request{{"case", in.string()}, {"result", result.string()}, {"threads", options.threads}};
    if (program_.hosts_plugin) {
      request["layout"] = NameOf(options.layout);
      request["junk"] = options.junk == Junk::kNaN ? "nan" : "huge";
    }
    Outcome outcome = Ask(request.dump(), problem, result);
    // What a trial's call was complained of is told with the audit's first.
    std::vector<Complaint>& complaints = outcome.complaints;
    if (in_trials_) {
      std::move(complaints.begin(), complaints.end(), std::back_inserter(complaints_of_trials_));
    } else if (outcome.kind == Outcome::Kind::kOk) {
      std::move(complaints_of_trials_.begin(), complaints_of_trials_.end(),
                std::back_inserter(complaints));
      complaints_of_trials_.clear();
    }
    std::error_code ignored;
    std::filesystem::remove(in, ignored);
    std::filesystem::remove(result, ignored);
    return outcome;
  }

 private:
  ProcessSubject(Program program, const ProcessLimits& limits, ScratchDirectory directory)
      : program_(std::move(program)),
        seconds_(limits.seconds),
        memory_bytes_(MemoryLimit(limits)),
        directory_(std::move(directory)) {}

  // The outcome of an answer that is none; the process is gone afterwards.
  Outcome Broken(const ChildProcess::Answer& answer) const {
    using End = ChildProcess::End;
    const std::string last = child_->LastError();
    exit_status_ = child_->exit_status();
    child_.reset();
    const auto shown = [&] { return Quoted(answer.text); };
    switch (answer.end) {
      case End::kEnded:
        return Outcome::Failed("crash",
                               fmt::format("the process {}{}{}", answer.text,
                                           last.empty() ? "" : "; standard error: ", last));
      case End::kTimeout:
        return Outcome::Failed("timeout", fmt::format("no answer within {} s", seconds_));
      case End::kMemory:
        return Outcome::Failed("memory",
                               fmt::format("took more than {} MiB of memory", memory_bytes_ >> 20));
      case End::kEndless:
        return Outcome::Failed("garbage", fmt::format("answered {} bytes without the end of a line",
                                                      ChildProcess::kLongestLine));
      case End::kUnasked:
        return Outcome::Failed("garbage", "wrote to standard output unasked: " + shown());
      case End::kAnswered:
        break;
    }
    return Outcome::Failed("garbage", "answered " + shown() +
                                          ", a JSON object with \"status\" was "
                                          "expected");
  }

  // Nothing, with *failure set, where the answer is none.
  std::optional<LineAnswer> Exchange(const std::string& line, Outcome* failure) const {
    const ChildProcess::Answer answer = child_->Ask(line, seconds_, memory_bytes_);
    if (answer.end == ChildProcess::End::kAnswered) {
      std::optional<LineAnswer> parsed = ParseLineAnswer(answer.text, program_.hosts_plugin);
      if (parsed) return parsed;
    }
    *failure = Broken(answer);
    return std::nullopt;
  }

  // Starts a process where none runs, and takes its answer to the first line. What it says of
  // itself counts only once.
  std::optional<Outcome> EnsureStarted() const {
    if (child_) return std::nullopt;
    StatusOr<ChildProcess> child = ChildProcess::Start(program_.arguments);
    if (!child.ok()) {
      return Outcome{.kind = Outcome::Kind::kUnreadable, .message = child.status().message()};
    }
    child_.emplace(*std::move(child));
    Outcome failure;
    first_answer_ = Exchange(R"({"info":true})", &failure);
    if (first_answer_) return std::nullopt;
    failure.at_start = true;
    failure.message = "at its start " + failure.message;
    return failure;
  }

  Outcome Ask(const std::string& request, const Case& problem,
              const std::filesystem::path& result) const {
    Outcome failure;
    std::optional<LineAnswer> answer = Exchange(request, &failure);
    if (!answer) return failure;
    const std::string message = answer->message.empty() ? "no reason given" : answer->message;
    switch (answer->kind) {
      case LineAnswer::Kind::kUnsupported:
        return Outcome::Unsupported(message);
      case LineAnswer::Kind::kError:
        return Outcome::Failed("error", message);
      case LineAnswer::Kind::kTrespass:
        return Outcome::Failed("trespass", message);
      case LineAnswer::Kind::kOk:
        break;
    }
    std::error_code error;
    if (!std::filesystem::exists(result, error)) {
      return Outcome::Failed("bad-result", "answered ok, but there is no result file");
    }
    StatusOr<TensorMap> outputs = ReadResult(result, problem);
    if (!outputs.ok()) {
      // Names of scratch files differ from run to run.
      std::string text = outputs.status().message();
      if (text.starts_with(result.string())) text.replace(0, result.string().size(), "result file");
      return Outcome::Failed("bad-result", text);
    }
    Outcome outcome = Outcome::Ok(*std::move(outputs));
    outcome.complaints = std::move(answer->complaints);
    return outcome;
  }

  // The first start: what the implementation declares, then what it does not.
  Status Introduce() {
    const std::optional<Outcome> failure = EnsureStarted();
    if (failure && failure->kind == Outcome::Kind::kUnreadable) return Internal(failure->message);
    // A shell that finds no such command.
    if (failure && (exit_status_ == 126 || exit_status_ == 127)) {
      return NotFound(fmt::format("{}: cannot be run: {}", program_.what, failure->message));
    }
    if (failure) {
      info_.assumptions.push_back("no info: " + failure->message);
    } else {
      if (first_answer_->kind == LineAnswer::Kind::kError) {
        return InvalidArgument(fmt::format("{}: {}", program_.what, first_answer_->message));
      }
      if (first_answer_->kind == LineAnswer::Kind::kOk && !first_answer_->info.empty()) {
        StatusOr<Capabilities> declared = ParseCapabilities(first_answer_->info);
        if (!declared.ok()) {
          return InvalidArgument(fmt::format("{}: {}", program_.what, declared.status().message()));
        }
        capabilities_ = *std::move(declared);
      } else {
        info_.assumptions.push_back("no info: the implementation declares nothing");
      }
    }
    if (!program_.hosts_plugin) capabilities_.layouts = NameSet{"dense"};
    // A process that does not even start is not tried further; the audit will tell.
    if (!failure) Probe(*this, &capabilities_, &info_.assumptions);
    in_trials_ = false;
    FillInfo();
    return Status();
  }

  void FillInfo() {
    info_.name = info_.description = program_.what;
    Declare(capabilities_, &info_);
    info_.deterministic = capabilities_.deterministic;
    info_.batch_invariant = capabilities_.batch_invariant;
    info_.threaded = true;
    info_.strided = capabilities_.layouts && capabilities_.layouts->size() > 1;
  }

  const Program program_;
  const double seconds_;
  const std::uint64_t memory_bytes_;
  const ScratchDirectory directory_;
  Capabilities capabilities_;
  SubjectInfo info_;
  mutable std::optional<ChildProcess> child_;
  mutable std::optional<LineAnswer> first_answer_;
  mutable std::optional<int> exit_status_;  // of the last process that ended by itself
  mutable std::size_t calls_ = 0;
  bool in_trials_ = true;
  mutable std::vector<Complaint> complaints_of_trials_;
};

}  // namespace

StatusOr<std::unique_ptr<Subject>> MakeExecSubject(const std::string& command,
                                                   const ProcessLimits& limits) {
  return ProcessSubject::Make({{"/bin/sh", "-c", command}, "--exec '" + Printable(command) + "'"},
                              limits);
}

StatusOr<std::unique_ptr<Subject>> MakePluginSubject(const std::filesystem::path& library,
                                                     const ProcessLimits& limits) {
  const StatusOr<std::filesystem::path> host = PluginHost();
  if (!host.ok()) return host.status();
  return ProcessSubject::Make(
      {{host->string(), library.string()}, "--plugin " + Printable(library.string()), true},
      limits);
}

std::string ShellQuoted(const std::string& argument) {
  const bool plain = !argument.empty() &&
                     argument.find_first_of(" \t\n\"'\\$`*?[](){}<>|&;!#~") == std::string::npos;
  if (plain) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

StatusOr<std::filesystem::path> PluginHost() {
  const std::vector<std::filesystem::path> places =
      PlacesOf("ATTEST_PLUGIN_HOST", "libexec/attest/attest_plugin_host", ATTEST_BUILT_PLUGIN_HOST);
  for (const std::filesystem::path& place : places) {
    if (::access(place.c_str(), X_OK) == 0) return place;
  }
  return NotFound(fmt::format("no plug-in host: {} is not there (set ATTEST_PLUGIN_HOST)",
                              places.back().string()));
}

}  // namespace attest
