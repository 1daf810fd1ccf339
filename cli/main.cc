// SPDX-License-Identifier: Apache-2.0
// The `attest` command: parses, calls, prints.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <thread>
#include <utility>

#include "audit/process_subject.h"
#include "cli/command.h"
#include "core/build_info.h"
#include "core/file_io.h"

namespace attest {

namespace {
bool progress_open = false;  // a progress line that has no newline yet
}

int Fail(const Status& status) {
  if (std::exchange(progress_open, false)) fmt::print(stderr, "\n");
  fmt::print(stderr, "attest: {}\n", Printable(status.message()));
  return kExitUsage;
}

Status PrepareDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && !std::filesystem::is_directory(directory)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error && access(directory.c_str(), W_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) return InvalidArgument(directory + ": cannot be written: " + error.message());
  return Status();
}

Status PrepareFile(const std::string& file) { return OutputFile::Create(file).status(); }

void ShowProgress(const std::string& what, std::size_t done, std::size_t all) {
  if (isatty(STDERR_FILENO) == 0) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  fmt::print(stderr, "\r\x1b[K{} {}/{}{}", what, done, all, done == all ? "\n" : "");
  std::fflush(stderr);
  progress_open = done != all;
}

namespace {

// A decimal number below 2^64; CLI11 by itself takes "-1" as well.
std::string CheckSeed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? "" : "expected a number from 0 to 2^64 - 1, found " + text;
}

// As typed, quoted where a shell needs it.
std::string CommandLine(int argc, char** argv) {
  std::string line = "attest";
  for (int i = 1; i < argc; ++i) line += " " + ShellQuoted(argv[i]);
  return line;
}

int Main(int argc, char** argv) {
  CommonOptions common;
  common.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  common.command_line = CommandLine(argc, argv);
  CLI::App app{"Attest verifies attention numerics."};
  app.set_version_flag("--version",
                       fmt::format("attest {} ({}, {})", kAttestVersion, kGitState, kCompiler));
  app.require_subcommand(1);
  app.fallthrough();  // common options may follow the subcommand
  app.add_option("--seed", common.seed, "Decides every random input (default 0)")->check(CheckSeed);
  app.add_option("--threads", common.threads,
                 "Threads of the reference; results do not depend on it")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--json", common.json, "Print the machine-readable result to standard output");
  app.footer(
      "Exit status: 0 all conforms, 1 the audit found something, 2 bad usage or input.\n"
      "Examples:\n"
      "  attest list kernels\n"
      "  attest audit --kernel tiled --suite quick\n"
      "  attest reference case.safetensors --what out,lse\n"
      "  attest experiment saturation\n"
      "  attest export --suite quick --out cases\n"
      "  attest report --quick --out out/report\n"
      "  attest bench --quick");
  int exit_status = kExitConforms;
  AddListCommand(app, common, &exit_status);
  AddReferenceCommand(app, common, &exit_status);
  AddAuditCommand(app, common, &exit_status);
  AddExperimentCommand(app, common, &exit_status);
  AddExportCommand(app, common, &exit_status);
  AddReportCommand(app, common, &exit_status);
  AddBenchCommand(app, common, &exit_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      const std::string first = argc > 1 ? argv[1] : "-";
      const bool unknown =
          !first.starts_with('-') &&
          app.get_subcommands([&](const CLI::App* command) { return command->get_name() == first; })
              .empty();
      return Fail(
          InvalidArgument(unknown ? fmt::format("unknown command '{}' (see attest --help)", first)
                                  : fmt::format("{} (see attest --help)", error.what())));
    }
    app.exit(error);  // --help, --version
  }
  std::cout.flush();  // CLI11 prints there, everything else by stdio
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    return Fail(Internal("standard output: cannot be written"));
  }
  return exit_status;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  try {
    return attest::Main(argc, argv);
  } catch (const std::system_error&) {  // of fmt::print, as soon as a buffer is full
    fmt::print(stderr, "attest: standard output: cannot be written\n");
    return attest::kExitUsage;
  } catch (const std::exception& error) {  // memory that the machine does not have
    fmt::print(stderr, "attest: {}\n", error.what());
    return attest::kExitUsage;
  }
}
