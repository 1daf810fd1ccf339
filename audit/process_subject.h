// SPDX-License-Identifier: Apache-2.0
// Implementations in processes of their own: commands that speak the line protocol, and plug-ins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/status.h"

namespace attest {

struct ProcessLimits {
  double seconds = 60.0;           // for an answer, the first one after a start included
  std::uint64_t memory_bytes = 0;  // resident, of the whole process group; 0: half of the machine's
};

// A shell command that answers one JSON line for each line it is given (docs/plugins.md). The
// process stays alive over cases, is started again after it ended, and is killed at a limit, with
// everything that it started. What it does wrong is the Outcome's code: "crash", "timeout",
// "memory", "garbage" (an answer that is none), "bad-result" (a result file that cannot be read),
// "error". An error Status only when no process can be started, or when what the command declares
// is malformed.
//
// What the implementation does not declare is found out by probing (audit/probe.h).
StatusOr<std::unique_ptr<Subject>> MakeExecSubject(const std::string& command,
                                                   const ProcessLimits& limits);

// A shared library with the interface of attest/plugin.h, in the plug-in host's process; beside the
// above it may fail with "trespass", and complaints are "printed" and "fp-state".
StatusOr<std::unique_ptr<Subject>> MakePluginSubject(const std::filesystem::path& library,
                                                     const ProcessLimits& limits);

// `argument` in quotes where a shell needs them.
std::string ShellQuoted(const std::string& argument);

// Where the program that hosts plug-ins is: $ATTEST_PLUGIN_HOST, else ../libexec/attest beside the
// command, else in the build tree.
StatusOr<std::filesystem::path> PluginHost();

}  // namespace attest
