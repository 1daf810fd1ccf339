// SPDX-License-Identifier: Apache-2.0
// The multiply-adds of the policies on every SIMD target: Reproducible is std::fma in every bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/random.h"
#include "optimized/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "properties/arithmetic_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// y[i] = a[i] b[i] + c[i], or c[i] - a[i] b[i], in vectors of at most `kLanes`.
template <std::size_t kLanes, class T>
void MulAddArrays(bool negated, const T* a, const T* b, const T* c, std::size_t n, T* y) {
  const hn::CappedTag<T, kLanes> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto va = hn::LoadU(d, a + i), vb = hn::LoadU(d, b + i), vc = hn::LoadU(d, c + i);
    hn::StoreU(
        negated ? NegMulAdd(Reproducible(), d, va, vb, vc) : MulAdd(Reproducible(), d, va, vb, vc),
        d, y + i);
  }
}

template <class T>
void MulAddOfLanes(std::size_t lanes, bool negated, const T* a, const T* b, const T* c,
                   std::size_t n, T* y) {
  if (lanes == 1) return MulAddArrays<1>(negated, a, b, c, n, y);
  if (lanes == 2) return MulAddArrays<2>(negated, a, b, c, n, y);
  if (lanes == 4) return MulAddArrays<4>(negated, a, b, c, n, y);
  MulAddArrays<16>(negated, a, b, c, n, y);
}

void MulAddF32(std::size_t lanes, bool negated, const float* a, const float* b, const float* c,
               std::size_t n, float* y) {
  MulAddOfLanes(lanes, negated, a, b, c, n, y);
}

void MulAddF64(std::size_t lanes, bool negated, const double* a, const double* b, const double* c,
               std::size_t n, double* y) {
  MulAddOfLanes(lanes, negated, a, b, c, n, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(MulAddF32);
HWY_EXPORT(MulAddF64);

template <class T>
struct Operands {
  std::vector<T> a, b, c;

  void Add(T x, T y, T z) {
    a.push_back(x);
    b.push_back(y);
    c.push_back(z);
  }
  // To whole vectors of every length, with arguments already there.
  void Fill() {
    while (a.size() % 16 != 0) Add(a[0], b[0], c[0]);
  }
};

// Random bits make random exponents, so that most sums have one term only: c is drawn near -a b
// or at a distance of 0 to 60 binades, where double rounding shows.
template <class T>
Operands<T> HardOperands() {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  using Limits = std::numeric_limits<T>;
  constexpr int kPrecision = Limits::digits;
  Operands<T> operands;
  const std::vector<T> special = {T{0},
                                  -T{0},
                                  T{1},
                                  T{-1},
                                  Limits::infinity(),
                                  -Limits::infinity(),
                                  Limits::quiet_NaN(),
                                  Limits::max(),
                                  -Limits::max(),
                                  Limits::min(),
                                  -Limits::min(),
                                  Limits::denorm_min(),
                                  -Limits::denorm_min(),
                                  Limits::min() - Limits::denorm_min(),
                                  T{1} + Limits::epsilon(),
                                  T{1} - Limits::epsilon() / 2,
                                  T{0.5},
                                  std::ldexp(T{1}, -kPrecision),
                                  std::ldexp(T{3}, -2 * kPrecision)};
  for (const T x : special) {
    for (const T y : special) {
      for (const T z : special) operands.Add(x, y, z);
    }
  }
  const RandomStream stream(1, "arithmetic", "operands");
  std::uint64_t drawn = 0;
  const auto next = [&] { return stream.Below(drawn++, std::uint64_t{1} << 62); };
  for (int i = 0; i < 30000; ++i) {
    const T a = std::bit_cast<T>(static_cast<Bits>(next() << 2 ^ next()));
    const T b = std::bit_cast<T>(static_cast<Bits>(next() << 2 ^ next()));
    operands.Add(a, b, std::bit_cast<T>(static_cast<Bits>(next() << 2 ^ next())));
    // Significands in [1, 2), products across the range.
    const int scale = static_cast<int>(next() % 3) - 1;
    const T x = T{1} + static_cast<T>(next() >> (62 - kPrecision)) * Limits::epsilon() / 2;
    const T y = std::ldexp(T{1} + std::ldexp(T{1}, 1 - static_cast<int>(next() % kPrecision)),
                           scale * (Limits::max_exponent - 3));
    const int gap = static_cast<int>(next() % 120) - 60;
    const T z = std::ldexp(x * y, gap) * (next() % 2 == 0 ? T{1} : T{-1});
    operands.Add(x, y, z);
    operands.Add(x, y, -(x * y));
    // A tie of the product or the sum, and a last bit far away that decides it.
    operands.Add(x, T{1}, std::ldexp(x, -kPrecision - static_cast<int>(next() % 3)));
    operands.Add(T{1} + Limits::epsilon(), T{1} + std::ldexp(T{1}, -kPrecision / 2),
                 std::ldexp(x, -static_cast<int>(next() % 128)));
  }
  operands.Fill();
  return operands;
}

template <class T, class Run>
void ExpectStdFma(Run run) {
  const Operands<T> operands = HardOperands<T>();
  const std::size_t n = operands.a.size();
  for (const bool negated : {false, true}) {
    std::vector<T> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] =
          std::fma(negated ? -operands.a[i] : operands.a[i], operands.b[i], operands.c[i]);
    }
    for (const std::size_t lanes : {1u, 2u, 4u, 16u}) {
      std::vector<T> y(n);
      run(lanes, negated, operands.a.data(), operands.b.data(), operands.c.data(), n, y.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (std::isnan(expected[i]) && std::isnan(y[i])) continue;
        if (y[i] == expected[i] && std::signbit(y[i]) == std::signbit(expected[i])) continue;
        if (wrong++ < 3) {
          ADD_FAILURE() << operands.a[i] << " * " << operands.b[i] << " + " << operands.c[i]
                        << " gives " << y[i] << " instead of " << expected[i];
        }
      }
      EXPECT_EQ(wrong, 0u) << lanes << " lanes of " << n << " results";
    }
  }
}

TEST(Arithmetic, ReproducibleMulAddIsStdFma) {
  for (const std::string_view name : RunnableTargets()) {
    SCOPED_TRACE(name);
    const auto scope = ScopedTarget::Force(name);
    ExpectStdFma<float>([](auto... arguments) { HWY_DYNAMIC_DISPATCH(MulAddF32)(arguments...); });
    ExpectStdFma<double>([](auto... arguments) { HWY_DYNAMIC_DISPATCH(MulAddF64)(arguments...); });
  }
}

}  // namespace
}  // namespace attest
#endif  // HWY_ONCE
