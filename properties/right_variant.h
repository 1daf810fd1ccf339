// SPDX-License-Identifier: Apache-2.0
// Right implementations of attention that round in different places: none may ever be flagged.
#pragma once

#include <string>
#include <vector>

#include "audit/subject.h"

namespace attest {

enum class Variant {
  kTextbook,          // maximum, exponentials, sum, division of the output
  kNormalisedFirst,   // weights divided by their sum before the product with v
  kDivisionFree,      // exp(s - LSE)
  kBaseTwo,           // q times scale * log2(e), exp2, LSE turned back
  kFusedShift,        // fma(s, scale * log2(e), -(m * scale * log2(e))), as FlashAttention-2 does
  kSplitScale,        // q and k each times D^(-1/4)
  kTwoPass,           // online maximum and sum, then exponentials computed again
  kReversed,          // keys from last to first
  kPairwise,          // sums by halves
  kNormalisedOnline,  // the output kept normalised after every key, as FlashAttention-1 does
  kFiniteSentinel,    // -1e30 instead of exclusion, in rows that have a key
};

std::vector<Variant> AllVariants();
std::string NameOf(Variant variant);

// The arithmetic follows the contract's profile: f32 inside; f16-flash and bf16-flash round weights
// to the 16-bit type before the product with v; the -math profiles store scores and weights in it.
std::unique_ptr<Subject> MakeRightVariant(Variant variant);

}  // namespace attest
