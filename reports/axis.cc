// SPDX-License-Identifier: Apache-2.0
// Ranges and ticks: multiples of 1, 2 or 5 on linear axes, powers of 2 or 10 on logarithmic ones.
#include "reports/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "reports/text.h"

namespace attest::reports {
namespace {

constexpr int kMostTicks = 7;

bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

// The power of ten at or below `value` times 1, 2, 5 or 10, whichever first reaches it; 0 where a
// double has no room for that.
double NiceStep(double value) {
  if (!(value > 0)) return 0;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    const double step = factor * power;
    if (step >= value && std::isfinite(step)) return step;
  }
  return 0;
}

// Labels that tell ticks `step` apart from each other, `largest` being the largest of them.
std::string LinearLabel(double value, double step, double largest) {
  if (largest < 1e6 && step > 0.99e-4) {
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    return fmt::format("{:.{}f}", value, decimals);
  }
  const double digits = std::ceil(std::log10(largest / step) + 1e-9) + 1;
  return FormatDigits(value,
                      std::isfinite(digits) ? std::clamp(static_cast<int>(digits), 1, 17) : 3);
}

}  // namespace

bool Axis::Accepts(double value, Scale scale) {
  return std::isfinite(value) && (scale == Scale::kLinear || value > 0);
}

Axis Axis::Fit(std::span<const double> values, Scale scale, bool prefer_zero) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  Axis axis;
  if (scale == Scale::kLinear) {
    axis.FitLinear(*low, *high, prefer_zero);
  } else {
    axis.FitLog(*low, *high, std::all_of(values.begin(), values.end(), IsPowerOfTwo) ? 2 : 10);
  }
  return axis;
}

double Axis::Coordinate(double value) const {
  if (base_ == 0) return value;
  return base_ == 2 ? std::log2(value) : std::log10(value);
}

double Axis::Position(double value) const {
  const double at = Coordinate(value);
  const double span = last_ - first_;
  if (!(span > 0)) return 0.5;
  if (std::isfinite(span)) return (at - first_) / span;
  // The distance between two doubles can exceed the largest double; that of their halves cannot.
  return (at / 2 - first_ / 2) / (last_ / 2 - first_ / 2);
}

void Axis::AddTick(double value, std::string label, std::string exponent) {
  const double position = Position(value);
  if (position < -1e-9 || position > 1 + 1e-9) return;
  if (!ticks_.empty() && !(position > ticks_.back().position)) return;
  ticks_.push_back({std::clamp(position, 0.0, 1.0), std::move(label), std::move(exponent)});
}

void Axis::FitLinear(double low, double high, bool prefer_zero) {
  if (prefer_zero && low > 0 && low < high / 2) low = 0;
  if (prefer_zero && high < 0 && high > low / 2) high = 0;
  if (low == high) {
    const double room = low == 0 ? 1 : std::fabs(low) / 10;
    if (std::isfinite(low - room) && std::isfinite(high + room)) low -= room, high += room;
  }
  const double step = NiceStep(high / (kMostTicks - 1) - low / (kMostTicks - 1));
  first_ = low;
  last_ = high;
  if (!(step > 0)) {
    AddTick(low, FormatNumber(low));
    if (low < high) AddTick(high, FormatNumber(high));
    return;
  }
  double from = std::floor(low / step);
  double to = std::ceil(high / step);
  // Ends on ticks, unless they would be beyond the doubles.
  if (std::isfinite(from * step)) {
    first_ = from * step;
  } else {
    from += 1;
  }
  if (std::isfinite(to * step)) {
    last_ = to * step;
  } else {
    to -= 1;
  }
  const double largest = std::max(std::fabs(first_), std::fabs(last_));
  for (int i = 0; i <= static_cast<int>(std::min(to - from, 2.0 * kMostTicks)); ++i) {
    const double value = (from + i) * step + 0.0;  // + 0.0 turns -0 into 0
    AddTick(value, LinearLabel(value, step, largest));
  }
}

void Axis::FitLog(double low, double high, int base) {
  base_ = base;
  first_ = Coordinate(low);
  last_ = Coordinate(high);
  const double room = std::max((last_ - first_) * 0.03, 0.05);
  first_ -= room;
  last_ += room;
  const int from = static_cast<int>(std::ceil(first_));
  const int to = static_cast<int>(std::floor(last_));
  if (to - from < 1) {
    // Within one power of the base: plain numbers at 1, 2 and 5 or nearer together.
    const double step = NiceStep(high / 3 - low / 3);
    if (!(step > high * 1e-6)) {
      AddTick(low, FormatNumber(low));
      return;
    }
    const double first = std::floor(low / step);
    for (int i = 0; i <= kMostTicks; ++i) {
      const double value = (first + i) * step;
      if (value > 0 && std::isfinite(value)) AddTick(value, LinearLabel(value, step, high));
    }
    return;
  }
  int step = 1;
  for (const int candidate : {1, 2, 3, 5, 10, 20, 50, 100, 200, 400}) {
    step = candidate;
    if ((to - from) / step + 1 <= kMostTicks) break;
  }
  int start = from;
  if (base == 10) {
    while (start % step != 0) ++start;
  }
  const bool plain = base == 10 ? from >= -3 && to <= 4 : from >= 0 && to <= 16;
  for (int e = start; e <= to; e += step) {
    const double value = base == 2 ? std::ldexp(1.0, e) : std::pow(10.0, e);
    if (plain) {
      AddTick(value, fmt::format("{}", value));
    } else {
      AddTick(value, fmt::format("{}", base), fmt::format("{}", e));
    }
  }
}

}  // namespace attest::reports
