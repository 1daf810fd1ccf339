// SPDX-License-Identifier: Apache-2.0
#include "reference/ball_settle.h"

#include <algorithm>

namespace attest {

long FirstPrecision(const Contract& contract, int digits) {
  return std::max<long>(contract.dtype == DType::kF64 ? 256 : 128, 64 + 4 * digits);
}

long LargestPrecision(const CaseData& data, long first) {
  constexpr long kLargest = 16384;
  return std::max(first, std::min(data.transcendental() ? kLargestTranscendental : kLargest,
                                  Ball::LargestPrecision()));
}

}  // namespace attest
