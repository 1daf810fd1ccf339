// SPDX-License-Identifier: Apache-2.0
// The project's own kernels as subjects, each on any SIMD target of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/status.h"

namespace attest {

struct BuiltinKernel {
  std::string name;  // "tiled"; "tiled@AVX2" runs it on a forced target
  std::string description;
  bool specimen = false;  // known to fail, kept to be looked at
};
const std::vector<BuiltinKernel>& BuiltinKernels();

// A kernel by name, optionally with "@TARGET". NotFound, with the known names, for others.
StatusOr<std::unique_ptr<Subject>> MakeBuiltinSubject(const std::string& name);

}  // namespace attest
