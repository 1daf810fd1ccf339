// SPDX-License-Identifier: Apache-2.0
// The project's own kernels as subjects, each on any SIMD target of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/status.h"
#include "optimized/execution.h"

namespace attest {

struct BuiltinKernel {
  std::string name;  // "tiled"; "tiled@AVX2" runs it on a forced target
  std::string description;
  bool specimen = false;  // known to fail, kept to be looked at
};
const std::vector<BuiltinKernel>& BuiltinKernels();

// A kernel by name, optionally with "@TARGET". NotFound, with the known names, for others. It runs
// on `execution` where one is given, which subjects may share that do not run at the same time, and
// else on as many threads as each call says.
StatusOr<std::unique_ptr<Subject>> MakeBuiltinSubject(
    const std::string& name, std::shared_ptr<Execution> execution = nullptr);

}  // namespace attest
