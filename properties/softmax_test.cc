// SPDX-License-Identifier: Apache-2.0
// Row softmax of every SIMD target and algorithm against a softmax in double: within the bound of
// optimized/softmax-inl.h, and exact where arithmetic leaves no room.
#include "optimized/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "optimized/targets.h"

namespace attest {
namespace {

constexpr double kU = 0x1p-24;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kJunk = -1234.5f;

// A row and its softmax in double, whose own error (about n 2^-53) the slack of the bound covers.
struct ExactRow {
  std::vector<double> y;
  double lse = -std::numeric_limits<double>::infinity();
  double spread = 0.0;  // R: largest max - x_j among those at most 104
};

ExactRow ExactSoftmax(const std::vector<float>& x) {
  ExactRow exact{std::vector<double>(x.size())};
  if (x.empty()) return exact;
  const double max = static_cast<double>(*std::max_element(x.begin(), x.end()));
  if (std::isinf(max)) return exact;
  double sum = 0.0;
  for (const float xj : x) {
    const double gap = max - static_cast<double>(xj);
    sum += std::exp(-gap);
    if (gap <= 104.0) exact.spread = std::max(exact.spread, gap);
  }
  for (std::size_t j = 0; j < x.size(); ++j) {
    exact.y[j] = std::exp(static_cast<double>(x[j]) - max) / sum;
  }
  exact.lse = max + std::log(sum);
  return exact;
}

// Exponent H of the relative bound e^H - 1, as the header of optimized/softmax-inl.h has it.
double BoundExponent(SoftmaxAlgorithm algorithm, std::size_t n, double spread) {
  const double blocks = std::ceil(static_cast<double>(n) / 64.0);
  double h = 2.0 * (spread + 2.0) * kU + (blocks + 9.0) * kU;
  if (algorithm == SoftmaxAlgorithm::kOnline) h += (spread + 3.0 * blocks) * kU;
  return h * (1.0 + 1e-6);
}

using Param = std::tuple<std::string_view, SoftmaxAlgorithm>;

std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param)) +
         (std::get<1>(info.param) == SoftmaxAlgorithm::kOnline ? "Online" : "Shifted");
}

class Softmax : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    StatusOr<ScopedTarget> forced = ScopedTarget::Force(std::get<0>(GetParam()));
    ASSERT_TRUE(forced.ok()) << forced.status().message();
    scope_.emplace(std::move(forced).value());
  }

  static SoftmaxAlgorithm algorithm() { return std::get<1>(GetParam()); }

  struct Row {
    std::vector<float> y;
    float lse = kJunk;
  };

  // Softmax of one row between guard elements that must survive.
  static Row RunRow(const std::vector<float>& x) {
    const auto n = static_cast<Index>(x.size());
    std::vector<float> y(x.size() + 2, kJunk);
    Row row;
    const Status status = RowSoftmax(algorithm(), {x.data(), {1, n}, {n, 1}},
                                     {y.data() + 1, {1, n}, {n, 1}}, &row.lse);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(y.front(), kJunk);
    EXPECT_EQ(y.back(), kJunk);
    row.y.assign(y.begin() + 1, y.end() - 1);
    return row;
  }

  // Largest error over its bound; NaN when there is a NaN.
  struct Ratios {
    double y = 0.0;
    double lse = 0.0;
    bool AreAtMostOne() const { return y <= 1.0 && lse <= 1.0; }
  };

  // lse: l has a relative error of e^H - 1 at most, the maximum none; one rounding at the end.
  static Ratios ErrorOverBound(const std::vector<float>& x) {
    const ExactRow exact = ExactSoftmax(x);
    const Row row = RunRow(x);
    const double h = BoundExponent(algorithm(), x.size(), exact.spread);
    Ratios worst;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double error = std::fabs(static_cast<double>(row.y[j]) - exact.y[j]);
      const double ratio = error / (exact.y[j] * std::expm1(h) + 0x1p-148);
      if (!std::isnan(worst.y) && !(ratio <= worst.y)) worst.y = ratio;
    }
    const double lse_bound = h + (std::fabs(exact.lse) + h) * kU;
    worst.lse = std::fabs(static_cast<double>(row.lse) - exact.lse) / lse_bound;
    return worst;
  }

 private:
  std::optional<ScopedTarget> scope_;
};

// Values of a scale, repeatable, with both signs.
std::vector<float> Numbers(std::size_t n, double scale, std::uint32_t seed) {
  std::vector<float> x(n);
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (float& value : x) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(scale * (static_cast<double>(state) * 0x1p-31 - 1.0));
  }
  return x;
}

TEST_P(Softmax, StaysWithinItsBound) {
  Ratios worst;
  const auto check = [&](const std::vector<float>& x, const char* order) {
    const Ratios ratios = ErrorOverBound(x);
    EXPECT_TRUE(ratios.AreAtMostOne())
        << "n = " << x.size() << ", " << order << ": y " << ratios.y << ", lse " << ratios.lse;
    worst = {std::max(worst.y, ratios.y), std::max(worst.lse, ratios.lse)};
  };
  for (std::size_t n = 1; n <= 200; ++n) {
    for (const double scale : {0.0, 1e-3, 1.0, 10.0, 60.0, 1e4, 3e38}) {
      check(Numbers(n, scale, static_cast<std::uint32_t>(n)), "as drawn");
    }
  }
  for (const std::size_t n : {1000u, 4097u}) {
    std::vector<float> x = Numbers(n, 20.0, 7);
    check(x, "as drawn");
    std::sort(x.begin(), x.end());
    check(x, "rising: a rescaling for every block");
    std::reverse(x.begin(), x.end());
    check(x, "falling");
  }
  std::printf("softmax %s: largest error/bound: y %.3f, lse %.3f\n",
              NameOf(::testing::TestParamInfo<Param>(GetParam(), 0)).c_str(), worst.y, worst.lse);
}

TEST_P(Softmax, EqualScoresGiveExactPowersOfTwo) {
  for (const std::size_t n : {1u, 2u, 4u, 8u, 64u, 128u, 512u}) {
    for (const float value : {0.0f, -3.75f, 1e30f, -3e38f}) {
      const Row row = RunRow(std::vector<float>(n, value));
      for (const float y : row.y) EXPECT_EQ(y, 1.0f / static_cast<float>(n));
      EXPECT_EQ(row.lse,
                static_cast<float>(static_cast<double>(value) + std::log(static_cast<double>(n))));
    }
  }
}

TEST_P(Softmax, MinusInfinityHasWeightZero) {
  for (std::size_t n = 1; n <= 130; ++n) {
    std::vector<float> x = Numbers(n, 3.0, 3);
    std::vector<float> kept;
    for (std::size_t j = 0; j < n; ++j) {
      if (j % 3 == 1 || j / 64 == 1) {
        x[j] = -kInfinity;
      } else {
        kept.push_back(x[j]);
      }
    }
    EXPECT_TRUE(ErrorOverBound(x).AreAtMostOne()) << n;
    const Row row = RunRow(x);
    for (std::size_t j = 0; j < n; ++j) {
      if (x[j] == -kInfinity) {
        EXPECT_EQ(row.y[j], 0.0f);
      }
    }
    EXPECT_NEAR(row.lse, ExactSoftmax(kept).lse, 1e-5);
  }
}

TEST_P(Softmax, RowsWithoutWeightAreZero) {
  for (std::size_t n = 0; n <= 130; ++n) {
    const Row row = RunRow(std::vector<float>(n, -kInfinity));
    EXPECT_EQ(row.y, std::vector<float>(n, 0.0f));
    EXPECT_EQ(row.lse, -kInfinity);
  }
}

TEST_P(Softmax, NanAndPlusInfinityFillTheRow) {
  for (const std::size_t n : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 130u}) {
    for (const float special : {kNan, -kNan, kInfinity}) {
      for (const float rest : {0.5f, -kInfinity, 3e38f}) {
        for (std::size_t place = 0; place < n; ++place) {
          std::vector<float> x(n, rest);
          x[place] = special;
          const Row row = RunRow(x);
          for (const float y : row.y) EXPECT_TRUE(std::isnan(y)) << n << ", " << place;
          EXPECT_TRUE(std::isnan(row.lse)) << n << ", " << place;
        }
      }
    }
  }
}

TEST_P(Softmax, TakesAnyRowStrideAndWorksInPlace) {
  const Index rows = 3, n = 67, stride = 80;
  const std::vector<float> x = Numbers(static_cast<std::size_t>(rows * stride), 5.0, 11);
  std::vector<float> y(x.size(), kJunk), in_place = x, lse(3), lse_in_place(3);
  // Rows of x backwards.
  ASSERT_TRUE(RowSoftmax(algorithm(), {x.data() + 2 * stride, {rows, n}, {-stride, 1}},
                         {y.data(), {rows, n}, {stride, 1}}, lse.data())
                  .ok());
  const View<float, 2> view{in_place.data(), {rows, n}, {stride, 1}};
  ASSERT_TRUE(RowSoftmax(algorithm(), view, view, lse_in_place.data()).ok());
  for (Index i = 0; i < rows; ++i) {
    const auto begin = x.begin() + i * stride;
    const Row row = RunRow(std::vector<float>(begin, begin + n));
    EXPECT_EQ(row.lse, lse[static_cast<std::size_t>(2 - i)]);
    EXPECT_EQ(row.lse, lse_in_place[static_cast<std::size_t>(i)]);
    for (Index j = 0; j < stride; ++j) {
      const auto at = static_cast<std::size_t>(i * stride + j);
      const float expected = j < n ? row.y[static_cast<std::size_t>(j)] : kJunk;
      EXPECT_EQ(y[static_cast<std::size_t>((2 - i) * stride + j)], expected);
      EXPECT_EQ(in_place[at], j < n ? expected : x[at]);
    }
  }
  // One row read three times; a null lse is allowed.
  ASSERT_TRUE(RowSoftmax(algorithm(), {x.data(), {rows, n}, {0, 1}},
                         {y.data(), {rows, n}, {stride, 1}}, nullptr)
                  .ok());
  for (Index j = 0; j < n; ++j) {
    EXPECT_EQ(y[static_cast<std::size_t>(j)], y[static_cast<std::size_t>(2 * stride + j)]);
  }
}

TEST_P(Softmax, RefusesWhatItCannotRead) {
  std::vector<float> x(12), y(12);
  const View<const float, 2> good{x.data(), {3, 4}, {4, 1}};
  const auto code = [](View<const float, 2> in, View<float, 2> out) {
    return RowSoftmax(algorithm(), in, out, nullptr).code();
  };
  EXPECT_EQ(code(good, {y.data(), {3, 4}, {4, 1}}), StatusCode::kOk);
  EXPECT_EQ(code(good, {y.data(), {4, 3}, {3, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(good, {y.data(), {3, 4}, {1, 3}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({x.data(), {3, 4}, {1, 3}}, {y.data(), {3, 4}, {4, 1}}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code(good, {y.data(), {3, 4}, {0, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(good, {nullptr, {3, 4}, {4, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({nullptr, {3, 0}, {0, 1}}, {nullptr, {3, 0}, {0, 1}}), StatusCode::kOk);
}

INSTANTIATE_TEST_SUITE_P(Targets, Softmax,
                         ::testing::Combine(::testing::ValuesIn(RunnableTargets()),
                                            ::testing::Values(SoftmaxAlgorithm::kShifted,
                                                              SoftmaxAlgorithm::kOnline)),
                         NameOf);

TEST(SoftmaxBits, DependOnlyOnWhetherMulAddIsFused) {
  const std::vector<float> x = Numbers(1000, 20.0, 5);
  for (const auto algorithm : {SoftmaxAlgorithm::kShifted, SoftmaxAlgorithm::kOnline}) {
    std::vector<float> fused, unfused;
    for (const std::string_view name : RunnableTargets()) {
      const auto scope = ScopedTarget::Force(name);
      std::vector<float> y(1001);
      ASSERT_TRUE(RowSoftmax(algorithm, {x.data(), {1, 1000}, {0, 1}},
                             {y.data(), {1, 1000}, {0, 1}}, &y[1000])
                      .ok());
      std::vector<float>& first = name.starts_with("AVX") ? fused : unfused;
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << name;
    }
  }
}

}  // namespace
}  // namespace attest
