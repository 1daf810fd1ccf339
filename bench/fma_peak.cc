// SPDX-License-Identifier: Apache-2.0
#include "bench/fma_peak.h"

#include <cstdint>

#include "bench/cpu_clock.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide a latency of four cycles on two or three units, and fit into 16 registers.
// Each starts elsewhere: equal chains could be computed once. Returns the number of operations;
// *sum depends on all of them.
double MultiplyAdd(std::uint64_t steps, double* sum) {
  const hn::ScalableTag<double> d;
  const auto factor = hn::Set(d, 0.999);
  const auto term = hn::Set(d, 0.001);
  const auto start = hn::Iota(d, 1.0);
  auto a0 = start;
  auto a1 = hn::Add(start, hn::Set(d, 0.1));
  auto a2 = hn::Add(start, hn::Set(d, 0.2));
  auto a3 = hn::Add(start, hn::Set(d, 0.3));
  auto a4 = hn::Add(start, hn::Set(d, 0.4));
  auto a5 = hn::Add(start, hn::Set(d, 0.5));
  auto a6 = hn::Add(start, hn::Set(d, 0.6));
  auto a7 = hn::Add(start, hn::Set(d, 0.7));
  auto a8 = hn::Add(start, hn::Set(d, 0.8));
  auto a9 = hn::Add(start, hn::Set(d, 0.9));
  auto a10 = hn::Add(start, hn::Set(d, 1.0));
  auto a11 = hn::Add(start, hn::Set(d, 1.1));
  for (std::uint64_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    a6 = hn::MulAdd(a6, factor, term);
    a7 = hn::MulAdd(a7, factor, term);
    a8 = hn::MulAdd(a8, factor, term);
    a9 = hn::MulAdd(a9, factor, term);
    a10 = hn::MulAdd(a10, factor, term);
    a11 = hn::MulAdd(a11, factor, term);
  }
  const auto first = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto second = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  *sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
  return 12.0 * 2.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(MultiplyAdd);

double DoubleFmaPeak(double seconds) {
  constexpr std::uint64_t kSteps = 200'000;
  volatile double sink = 0.0;
  double best = 0.0;
  const double begin = ThreadSeconds();
  for (double now = begin; now - begin < seconds;) {
    double sum = 0.0;
    const double operations = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kSteps, &sum);
    sink = sum;
    const double after = ThreadSeconds();
    if (const double rate = 1e-9 * operations / (after - now); rate > best) best = rate;
    now = after;
  }
  static_cast<void>(sink);
  return best;
}

}  // namespace attest
#endif
