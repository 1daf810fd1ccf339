// SPDX-License-Identifier: Apache-2.0
#include "properties/ball_probe.h"

#include <cmath>

#include "reference/ball.h"

namespace attest {
namespace {

std::vector<double> Expansion(Ball exact) {
  std::vector<double> parts;
  while (!exact.IsZero() && parts.size() < 40) {
    parts.push_back(exact.Midpoint());
    exact = exact - Ball(parts.back());
  }
  return parts;
}

}  // namespace

std::vector<ball_probe::Ends> ProbeOperations(double x, double y, long bits) {
  Ball::SetPrecision(bits);
  const Ball a(x);
  const Ball b = Ball(y) / Ball(3.0);
  const Ball c(std::fabs(x));
  std::vector<ball_probe::Ends> ends;
  for (const Ball& ball : {a + b, a - b, a * b, a / b, Exp(c), Exp2(c), Tanh(a), Log(c), Sqrt(c)}) {
    const Ball lower = ball.Lower();
    const Ball upper = ball.Upper();
    Ball::SetPrecision(bits + 1000);
    ends.push_back({Expansion(lower), Expansion(upper)});
    Ball::SetPrecision(bits);
  }
  return ends;
}

}  // namespace attest
