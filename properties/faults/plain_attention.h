// SPDX-License-Identifier: Apache-2.0
// Attention as textbooks write it, for the whole contract, with one switchable fault or control.
//
// Computes what docs/contract.md defines, forward and backward. Arithmetic is double for f64
// tensors and for the profile f64, float for all others; outputs are rounded once, at the end.
// Without a fault it is right on every case; nothing in it is shared with the reference.
#pragma once

#include "properties/faults/plain_args.h"

namespace attest {

void PlainAttention(const PlainCall& call);

}  // namespace attest
