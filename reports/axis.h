// SPDX-License-Identifier: Apache-2.0
// One axis of a plot: which values it can show, where they lie, and where its ticks are.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace attest::reports {

enum class Scale { kLinear, kLog };

struct Tick {
  double position;       // 0 at the start of the axis, 1 at its end
  std::string label;     // plain text
  std::string exponent;  // written raised after the label; empty for plain numbers
};

// An axis over finite values, on a logarithmic scale over positive ones. Any range of doubles
// works, a single value too.
class Axis {
 public:
  // The axis that shows all of `values`, which must be such that Accepts() holds, and not be empty.
  // A linear axis that would begin close to 0 begins at 0 if `prefer_zero`.
  static Axis Fit(std::span<const double> values, Scale scale, bool prefer_zero);

  // Whether a value can be drawn on an axis of this scale.
  static bool Accepts(double value, Scale scale);

  // From 0 to 1 for values inside the range.
  double Position(double value) const;

  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  void FitLinear(double low, double high, bool prefer_zero);
  void FitLog(double low, double high, int base);
  // Where a value lies between the ends: itself, or its logarithm to base_.
  double Coordinate(double value) const;
  void AddTick(double value, std::string label, std::string exponent = "");

  int base_ = 0;  // 0 on a linear axis
  double first_ = 0;
  double last_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace attest::reports
