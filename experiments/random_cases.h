// SPDX-License-Identifier: Apache-2.0
// Attention on random numbers as projects test it: a shape, a feature, normal or uniform inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/case.h"

namespace attest {

// Every feature of the contract at moderate lengths, with inputs from N(0, 1), in f32; the usual
// features also from U(-1, 1), and from N(0, 1) in bf16 and f16. `large`: about twice the lengths
// and head sizes, and both distributions for everything.
std::vector<Case> RandomCases(bool large, std::uint64_t seed);

}  // namespace attest
