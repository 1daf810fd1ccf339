// SPDX-License-Identifier: Apache-2.0
// What this build was made from; build_info.cc is written by cmake/build_info.cmake.
#pragma once

namespace attest {

extern const char* const kAttestVersion;
extern const char* const kGitState;  // commit, with "-dirty" for uncommitted changes; or "unknown"
extern const char* const kCompiler;
extern const char* const kCompileFlags;

}  // namespace attest
