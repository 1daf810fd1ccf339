// SPDX-License-Identifier: Apache-2.0
// The tiled forward algorithm over all heads of a call. Private to optimized/.
#pragma once

#include "optimized/attention.h"

namespace attest {

// Stages keys and values once (memory of Tk (Dk + Dv) numbers a key/value head where they are not
// used in place), then takes blocks of queries, by any thread in any order. The arguments have been
// checked.
template <class ModePolicy>
void ForwardTiled(ModePolicy, const AttentionArgs& args, const AttentionOutputs& outputs,
                  Execution& execution);

}  // namespace attest
