// SPDX-License-Identifier: Apache-2.0
// Row softmax against certified weights within the bound of Blanchard, Higham and Higham (2021).
#include "optimized/softmax.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/case.h"
#include "core/random.h"
#include "optimized/targets.h"
#include "reference/certify.h"

namespace attest {
namespace {

// Scores by exponent class: constant, moderate, spread over hundreds, tiny, with ties.
enum class Scores { kConstant, kNormal, kSpread, kTiny, kTies };

std::vector<float> DrawRow(Index n, Scores kind, std::uint64_t seed) {
  const RandomStream stream(seed, "softmax", "x");
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::size_t j = 0; j < row.size(); ++j) {
    switch (kind) {
      case Scores::kConstant:
        row[j] = static_cast<float>(3.0 * stream.Normal(0));
        break;
      case Scores::kNormal:
        row[j] = static_cast<float>(stream.Normal(j));
        break;
      case Scores::kSpread:
        row[j] = static_cast<float>(60.0 * stream.Normal(j));
        break;
      case Scores::kTiny:
        row[j] = static_cast<float>(1e-30 * stream.Normal(j));
        break;
      case Scores::kTies:
        row[j] = static_cast<float>(stream.Below(j, 3)) - 1.0f;
        break;
    }
  }
  return row;
}

// softmax(x) as attention weights: one query of 1, keys x, scale 1.
Certified CertifiedSoftmax(const std::vector<float>& row) {
  Case problem;
  const auto n = static_cast<Index>(row.size());
  problem.contract.shape = {1, 1, 1, 1, n, 1, 1, 1};
  problem.contract.scale = {false, 1.0};
  problem.contract.outputs = {"lse", "weights"};
  problem.tensors["q"] = Tensor(DType::kF32, {1, 1, 1, 1});
  problem.tensors["q"].Set(0, 1.0);
  problem.tensors["k"] = Tensor(DType::kF32, {1, 1, n, 1});
  problem.tensors["v"] = Tensor(DType::kF32, {1, 1, n, 1});
  std::copy(row.begin(), row.end(), problem.tensors["k"].data<float>());
  StatusOr<Certified> certified = Certify(problem);
  EXPECT_TRUE(certified.ok());
  return *std::move(certified);
}

class RowSoftmaxProperties
    : public ::testing::TestWithParam<std::tuple<SoftmaxAlgorithm, Mode, std::string_view>> {};

Status RunRow(Mode mode, SoftmaxAlgorithm algorithm, View<const float, 2> x, View<float, 2> y) {
  switch (mode) {
    case Mode::kFast:
      return RowSoftmax(Fast(), algorithm, x, y, nullptr);
    case Mode::kReproducible:
      return RowSoftmax(Reproducible(), algorithm, x, y, nullptr);
    case Mode::kAccurate:
      return RowSoftmax(Accurate(), algorithm, x, y, nullptr);
  }
  return Status();
}

// ||g - g^||_inf / ||g||_inf <= [n + 2 + 2 (xmax - xmin)] u for the shifted algorithm with an
// exponential that is accurate to u (Blanchard et al. 2021, Thm 4.3, eq. 4.11). One ULP is up to
// 2u, so an exponential of 1 ULP adds 2u where theirs has u: once in a weight, once in the sum. The
// online algorithm rescales at most n times by such an exponential and a product. The change of
// base rounds (x_j - max) log2 e once more, and log2 e is off by less than u/2, so that the spread
// counts 2.5 times; Accurate rounds once, whatever the row. Underflow of the smallest weights is
// absolute, 2^-126 at most.
TEST_P(RowSoftmaxProperties, StaysWithinBlanchardBound) {
  const SoftmaxAlgorithm algorithm = std::get<0>(GetParam());
  const StatusOr<ScopedTarget> forced = ScopedTarget::Force(std::get<2>(GetParam()));
  const Mode mode = std::get<1>(GetParam());
  ASSERT_TRUE(forced.ok());
  double worst = 0.0;
  EXPECT_TRUE(rc::check([&] {
    // At the full size from the first draw on, see case_generator.h.
    const auto n = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Index>(1, 200));
    const auto kind = *rc::gen::element(Scores::kConstant, Scores::kNormal, Scores::kSpread,
                                        Scores::kTiny, Scores::kTies);
    const auto seed =
        *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1000000));
    RC_CLASSIFY(kind == Scores::kSpread, std::string("spread"));
    RC_CLASSIFY(n > 16, std::string("more than one vector"));
    std::vector<float> row = DrawRow(n, kind, seed);
    std::vector<float> y(row.size(), NAN);
    const View<const float, 2> in{row.data(), {1, n}, {n, 1}};
    const View<float, 2> out{y.data(), {1, n}, {n, 1}};
    RC_ASSERT(RunRow(mode, algorithm, in, out).ok());

    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    const double spread = static_cast<double>(*high) - static_cast<double>(*low);
    const double length = static_cast<double>(n);
    double roundings = length + 2.0 + 2.0 * 2.5 * spread + 4.0;
    if (algorithm == SoftmaxAlgorithm::kOnline) roundings += 3.0 * length;
    if (mode == Mode::kAccurate) roundings = 1.0 + 0x1p-20;
    const Certified certified = CertifiedSoftmax(row);
    const std::vector<CertifiedValue>& exact = certified.outputs.at("weights").values;
    double largest = 0.0;
    for (const CertifiedValue& p : exact) largest = std::max(largest, p.hi);
    const double bound = roundings * 0x1p-24 * largest + 0x1p-126;
    for (std::size_t j = 0; j < y.size(); ++j) {
      const double error = std::fabs(static_cast<double>(y[j]) - exact[j].hi);
      RC_ASSERT(error <= bound);
      worst = std::max(worst, error / bound);
    }
  }));
  RecordProperty("worst_error_over_bound", std::to_string(worst));
  EXPECT_GT(worst, 0.0);  // draws on which nothing is rounded would show nothing
}

INSTANTIATE_TEST_SUITE_P(
    Targets, RowSoftmaxProperties,
    ::testing::Combine(::testing::Values(SoftmaxAlgorithm::kShifted, SoftmaxAlgorithm::kOnline,
                                         SoftmaxAlgorithm::kTwoPass),
                       ::testing::Values(Mode::kFast, Mode::kReproducible, Mode::kAccurate),
                       ::testing::ValuesIn(RunnableTargets())));

}  // namespace
}  // namespace attest
