// SPDX-License-Identifier: Apache-2.0
// What rows and gradients share on rungs 2 and 3.
#pragma once

#include <mutex>
#include <optional>

#include "reference/ball.h"
#include "reference/certify.h"
#include "reference/rounding.h"
#include "reference/row_plan.h"

namespace attest {

inline constexpr long kTiePrecision = 512;  // ties are looked for from here on

// Frees what a thread's balls have cached when the thread's work ends.
struct BallCaches {
  ~BallCaches() { Ball::FreeThreadCaches(); }
};

// Work left over and the precision it took.
struct BallEffort {
  Index undecided = 0;  // elements that the precision limit left undecided
  long precision = 0;   // bits of the last precision tried; 0: none was
};

// The limit where a tie may be undecidable anyway: scores, weights or gradients of which no theorem
// says when they are midpoints.
inline constexpr long kLargestTranscendental = 4096;

// Counts efforts in a result, from any thread.
class EffortTally {
 public:
  explicit EffortTally(Certified* result) : result_(*result) {}
  void Add(const BallEffort& effort);

 private:
  Certified& result_;
  std::mutex mutex_;
};

// Where the precision of a case starts, and ends.
long FirstPrecision(const Contract& contract, int digits);
long LargestPrecision(const CaseData& data, long first);

// Settles element `element` of `tensor` by an enclosure at `bits` bits; `digits` decimal digits,
// too, where that is not 0. Where the enclosure holds a boundary, decide(&enclosure) is asked from
// kTiePrecision on: for the rounding of an element that is a midpoint, or next to one, and a
// tighter enclosure if it knows one. Whether all is settled.
template <class Decide>
bool SettleBall(Ball enclosure, long bits, int digits, const Decide& decide, Index element,
                CertifiedTensor* tensor) {
  const auto at = static_cast<std::size_t>(element);
  const FloatFormat& format = FormatOf(tensor->dtype);
  const auto digits_of = [&](const Ball& ball) {
    return digits == 0 ? std::optional<std::string>("") : DecimalDigits(ball, digits);
  };
  std::optional<double> rounded = RoundedTo(enclosure, format);
  std::optional<std::string> text = digits_of(enclosure);
  Rung rung = Rung::kBall;
  if (bits >= kTiePrecision && !(rounded && text)) {
    const std::optional<double> decided = decide(&enclosure);
    if (!rounded && decided) {
      rounded = decided;
      rung = Rung::kExact;
    }
    text = digits_of(enclosure);
  }
  const CentreRadius centre = ToCentreRadius(enclosure);
  tensor->values[at] = {rounded.value_or(RoundToDType(centre.hi, tensor->dtype)),
                        centre.hi,
                        centre.lo,
                        centre.radius,
                        rung,
                        rounded.has_value()};
  if (digits > 0) tensor->digits[at] = text.value_or("");
  return rounded && text;
}

}  // namespace attest
