// SPDX-License-Identifier: Apache-2.0
// The SIMD targets that the kernels were compiled for, and forcing one of them.
//
// Compiled in (Highway 1.0.3, plain x86-64 flags): AVX3, AVX2, SSE4, SSSE3 and the compiler's
// baseline, EMU128 (clang) or SCALAR (g++ 12). AVX3_DL is left out on purpose: it adds integer and
// crypto instructions only, hence the same code as AVX3 for float kernels; it appears here when a
// build asks for it with -DHWY_WANT_AVX3_DL.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace attest {

// Names of the targets that are compiled in and that this machine can run, best first; never empty.
// The answer is that of the machine: a ScopedTarget does not change it.
std::vector<std::string_view> RunnableTargets();

// The target that dynamic dispatch chooses at present (the forced one under a ScopedTarget).
std::string_view ChosenTarget();

// The same, reported from inside a dispatched kernel: what really runs.
std::string_view RunningTarget();

// Name and version of the SIMD library, for manifests.
std::map<std::string, std::string> OptimizedLibraries();

// Forces one target for every kernel of the process until destroyed; then the choice made before
// returns, so that scopes nest. A scope of the target that is forced already changes nothing:
// inside a scope, threads may use further ones of the same target. Otherwise not for use while
// kernels run on other threads.
class ScopedTarget {
 public:
  // NotFound, with the names that exist, when `name` is not in RunnableTargets().
  static StatusOr<ScopedTarget> Force(std::string_view name);

  ScopedTarget(ScopedTarget&& other) noexcept;
  ScopedTarget& operator=(ScopedTarget&&) = delete;
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;
  ~ScopedTarget();

 private:
  explicit ScopedTarget(std::int64_t target);

  std::int64_t previous_;  // Highway's mask before this scope; 0 is "not forced"
  bool active_;            // whether this scope changed it
};

}  // namespace attest
