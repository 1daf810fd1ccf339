# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE_DIR= -DOUTPUT= -DVERSION= -DCOMPILER= -DFLAGS= -P build_info.cmake
# Writes the definitions of core/build_info.h, and touches the file only when they change.
execute_process(COMMAND git describe --always --dirty --abbrev=12
  WORKING_DIRECTORY "${SOURCE_DIR}" OUTPUT_VARIABLE git_state ERROR_QUIET
  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR git_state STREQUAL "")
  set(git_state unknown)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
// SPDX-License-Identifier: Apache-2.0
#include "core/build_info.h"
namespace attest {
const char* const kAttestVersion = "@VERSION@";
const char* const kGitState = "@git_state@";
const char* const kCompiler = "@COMPILER@";
const char* const kCompileFlags = "@FLAGS@";
}  // namespace attest
]])
