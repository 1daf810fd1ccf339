// SPDX-License-Identifier: Apache-2.0
// Checks the floating-point state that every derived bound assumes.
#pragma once

#include "core/status.h"

namespace attest {

// Ok when the calling thread rounds to nearest and keeps subnormals (neither flush-to-zero nor
// denormals-are-zero). Otherwise one line says which is wrong: a library linked with -ffast-math
// may have changed the state.
Status CheckFloatingPointEnvironment();

}  // namespace attest
