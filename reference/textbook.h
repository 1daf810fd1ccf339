// SPDX-License-Identifier: Apache-2.0
// The plain authority: the textbook formula in high-precision arithmetic, to be checked by reading.
//
// The formula itself is in textbook-inl.h and textbook_gradient-inl.h, for any number type.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/case.h"

namespace attest {

// Which arithmetic evaluates the formula: 100 decimal digits of Boost.Multiprecision on MPFR, or on
// its own header-only binary float.
enum class TextbookNumber { kMpfr100, kCppBinFloat100 };

// False for kMpfr100 in a build without MPFR (ATTEST_WITH_LGPL=OFF).
bool TextbookHas(TextbookNumber number);

// Row-major values as hi + lo, within a relative 1e-30 of the exact result (gradients and outputs
// in which terms cancel: of the sum of the terms' magnitudes).
struct TextbookTensor {
  std::vector<double> hi;
  std::vector<double> lo;
};

using TextbookResult = std::map<std::string, TextbookTensor>;  // by the output's name

// Every output that the finished case asks for, gradients included; for finite inputs and sinks
// (-infinity in the bias excludes, as a sink it is none). No enclosure and no special values: it is
// the independent witness of Certify, and shares neither its masks nor its exponential nor its
// rounding. Nothing where TextbookHas(number) is false.
TextbookResult EvaluateTextbook(const Case& problem, TextbookNumber number);

}  // namespace attest
