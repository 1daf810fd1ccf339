// SPDX-License-Identifier: Apache-2.0
// A build without MPFR has nothing to compare with.
#include "bench/mpfr_attention.h"

namespace attest {

const bool kMpfrAttention = false;

MpfrRows MpfrForward(const Case&, const std::vector<Index>&) { return {}; }
MpfrRows MpfrBackward(const Case&, const std::vector<Index>&) { return {}; }

}  // namespace attest
