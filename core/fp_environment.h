// SPDX-License-Identifier: Apache-2.0
// The floating-point state: a check of what every derived bound assumes, and a guard against code
// that changes it.
#pragma once

#include <cfenv>
#include <string>

#include "core/status.h"

namespace attest {

// Ok when the calling thread rounds to nearest and keeps subnormals (neither flush-to-zero nor
// denormals-are-zero). Otherwise one line says which is wrong: a library linked with -ffast-math
// may have changed the state.
Status CheckFloatingPointEnvironment();

// The calling thread's floating-point state: how it rounds, whether it flushes subnormals, which
// exceptions trap, and the exception flags.
class FloatingPointState {
 public:
  static FloatingPointState Current();

  // Makes it the calling thread's state again.
  void Restore() const;

  // What of the state, but for the exception flags, is not as it was `before`: "rounding mode,
  // FTZ". Empty when nothing differs. Flushing and traps are seen on x86 alone.
  std::string ChangesSince(const FloatingPointState& before) const;

 private:
  std::fenv_t environment_{};
  int rounding_ = FE_TONEAREST;
};

}  // namespace attest
