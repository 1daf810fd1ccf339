// SPDX-License-Identifier: Apache-2.0
// The plain authority: the textbook formula in high-precision arithmetic, to be checked by reading.
#pragma once

#include <vector>

#include "core/case.h"
#include "core/status.h"

namespace attest {

// Which arithmetic evaluates the formula: 100 decimal digits of Boost.Multiprecision on MPFR, or on
// its own header-only binary float.
enum class TextbookNumber { kMpfr100, kCppBinFloat100 };

// False for kMpfr100 in a build without MPFR (ATTEST_WITH_LGPL=OFF).
bool TextbookHas(TextbookNumber number);

// Row-major values as hi + lo, within a relative 1e-30 of the exact result.
struct TextbookTensor {
  std::vector<double> hi;
  std::vector<double> lo;
};

struct TextbookResult {
  TextbookTensor out;      // [B, Hq, Tq, Dv]
  TextbookTensor lse;      // [B, Hq, Tq]
  TextbookTensor weights;  // [B, Hq, Tq, Tk]
};

// Forward attention of a `dot` case with finite inputs and sinks (-infinity in the bias excludes).
// No enclosure and no special values: it is the independent witness of Certify, and shares neither
// its masks nor its exponential nor its rounding. Unsupported where TextbookHas(number) is false.
StatusOr<TextbookResult> TextbookForward(const Case& problem, TextbookNumber number);

}  // namespace attest
