// SPDX-License-Identifier: Apache-2.0
// What the subcommands of `attest` share: options, exit statuses, progress and printing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "core/status.h"

namespace attest {

// Exit statuses of the command (docs/contract.md).
inline constexpr int kExitConforms = 0;
inline constexpr int kExitFindings = 1;
inline constexpr int kExitUsage = 2;

struct CommonOptions {
  std::uint64_t seed = 0;
  int threads = 1;
  bool json = false;
  std::string command_line;  // as typed, for manifests and reproducers
};

// Each adds one subcommand to `app`; running it sets *exit_status.
void AddListCommand(CLI::App& app, const CommonOptions& common, int* exit_status);
void AddReferenceCommand(CLI::App& app, const CommonOptions& common, int* exit_status);
void AddAuditCommand(CLI::App& app, const CommonOptions& common, int* exit_status);
void AddExperimentCommand(CLI::App& app, const CommonOptions& common, int* exit_status);
void AddExportCommand(CLI::App& app, const CommonOptions& common, int* exit_status);
void AddReportCommand(CLI::App& app, const CommonOptions& common, int* exit_status);
void AddBenchCommand(CLI::App& app, const CommonOptions& common, int* exit_status);

// Prints "attest: MESSAGE" to standard error, below a progress line that is still open, and returns
// kExitUsage.
int Fail(const Status& status);

// Creates a directory for results, before the work starts; one line says why it cannot be used.
Status PrepareDirectory(const std::string& directory);

// Tries whether a file can be written, likewise; nothing remains of the trial.
Status PrepareFile(const std::string& file);

// A progress line on standard error, only where that is a terminal. `what` names the work.
void ShowProgress(const std::string& what, std::size_t done, std::size_t all);

}  // namespace attest
