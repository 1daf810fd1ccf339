// SPDX-License-Identifier: Apache-2.0
#include "bench/floors.h"

#include <cstdint>

#include "bench/cpu_clock.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/floors.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide a latency of four cycles on two or three units, and fit into 16 registers.
// Each starts elsewhere: equal chains could be computed once. Returns the number of operations;
// *sum depends on all of them.
template <class D>
double MultiplyAdd(D d, std::uint64_t steps, double* sum) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  const V factor = hn::Set(d, static_cast<T>(0.999));
  const V term = hn::Set(d, static_cast<T>(0.001));
  const auto start = [d](double x) HWY_ATTR {
    return hn::Add(hn::Iota(d, T{1}), hn::Set(d, static_cast<T>(x)));
  };
  V a0 = start(0.0);
  V a1 = start(0.1);
  V a2 = start(0.2);
  V a3 = start(0.3);
  V a4 = start(0.4);
  V a5 = start(0.5);
  V a6 = start(0.6);
  V a7 = start(0.7);
  V a8 = start(0.8);
  V a9 = start(0.9);
  V a10 = start(1.0);
  V a11 = start(1.1);
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
  const V first = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const V second = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  *sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second))));
  return 12.0 * 2.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

double FloatMultiplyAdd(std::uint64_t steps, double* sum) {
  return MultiplyAdd(hn::ScalableTag<float>(), steps, sum);
}
double DoubleMultiplyAdd(std::uint64_t steps, double* sum) {
  return MultiplyAdd(hn::ScalableTag<double>(), steps, sum);
}

// y = 2^x, four vectors at a time; n a multiple of four vectors.
void Exp2OfBlock(const float* HWY_RESTRICT x, std::size_t n, float* HWY_RESTRICT y) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += 4 * lanes) {
    hn::StoreU(Exp2(Fast(), d, hn::LoadU(d, x + i)), d, y + i);
    hn::StoreU(Exp2(Fast(), d, hn::LoadU(d, x + i + lanes)), d, y + i + lanes);
    hn::StoreU(Exp2(Fast(), d, hn::LoadU(d, x + i + 2 * lanes)), d, y + i + 2 * lanes);
    hn::StoreU(Exp2(Fast(), d, hn::LoadU(d, x + i + 3 * lanes)), d, y + i + 3 * lanes);
  }
}

void CopyFloats(const float* HWY_RESTRICT from, std::size_t n, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < n; i += 4 * lanes) {
    const auto v0 = hn::LoadU(d, from + i);
    const auto v1 = hn::LoadU(d, from + i + lanes);
    const auto v2 = hn::LoadU(d, from + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, from + i + 3 * lanes);
    hn::StoreU(v0, d, to + i);
    hn::StoreU(v1, d, to + i + lanes);
    hn::StoreU(v2, d, to + i + 2 * lanes);
    hn::StoreU(v3, d, to + i + 3 * lanes);
  }
}

float SumOfFloats(const float* HWY_RESTRICT x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d);
  auto s1 = hn::Zero(d);
  auto s2 = hn::Zero(d);
  auto s3 = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(FloatMultiplyAdd);
HWY_EXPORT(DoubleMultiplyAdd);
HWY_EXPORT(Exp2OfBlock);
HWY_EXPORT(CopyFloats);
HWY_EXPORT(SumOfFloats);

// The best rate of `work`, which returns how many operations it did, in about `seconds`.
template <class Work>
double BestRate(double seconds, const Work& work) {
  double best = 0.0;
  const double begin = ThreadSeconds();
  for (double now = begin; now - begin < seconds;) {
    const double operations = work();
    const double after = ThreadSeconds();
    best = std::max(best, operations / (after - now));
    now = after;
  }
  return best;
}

constexpr std::uint64_t kSteps = 50'000;  // of multiply-adds, between two looks at the clock
constexpr std::size_t kExpBlock = 4096;
constexpr int kExpRepeats = 50;

}  // namespace

double FloatFmaPeak(double seconds) {
  volatile double sink = 0.0;
  return BestRate(seconds, [&] {
    double sum = 0.0;
    const double operations = HWY_DYNAMIC_DISPATCH(FloatMultiplyAdd)(kSteps, &sum);
    sink = sum;
    return operations;
  });
}

double DoubleFmaPeak(double seconds) {
  volatile double sink = 0.0;
  return BestRate(seconds, [&] {
    double sum = 0.0;
    const double operations = HWY_DYNAMIC_DISPATCH(DoubleMultiplyAdd)(kSteps, &sum);
    sink = sum;
    return operations;
  });
}

double ExpPeak(double seconds) {
  std::vector<float> x(kExpBlock);
  std::vector<float> y(kExpBlock);
  for (std::size_t i = 0; i < kExpBlock; ++i) {
    x[i] = -30.0f * static_cast<float>(i) / static_cast<float>(kExpBlock);
  }
  volatile float sink = 0.0f;
  return BestRate(seconds, [&] {
    for (int repeat = 0; repeat < kExpRepeats; ++repeat) {
      HWY_DYNAMIC_DISPATCH(Exp2OfBlock)(x.data(), kExpBlock, y.data());
    }
    sink = y[kExpBlock / 2];
    return static_cast<double>(kExpBlock) * kExpRepeats;
  });
}

MemoryFloor::MemoryFloor(std::size_t bytes)
    : from_(bytes / sizeof(float), 1.0f), to_(bytes / sizeof(float), 2.0f) {}

double MemoryFloor::Copy() {
  const double begin = ThreadSeconds();
  HWY_DYNAMIC_DISPATCH(CopyFloats)(from_.data(), from_.size(), to_.data());
  const double seconds = ThreadSeconds() - begin;
  return 2.0 * sizeof(float) * static_cast<double>(from_.size()) / seconds;
}

double MemoryFloor::Read() {
  volatile float sink = 0.0f;
  const double begin = ThreadSeconds();
  sink = HWY_DYNAMIC_DISPATCH(SumOfFloats)(from_.data(), from_.size());
  const double seconds = ThreadSeconds() - begin;
  static_cast<void>(sink);
  return sizeof(float) * static_cast<double>(from_.size()) / seconds;
}

}  // namespace attest
#endif  // HWY_ONCE
