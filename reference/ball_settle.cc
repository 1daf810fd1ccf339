// SPDX-License-Identifier: Apache-2.0
#include "reference/ball_settle.h"

#include <algorithm>

namespace attest {

void EffortTally::Add(const BallEffort& effort) {
  const std::lock_guard lock(mutex_);
  result_.undecided += effort.undecided;
  result_.largest_precision =
      std::max(result_.largest_precision, static_cast<int>(effort.precision));
}

long FirstPrecision(const Contract& contract, int digits) {
  return std::max<long>(contract.dtype == DType::kF64 ? 256 : 128, 64 + 4 * digits);
}

long LargestPrecision(const CaseData& data, long first) {
  constexpr long kLargest = 16384;
  return std::max(first, std::min(data.transcendental() ? kLargestTranscendental : kLargest,
                                  Ball::LargestPrecision()));
}

}  // namespace attest
