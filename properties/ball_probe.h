// SPDX-License-Identifier: Apache-2.0
// The same expressions in either back end of Ball, with results that both programs understand.
#pragma once

#include <vector>

// Not in the namespace of the reference, which is renamed for the second back end.
namespace ball_probe {

// The ends of a ball, as sums of doubles that are exact to 2^-900 of the value.
struct Ends {
  std::vector<double> lower;
  std::vector<double> upper;
};

}  // namespace ball_probe

namespace attest {

// x + y/3, x - y/3, x * (y/3), x / (y/3), and exp, exp2, tanh, log and sqrt of |x|, at `bits` bits.
std::vector<ball_probe::Ends> ProbeOperations(double x, double y, long bits);

}  // namespace attest
