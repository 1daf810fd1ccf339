// SPDX-License-Identifier: Apache-2.0
// Whether an implementation gives the same bits when a call is made in another way that does not
// change the mathematics of a row.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/case.h"

namespace attest {

// What is changed about the call.
enum class Variation {
  kRun,      // nothing: the call is repeated
  kThreads,  // 2, 3 and 7 threads instead of 1; decode splits the keys over them
  kBatch,    // each batch entry alone
  kQuery,    // one query alone
  kPadding,  // each batch entry alone, without the keys behind its length
};
inline constexpr std::array kVariations{Variation::kRun, Variation::kThreads, Variation::kBatch,
                                        Variation::kQuery, Variation::kPadding};
// "runs", "threads", "batch", "queries", "padding".
std::string NameOf(Variation variation);

struct BitCount {
  Index compared = 0;  // elements; 0: not taken
  Index differ = 0;
};

struct BitReport {
  std::string digest;  // of the outputs of all calls on one thread, SHA-256
  Index calls = 0;     // cases that were taken
  std::array<BitCount, kVariations.size()> counts;  // in the order of kVariations
  std::string failure;  // of the first call that failed; then the rest is not to be used
};

// The calls that are compared: prefill in f32 and bf16 with keys of three lengths, and one query
// against many keys in f32.
std::vector<Case> ComparedCases(bool large, std::uint64_t seed);

// Runs `cases` and their variations, as far as `subject` takes them.
BitReport CompareBits(const Subject& subject, const std::vector<Case>& cases);

}  // namespace attest
