// SPDX-License-Identifier: Apache-2.0
// The program that loads a plug-in and answers the line protocol for it (docs/plugins.md), so that
// a plug-in that crashes, hangs or exits ends this process only.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/plugin_library.h"
#include "core/case.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/safetensors.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr int kFailure = 2;  // exit status: bad usage, or a library that cannot be loaded

// Lines in, lines out, on descriptors of our own: standard input and output are the plug-in's.
class Conversation {
 public:
  Conversation(int in, int out) : in_(in), out_(out) {}

  // Nothing at the end of input; a last line without its end is none.
  std::optional<std::string> Read() {
    std::size_t searched = 0;
    while (true) {
      const std::size_t end = pending_.find('\n', searched);
      if (end != std::string::npos) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return line;
      }
      searched = pending_.size();
      std::array<char, 4096> bytes{};
      const ssize_t got = ::read(in_, bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      pending_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }

  // Whether somebody still listens.
  bool Write(const ordered_json& answer) const {
    const std::string line =
        answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t put = ::write(out_, rest.data(), rest.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return false;
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
  }

 private:
  int in_;
  int out_;
  std::string pending_;
};

struct Request {
  bool info = false;
  std::string case_file;
  std::string result_file;
  CallOptions options;
};

StatusOr<Request> ParseRequest(std::string_view line) {
  const StatusOr<nlohmann::json> json = ParseStrictJson(line);
  if (!json.ok()) return json.status();
  ObjectReader reader(*json, "");
  Request request;
  reader.ReadBool("info", &request.info);
  reader.ReadText("case", &request.case_file);
  reader.ReadText("result", &request.result_file);
  Index threads = 1;
  reader.ReadIndex("threads", &threads);
  if (threads < 1 || threads > std::numeric_limits<std::int32_t>::max()) {
    reader.Fail("threads", "at least 1 was expected");
  }
  request.options.threads = static_cast<int>(threads);
  std::vector<std::string_view> layouts;
  for (const Layout layout : kLayouts) layouts.push_back(NameOf(layout));
  int position = 0;
  reader.ReadChoice("layout", layouts, &position);
  request.options.layout = kLayouts[static_cast<std::size_t>(position)];
  position = 0;
  reader.ReadChoice("junk", {"nan", "huge"}, &position);
  request.options.junk = position == 0 ? Junk::kNaN : Junk::kHuge;
  if (!request.info && request.case_file.empty()) reader.Fail("case", "a path was expected");
  if (!request.info && request.result_file.empty()) reader.Fail("result", "a path was expected");
  if (const Status status = reader.Finish(); !status.ok()) return status;
  return request;
}

ordered_json ErrorAnswer(const std::string& message) {
  return {{"status", "error"}, {"message", message}};
}

ordered_json InfoAnswer(const PluginLibrary& plugin) {
  if (plugin.info_text().empty()) return {{"status", "unsupported"}};
  return {{"status", "ok"}, {"info", ordered_json::parse(plugin.info_text())}};
}

ordered_json CaseAnswer(const PluginLibrary& plugin, const Request& request) {
  const StatusOr<Case> problem = ReadCase(request.case_file);
  if (!problem.ok()) return ErrorAnswer(problem.status().message());
  Outcome outcome = plugin.Run(*problem, request.options);
  ordered_json answer;
  if (outcome.kind == Outcome::Kind::kOk) {
    const Status written = WriteSafetensors(request.result_file, {std::move(outcome.outputs), {}},
                                            Durability::kTemporary);
    answer = written.ok() ? ordered_json{{"status", "ok"}} : ErrorAnswer(written.message());
  } else {
    const bool unsupported = outcome.kind == Outcome::Kind::kUnsupported;
    answer["status"] = unsupported ? "unsupported" : outcome.code;
    answer["message"] = outcome.message;
  }
  for (const Complaint& complaint : outcome.complaints) {
    answer["complaints"].push_back({{"code", complaint.code}, {"message", complaint.message}});
  }
  return answer;
}

ordered_json Answer(const PluginLibrary& plugin, const std::string& line) {
  try {
    const StatusOr<Request> request = ParseRequest(line);
    if (!request.ok()) return ErrorAnswer("request: " + request.status().message());
    return request->info ? InfoAnswer(plugin) : CaseAnswer(plugin, *request);
  } catch (const std::exception& error) {  // memory that the machine does not have
    return ErrorAnswer(fmt::format("plug-in host: {}", error.what()));
  }
}

// Copies of standard input and output that the plug-in's children do not inherit; what the plug-in
// itself reads is empty. (PluginLibrary keeps what it writes.)
std::optional<Conversation> TakeStandardStreams() {
  const int in = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int empty = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0 || empty < 0 || ::dup2(empty, STDIN_FILENO) < 0) return std::nullopt;
  ::close(empty);
  return Conversation(in, out);
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: attest_plugin_host LIBRARY.so\n", stderr);
    return kFailure;
  }
  // A limit of 1 byte and not 0: that one is ignored where dumps are piped to a program (core(5)).
  const rlimit no_dump{1, 1};
  ::setrlimit(RLIMIT_CORE, &no_dump);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  std::optional<Conversation> conversation = TakeStandardStreams();
  if (!conversation) {
    std::perror("attest_plugin_host");
    return kFailure;
  }
  const StatusOr<std::unique_ptr<PluginLibrary>> plugin = PluginLibrary::Load(argv[1]);
  while (const std::optional<std::string> line = conversation->Read()) {
    if (!plugin.ok()) {
      conversation->Write(ErrorAnswer(plugin.status().message()));
      return kFailure;
    }
    if (!conversation->Write(Answer(**plugin, *line))) return kFailure;
  }
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) { return attest::Main(argc, argv); }
