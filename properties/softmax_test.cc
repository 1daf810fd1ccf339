// SPDX-License-Identifier: Apache-2.0
// Row softmax, log-softmax and log-sum-exp of every SIMD target, algorithm, mode and element type
// against long double: within the bounds of docs/functions.md, and exact where arithmetic leaves no
// room.
#include "optimized/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/digest.h"
#include "core/dtype.h"
#include "optimized/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "properties/softmax_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// 16 elements to float and back.
void ConvertBFloat16(const std::uint16_t* from, float* widened, const float* x, std::uint16_t* to) {
  const hn::CappedTag<float, 16> d;
  for (std::size_t i = 0; i < 16; i += hn::Lanes(d)) {
    hn::StoreU(LoadElements(d, reinterpret_cast<const BFloat16*>(from) + i), d, widened + i);
    StoreElements(d, hn::LoadU(d, x + i), reinterpret_cast<BFloat16*>(to) + i);
  }
}

void ConvertFloat16(const std::uint16_t* from, float* widened, const float* x, std::uint16_t* to) {
  const hn::CappedTag<float, 16> d;
  for (std::size_t i = 0; i < 16; i += hn::Lanes(d)) {
    hn::StoreU(LoadElements(d, reinterpret_cast<const Float16*>(from) + i), d, widened + i);
    StoreElements(d, hn::LoadU(d, x + i), reinterpret_cast<Float16*>(to) + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(ConvertBFloat16);
HWY_EXPORT(ConvertFloat16);

constexpr SoftmaxAlgorithm kAlgorithms[] = {SoftmaxAlgorithm::kUnshifted,
                                            SoftmaxAlgorithm::kShifted, SoftmaxAlgorithm::kOnline,
                                            SoftmaxAlgorithm::kTwoPass};
// Those that are right for every row.
constexpr SoftmaxAlgorithm kSafe[] = {SoftmaxAlgorithm::kShifted, SoftmaxAlgorithm::kOnline,
                                      SoftmaxAlgorithm::kTwoPass};

std::string_view NameOf(SoftmaxAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"unshifted", "shifted", "online", "two-pass"};
  return kNames[static_cast<int>(algorithm)];
}

template <class T>
using ArithmeticOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
double ValueOf(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(x);
  } else {
    return ToDouble(x);
  }
}

template <class T>
T Rounded(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return RoundToBFloat16(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return RoundToFloat16(x);
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
std::vector<T> Rounded(const std::vector<double>& x) {
  std::vector<T> rounded;
  for (const double value : x) rounded.push_back(Rounded<T>(value));
  return rounded;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kJunk = -1280.0;  // in every type

template <class T>
struct Row {
  std::vector<double> softmax;
  std::vector<double> log_softmax;
  double lse[3];  // of the three functions

  friend bool operator==(const Row& a, const Row& b) {
    const auto same = [](double x, double y) {
      return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y) ||
             (std::isnan(x) && std::isnan(y));
    };
    return std::equal(a.softmax.begin(), a.softmax.end(), b.softmax.begin(), b.softmax.end(),
                      same) &&
           std::equal(a.log_softmax.begin(), a.log_softmax.end(), b.log_softmax.begin(),
                      b.log_softmax.end(), same) &&
           std::equal(a.lse, a.lse + 3, b.lse, same);
  }
};

// The three functions of one row whose base is off by `offset` elements, between guards.
template <class Policy, class T>
Row<T> RunRow(Policy policy, SoftmaxAlgorithm algorithm, const std::vector<T>& x,
              std::size_t offset = 1) {
  const auto n = static_cast<Index>(x.size());
  const T junk = Rounded<T>(kJunk);
  std::vector<T> in(offset, junk), y(x.size() + offset + 1, junk);
  in.insert(in.end(), x.begin(), x.end());
  const View<const T, 2> from{in.data() + offset, {1, n}, {n, 1}};
  const View<T, 2> to{y.data() + offset, {1, n}, {n, 1}};
  LseOf<T> lse[3] = {};
  Row<T> row;
  const auto take = [&](std::vector<double>& values) {
    EXPECT_EQ(ValueOf(y[offset - 1]), kJunk);
    EXPECT_EQ(ValueOf(y.back()), kJunk);
    for (std::size_t j = 0; j < x.size(); ++j) values.push_back(ValueOf(y[offset + j]));
  };
  EXPECT_TRUE(RowSoftmax(policy, algorithm, from, to, &lse[0]).ok());
  take(row.softmax);
  EXPECT_TRUE(RowLogSoftmax(policy, algorithm, from, to, &lse[1]).ok());
  take(row.log_softmax);
  EXPECT_TRUE(RowLogSumExp(policy, algorithm, from, &lse[2]).ok());
  for (int k = 0; k < 3; ++k) row.lse[k] = static_cast<double>(lse[k]);
  return row;
}

struct ExactRow {
  std::vector<long double> softmax;
  long double lse = -std::numeric_limits<long double>::infinity();
  double max = 0.0;
  double spread = 0.0;  // R: largest max - x_j among those that the arithmetic does not drop
};

template <class T>
ExactRow Exact(const std::vector<T>& x) {
  ExactRow exact;
  if (x.empty()) return exact;
  std::vector<double> values;
  for (const T xj : x) values.push_back(ValueOf(xj));
  exact.max = *std::max_element(values.begin(), values.end());
  const double range = std::is_same_v<T, double> ? 746.0 : 104.5;
  long double sum = 0.0L;
  for (const double value : values) {
    const double gap = exact.max - value;
    sum += std::exp(static_cast<long double>(value) - static_cast<long double>(exact.max));
    if (gap <= range) exact.spread = std::max(exact.spread, gap);
  }
  for (const double value : values) {
    exact.softmax.push_back(
        std::exp(static_cast<long double>(value) - static_cast<long double>(exact.max)) / sum);
  }
  exact.lse = static_cast<long double>(exact.max) + std::log(sum);
  return exact;
}

// Exponents H_sum and H of docs/functions.md, for u of the arithmetic; `reach` is the magnitude of
// the largest exponential's argument.
struct Exponents {
  double sum;
  double weight;
};

template <class Policy, class T>
Exponents BoundExponents(SoftmaxAlgorithm algorithm, std::size_t n, const ExactRow& exact) {
  constexpr bool kAccurate = std::is_same_v<Policy, Accurate>;
  const bool in_double = std::is_same_v<T, double> || (kAccurate && std::is_same_v<T, float>);
  const double u = in_double ? 0x1p-53 : 0x1p-24;
  const double blocks = std::ceil(static_cast<double>(n) / 64.0);
  // One exponential: 2 ULP in all cases; its argument rounded once, twice and by a constant.
  const bool compensated = kAccurate && !std::is_same_v<T, float>;
  double argument = compensated ? 0.0 : in_double ? exact.spread : 2.5 * exact.spread;
  if (algorithm == SoftmaxAlgorithm::kUnshifted) argument = 0.0;
  double sum = argument + 2.0 + (compensated ? 1.0 : blocks + 6.0);
  if (algorithm == SoftmaxAlgorithm::kOnline) sum += argument + 3.0 * blocks;
  return {sum * u * (1.0 + 1e-6), (sum + argument + 4.0) * u * (1.0 + 1e-6)};
}

struct Ratios {
  double softmax = 0.0;
  double log_softmax = 0.0;
  double lse = 0.0;

  void Raise(const Ratios& other) {
    const auto raise = [](double& mine, double theirs) {
      if (!std::isnan(mine) && !(theirs <= mine)) mine = theirs;
    };
    raise(softmax, other.softmax);
    raise(log_softmax, other.log_softmax);
    raise(lse, other.lse);
  }
  bool AreAtMostOne() const { return softmax <= 1.0 && log_softmax <= 1.0 && lse <= 1.0; }
};

// Largest error over its bound; NaN when there is a NaN.
template <class Policy, class T>
Ratios ErrorOverBound(Policy policy, SoftmaxAlgorithm algorithm, const std::vector<T>& x) {
  const ExactRow exact = Exact(x);
  const Row<T> row = RunRow(policy, algorithm, x);
  const Exponents h = BoundExponents<Policy, T>(algorithm, x.size(), exact);
  const FloatFormat& storage = FormatOf(DTypeOf<T>::value);
  const double u = DTypeOf<ArithmeticOf<T>>::value == DType::kF64 ? 0x1p-53 : 0x1p-24;
  const double tiny = kFormatF32.smallest_subnormal();
  const bool flushes = std::is_same_v<Policy, Fast>;
  const double eta = std::is_same_v<T, double> ? 0x1p-1073 : flushes ? 0x1p-126 : 2 * tiny;
  const double u_out = std::is_same_v<T, ArithmeticOf<T>> && !std::is_same_v<Policy, Accurate>
                           ? 0.0
                           : storage.unit_roundoff();
  Ratios worst;
  const double lse = static_cast<double>(exact.lse);
  const double lse_bound = h.sum + (std::fabs(lse) + h.sum) * u;
  for (const double computed : row.lse) {
    const double error =
        static_cast<double>(std::fabs(static_cast<long double>(computed) - exact.lse));
    worst.Raise({0.0, 0.0, error / (lse_bound * (1 + 0x1p-9))});
  }
  for (std::size_t j = 0; j < x.size(); ++j) {
    const auto p = static_cast<double>(exact.softmax[j]);
    const double error =
        static_cast<double>(std::fabs(static_cast<long double>(row.softmax[j]) - exact.softmax[j]));
    const double inside = p * std::expm1(h.weight) + eta;
    const double bound =
        inside + u_out * (p + inside) + (u_out > 0.0 ? storage.smallest_subnormal() : 0.0);
    worst.Raise({error / (bound * (1 + 0x1p-9)), 0.0, 0.0});

    const auto gap = static_cast<long double>(ValueOf(x[j])) - exact.lse;
    const auto size = static_cast<double>(std::fabs(gap));
    const double log_sum = std::log(static_cast<double>(x.size()) + 1.0) + 1.0;
    double log_inside = h.sum + u * (4.0 * size + 4.0 * log_sum + h.sum);
    if (algorithm == SoftmaxAlgorithm::kUnshifted || algorithm == SoftmaxAlgorithm::kTwoPass) {
      log_inside += 3.0 * u * (std::fabs(ValueOf(x[j])) + std::fabs(exact.max));
    }
    double log_error =
        static_cast<double>(std::fabs(static_cast<long double>(row.log_softmax[j]) - gap));
    if (size > storage.largest_finite() && row.log_softmax[j] == -kInfinity) log_error = 0.0;
    const double log_bound =
        log_inside + storage.unit_roundoff() * (size + log_inside) + storage.smallest_subnormal();
    worst.Raise({0.0, log_error / (log_bound * (1 + 0x1p-9)), 0.0});
  }
  return worst;
}

// Values of a scale, repeatable, with both signs.
std::vector<double> Numbers(std::size_t n, double scale, std::uint32_t seed) {
  std::vector<double> x(n);
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (double& value : x) {
    state = state * 1664525u + 1013904223u;
    value = scale * (static_cast<double>(state) * 0x1p-31 - 1.0);
  }
  return x;
}

template <class Function>
void ForEachPolicy(Function function) {
  function(Fast());
  function(Reproducible());
  function(Accurate());
}

template <class T>
class Softmax : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(Softmax, ElementTypes);

TYPED_TEST(Softmax, StaysWithinItsBound) {
  using T = TypeParam;
  std::vector<std::vector<T>> rows;
  for (std::size_t n = 1; n <= 257; ++n) {
    const double scales[] = {0.0, 1e-3, 1.0, 10.0, 60.0};
    rows.push_back(Rounded<T>(Numbers(n, scales[n % 5], static_cast<std::uint32_t>(n))));
  }
  std::vector<double> long_row = Numbers(1025, 20.0, 7);
  rows.push_back(Rounded<T>(long_row));
  std::sort(long_row.begin(), long_row.end());  // a rescaling for every block
  rows.push_back(Rounded<T>(long_row));
  std::reverse(long_row.begin(), long_row.end());
  rows.push_back(Rounded<T>(long_row));
  std::vector<std::vector<T>> wide;  // beyond the range of the unshifted exponential
  for (const double scale : {400.0, 1e4, 3e38}) {
    if (scale > FormatOf(DTypeOf<T>::value).largest_finite()) continue;
    for (const std::size_t n : {1u, 2u, 63u, 64u, 65u, 200u}) {
      wide.push_back(Rounded<T>(Numbers(n, scale, static_cast<std::uint32_t>(n))));
    }
  }
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const SoftmaxAlgorithm algorithm : kAlgorithms) {
      ForEachPolicy([&](auto policy) {
        Ratios worst;
        const auto check = [&](const std::vector<std::vector<T>>& all) {
          for (const std::vector<T>& x : all) {
            const Ratios ratios = ErrorOverBound(policy, algorithm, x);
            EXPECT_TRUE(ratios.AreAtMostOne())
                << target << " " << NameOf(algorithm) << " " << NameOf(kModeOf<decltype(policy)>)
                << ", n = " << x.size() << ": softmax " << ratios.softmax << ", log-softmax "
                << ratios.log_softmax << ", lse " << ratios.lse;
            worst.Raise(ratios);
          }
        };
        check(rows);
        if (algorithm != SoftmaxAlgorithm::kUnshifted) check(wide);
        if (std::getenv("ATTEST_PRINT") != nullptr) {
          std::printf("%-5s %-7s %-10s %-12s error/bound %.3f %.3f %.3f\n",
                      std::string(NameOf(DTypeOf<T>::value)).c_str(), std::string(target).c_str(),
                      std::string(NameOf(algorithm)).c_str(),
                      std::string(NameOf(kModeOf<decltype(policy)>)).c_str(), worst.softmax,
                      worst.log_softmax, worst.lse);
        }
      });
    }
  }
}

template <class T, class Check>
void ForEveryWay(Check check) {
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const SoftmaxAlgorithm algorithm : kSafe) {
      ForEachPolicy([&](auto policy) {
        SCOPED_TRACE(std::string(target) + " " + std::string(NameOf(algorithm)) + " " +
                     std::string(NameOf(kModeOf<decltype(policy)>)));
        check(policy, algorithm);
      });
    }
  }
}

TYPED_TEST(Softmax, EqualScoresGiveExactPowersOfTwo) {
  using T = TypeParam;
  ForEveryWay<T>([](auto policy, SoftmaxAlgorithm algorithm) {
    for (const std::size_t n : {1u, 2u, 8u, 64u, 512u}) {
      for (const double value : {0.0, -3.75, 1e4, -6e4}) {
        const T x = Rounded<T>(value);
        const Row<T> row = RunRow(policy, algorithm, std::vector<T>(n, x));
        // The two-pass weights go through one more product, which is not a power of two.
        const double slack = algorithm == SoftmaxAlgorithm::kTwoPass ? 0x1p-22 : 0.0;
        for (const double y : row.softmax) {
          EXPECT_NEAR(y, 1.0 / static_cast<double>(n), slack / static_cast<double>(n));
        }
      }
    }
  });
}

TYPED_TEST(Softmax, MinusInfinityHasWeightZero) {
  using T = TypeParam;
  ForEveryWay<T>([](auto policy, SoftmaxAlgorithm algorithm) {
    for (const std::size_t n : {2u, 3u, 63u, 64u, 65u, 130u, 200u}) {
      std::vector<double> x = Numbers(n, 3.0, 3), kept;
      for (std::size_t j = 0; j < n; ++j) {
        if (j % 3 == 1 || j / 64 == 1) {
          x[j] = -kInfinity;
        } else {
          kept.push_back(x[j]);
        }
      }
      const Row<T> row = RunRow(policy, algorithm, Rounded<T>(x));
      const ExactRow exact = Exact(Rounded<T>(kept));
      std::size_t k = 0;
      for (std::size_t j = 0; j < n; ++j) {
        if (std::isinf(x[j])) {
          EXPECT_EQ(row.softmax[j], 0.0);
          EXPECT_EQ(row.log_softmax[j], -kInfinity);
        } else {
          const auto p = static_cast<double>(exact.softmax[k++]);
          EXPECT_NEAR(row.softmax[j], p, p * 0x1p-8 + 0x1p-24);
        }
      }
      for (const double lse : row.lse) EXPECT_NEAR(lse, static_cast<double>(exact.lse), 1e-5);
    }
  });
}

TYPED_TEST(Softmax, RowsWithoutWeightAreZero) {
  using T = TypeParam;
  ForEveryWay<T>([](auto policy, SoftmaxAlgorithm algorithm) {
    for (std::size_t n = 0; n <= 130; n += n < 4 ? 1 : 21) {
      const Row<T> row = RunRow(policy, algorithm, Rounded<T>(std::vector<double>(n, -kInfinity)));
      EXPECT_EQ(row.softmax, std::vector<double>(n, 0.0));
      EXPECT_EQ(row.log_softmax, std::vector<double>(n, -kInfinity));
      for (const double lse : row.lse) EXPECT_EQ(lse, -kInfinity);
    }
  });
}

TYPED_TEST(Softmax, NanAndPlusInfinityFillTheRow) {
  using T = TypeParam;
  ForEveryWay<T>([](auto policy, SoftmaxAlgorithm algorithm) {
    for (const std::size_t n : {1u, 2u, 17u, 64u, 65u, 130u}) {
      for (const double special : {kNan, -kNan, kInfinity}) {
        for (const double rest : {0.5, -kInfinity, 6e4}) {
          for (std::size_t place = 0; place < n; place += 1 + place / 3) {
            std::vector<double> x(n, rest);
            x[place] = special;
            const Row<T> row = RunRow(policy, algorithm, Rounded<T>(x));
            std::size_t numbers = 0;
            for (const double y : row.softmax) numbers += !std::isnan(y);
            for (const double y : row.log_softmax) numbers += !std::isnan(y);
            for (const double lse : row.lse) numbers += !std::isnan(lse);
            EXPECT_EQ(numbers, 0u) << n << ", " << place << ", " << special << ", " << rest;
          }
        }
      }
    }
  });
}

TYPED_TEST(Softmax, TakesAnyRowStrideAndBaseAndWorksInPlace) {
  using T = TypeParam;
  ForEveryWay<T>([](auto policy, SoftmaxAlgorithm algorithm) {
    const Index rows = 3, n = 131, stride = 140;
    const std::vector<T> x = Rounded<T>(Numbers(static_cast<std::size_t>(rows * stride), 5.0, 11));
    std::vector<T> y(x.size(), Rounded<T>(kJunk)), in_place = x;
    std::vector<LseOf<T>> lse(3), lse_in_place(3);
    // Rows of x backwards.
    const View<const T, 2> backwards{x.data() + 2 * stride, {rows, n}, {-stride, 1}};
    const View<T, 2> out{y.data(), {rows, n}, {stride, 1}};
    ASSERT_TRUE(RowSoftmax(policy, algorithm, backwards, out, lse.data()).ok());
    const View<T, 2> view{in_place.data(), {rows, n}, {stride, 1}};
    ASSERT_TRUE(
        RowSoftmax(policy, algorithm, View<const T, 2>(view), view, lse_in_place.data()).ok());
    for (Index i = 0; i < rows; ++i) {
      const auto begin = x.begin() + i * stride;
      const std::vector<T> one(begin, begin + n);
      for (std::size_t offset = 1; offset < 4; ++offset) {
        const Row<T> row = RunRow(policy, algorithm, one, offset);
        EXPECT_EQ(row.lse[0], static_cast<double>(lse[static_cast<std::size_t>(2 - i)]));
        EXPECT_EQ(row.lse[0], static_cast<double>(lse_in_place[static_cast<std::size_t>(i)]));
        for (Index j = 0; j < stride; ++j) {
          const auto at = static_cast<std::size_t>(i * stride + j);
          const double expected = j < n ? row.softmax[static_cast<std::size_t>(j)] : kJunk;
          ASSERT_EQ(ValueOf(y[static_cast<std::size_t>((2 - i) * stride + j)]), expected);
          ASSERT_EQ(ValueOf(in_place[at]), j < n ? expected : ValueOf(x[at]));
        }
      }
    }
    // One row read three times; a null lse is allowed.
    const View<const T, 2> repeated{x.data(), {rows, n}, {0, 1}};
    ASSERT_TRUE(RowSoftmax(policy, algorithm, repeated, out, nullptr).ok());
    for (Index j = 0; j < n; ++j) {
      EXPECT_EQ(ValueOf(y[static_cast<std::size_t>(j)]),
                ValueOf(y[static_cast<std::size_t>(2 * stride + j)]));
    }
  });
}

TEST(SoftmaxArguments, AreRefusedWhenTheyCannotBeRead) {
  std::vector<float> x(12), y(12);
  const View<const float, 2> good{x.data(), {3, 4}, {4, 1}};
  const auto code = [](View<const float, 2> in, View<float, 2> out) {
    const StatusCode softmax =
        RowSoftmax(Fast(), SoftmaxAlgorithm::kShifted, in, out, nullptr).code();
    EXPECT_EQ(RowLogSoftmax(Fast(), SoftmaxAlgorithm::kShifted, in, out, nullptr).code(), softmax);
    return softmax;
  };
  EXPECT_EQ(code(good, {y.data(), {3, 4}, {4, 1}}), StatusCode::kOk);
  EXPECT_EQ(code(good, {y.data(), {4, 3}, {3, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(good, {y.data(), {3, 4}, {1, 3}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({x.data(), {3, 4}, {1, 3}}, {y.data(), {3, 4}, {4, 1}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(good, {y.data(), {3, 4}, {0, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(good, {nullptr, {3, 4}, {4, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({nullptr, {3, 0}, {0, 1}}, {nullptr, {3, 0}, {0, 1}}), StatusCode::kOk);
  const Status missing = RowLogSumExp(Fast(), SoftmaxAlgorithm::kShifted, good, nullptr);
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
}

TEST(UnshiftedSoftmax, OverflowsAndUnderflows) {
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    ForEachPolicy([&](auto policy) {
      // Accurate is Fast in double for floats: 709.8 and -745.2.
      const bool in_double = kModeOf<decltype(policy)> == Mode::kAccurate;
      const Row<float> over = RunRow(policy, SoftmaxAlgorithm::kUnshifted,
                                     std::vector<float>{in_double ? 710.5f : 89.0f, 0.0f});
      EXPECT_TRUE(std::isnan(over.softmax[0])) << target;
      EXPECT_EQ(over.lse[0], kInfinity);
      const Row<float> under = RunRow(policy, SoftmaxAlgorithm::kUnshifted,
                                      std::vector<float>(3, in_double ? -750.0f : -105.0f));
      EXPECT_EQ(under.softmax[0], 0.0) << target;
      EXPECT_EQ(under.lse[0], -kInfinity);
    });
  }
}

// Accurate against Fast on rows where Fast's argument of the exponential is rounded the most.
TEST(AccurateSoftmax, IsSeveralTimesMoreAccurateThanFast) {
  const auto worst_error = [](auto policy, const auto& x) {
    using T = std::remove_cvref_t<decltype(x[0])>;
    const ExactRow exact = Exact(x);
    const Row<T> row = RunRow(policy, SoftmaxAlgorithm::kShifted, x);
    double worst = 0.0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const auto error = std::fabs(static_cast<long double>(row.softmax[j]) - exact.softmax[j]);
      if (exact.softmax[j] > 1e-30L) {
        worst = std::max(worst, static_cast<double>(error / exact.softmax[j]));
      }
    }
    return worst;
  };
  std::vector<double> x = Numbers(4000, 76.0, 9);
  for (double& value : x) value /= 3.0;  // x_j - max is exact for short mantissas
  const std::vector<float> xf = Rounded<float>(x);
  EXPECT_LE(worst_error(Accurate(), xf) * 8.0, worst_error(Fast(), xf));
  EXPECT_LE(worst_error(Accurate(), xf), 0x1.0001p-24);  // one rounding
  EXPECT_LE(worst_error(Accurate(), x) * 4.0, worst_error(Fast(), x));
}

template <class T>
std::string DigestOf(SoftmaxAlgorithm algorithm) {
  std::vector<double> results;
  for (const std::size_t n : {1u, 63u, 64u, 65u, 257u, 1000u}) {
    for (const double scale : {0.5, 5.0, 50.0}) {
      const std::vector<T> x = Rounded<T>(Numbers(n, scale, static_cast<std::uint32_t>(n)));
      const Row<T> row = RunRow(Reproducible(), algorithm, x);
      results.insert(results.end(), row.softmax.begin(), row.softmax.end());
      results.insert(results.end(), row.log_softmax.begin(), row.log_softmax.end());
      results.insert(results.end(), row.lse, row.lse + 3);
    }
  }
  return Sha256(std::as_bytes(std::span(results)));
}

// Digests of Reproducible results: bits that no target, compiler or library may change.
TEST(ReproducibleSoftmax, BitsAreGolden) {
  const std::map<std::string, std::string> golden = {
      {"f32 unshifted", "d84aaad9ff4c4bdb02b58ce2af52b6dd082ff99f843c640395164ac482ab2040"},
      {"f64 unshifted", "4709b8359da6b9905bd532d23e62ffb836b4d7dc24028414659b6cce6fc6c5db"},
      {"bf16 unshifted", "d4fd9bcb80fae6e4d69b5512e40dae47c8c15c4abbaae7669a59ed48b8cae857"},
      {"f16 unshifted", "efce88081d5e68f12948b9fd01fb05bdc265eb7e2ba34c411fa4015431f3dd98"},
      {"f32 shifted", "0b7c36b123fbc1f04ee5d2c2fcdaa19b67a880e0ffd15aaa29335c2c5f676369"},
      {"f64 shifted", "d50b5b1591abed0977d030f6ddeae4cfe895cb2cc77cb88b121ff248d1d83231"},
      {"bf16 shifted", "e044775ea1e92958c219f42fba7fc2bda794eff2ba4408de43da8f047345205f"},
      {"f16 shifted", "efce88081d5e68f12948b9fd01fb05bdc265eb7e2ba34c411fa4015431f3dd98"},
      {"f32 online", "7ce1423d8c9e770dc56eb6344bb741798b98d0d691cd343041a26b3ae1a77e3a"},
      {"f64 online", "d50b5b1591abed0977d030f6ddeae4cfe895cb2cc77cb88b121ff248d1d83231"},
      {"bf16 online", "e044775ea1e92958c219f42fba7fc2bda794eff2ba4408de43da8f047345205f"},
      {"f16 online", "efce88081d5e68f12948b9fd01fb05bdc265eb7e2ba34c411fa4015431f3dd98"},
      {"f32 two-pass", "cf7bd1bdccc96b536ce741cb46dce4b103c799695fefc3d672f1526c06dbdbd9"},
      {"f64 two-pass", "e528b00efffd4bdf9a0a8dc58a585a13a0b3c1b68e9c633df61518f0cab04bd0"},
      {"bf16 two-pass", "e8367befddcdf60e37e3cceee76d0b3c8a5e2ff7ef70d3b39b75534442e7fdfc"},
      {"f16 two-pass", "3df705014297f4e9e3400a691d98e85e798621002a17a2e576ea244b91e48f8d"},
  };
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const SoftmaxAlgorithm algorithm : kAlgorithms) {
      const std::string name(NameOf(algorithm));
      const auto expected = [&](const std::string& type) {
        const auto found = golden.find(type + " " + name);
        return found == golden.end() ? std::string() : found->second;
      };
      EXPECT_EQ(DigestOf<float>(algorithm), expected("f32")) << "f32 " << name << ", " << target;
      EXPECT_EQ(DigestOf<double>(algorithm), expected("f64")) << "f64 " << name << ", " << target;
      EXPECT_EQ(DigestOf<BFloat16>(algorithm), expected("bf16"))
          << "bf16 " << name << ", " << target;
      EXPECT_EQ(DigestOf<Float16>(algorithm), expected("f16")) << "f16 " << name << ", " << target;
    }
  }
}

// Every 16-bit number widened; floats around every 16-bit number and midpoint rounded.
TEST(Elements, RoundAsCoreDoes) {
  for (const std::string_view target : RunnableTargets()) {
    SCOPED_TRACE(target);
    const auto scope = ScopedTarget::Force(target);
    std::size_t wrong = 0;
    for (std::uint32_t start = 0; start < 0x10000; start += 16) {
      for (const bool brain : {false, true}) {
        std::uint16_t bits[16], rounded[16];
        float widened[16], x[16];
        for (const std::uint32_t step :
             {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u}) {
          for (std::uint32_t i = 0; i < 16; ++i) {
            bits[i] = static_cast<std::uint16_t>(start + i);
            const float value = brain ? std::bit_cast<float>((start + i) << 16)
                                      : static_cast<float>(ToDouble(Float16{bits[i]}));
            x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + step);
          }
          if (brain) {
            HWY_DYNAMIC_DISPATCH(ConvertBFloat16)(bits, widened, x, rounded);
          } else {
            HWY_DYNAMIC_DISPATCH(ConvertFloat16)(bits, widened, x, rounded);
          }
          for (std::uint32_t i = 0; i < 16; ++i) {
            const auto xi = static_cast<double>(x[i]);
            const double value = brain ? ToDouble(BFloat16{bits[i]}) : ToDouble(Float16{bits[i]});
            const std::uint16_t expected =
                brain ? RoundToBFloat16(xi).bits : RoundToFloat16(xi).bits;
            const double got =
                brain ? ToDouble(BFloat16{rounded[i]}) : ToDouble(Float16{rounded[i]});
            const bool widened_right =
                std::isnan(value) ? std::isnan(widened[i])
                                  : std::bit_cast<std::uint64_t>(static_cast<double>(widened[i])) ==
                                        std::bit_cast<std::uint64_t>(value);
            const bool rounded_right = std::isnan(xi) ? std::isnan(got) : rounded[i] == expected;
            if (!widened_right || !rounded_right) ++wrong;
          }
        }
      }
    }
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace
}  // namespace attest
#endif  // HWY_ONCE
