// SPDX-License-Identifier: Apache-2.0
// The textbook gradient against central differences of the textbook's own forward formula.
//
// With 100 digits and a step of 1e-30 the differences are good to about 1e-60 (the third derivative
// times the step squared; rounding adds 1e-100 / 1e-30), so that a wrong formula cannot hide.
#include "reference/textbook_gradient-inl.h"

#include <gtest/gtest.h>

#include <boost/multiprecision/eigen.hpp>
#include <boost/multiprecision/mpfr.hpp>
#include <cstdint>
#include <string>

#include "properties/gradient_case.h"
#include "reference/textbook.h"

namespace attest {
namespace {

using Number = boost::multiprecision::number<
    boost::multiprecision::mpfr_float_backend<100, boost::multiprecision::allocate_stack>,
    boost::multiprecision::et_off>;

Case WithGradients(unsigned features, ScoreKind score) {
  return CombinedWithGradients(features, score);
}

// sum grad_out o out + sum grad_lse o LSE over the rows that have an LSE, at a case with one
// element moved. Rows without an allowed key have out = 0 under the policy `zero`, whatever v
// holds.
Number Loss(const Case& problem, const Tensor& nudged, Index flat, const Number& step) {
  Textbook<Number> textbook(problem);
  textbook.inputs().SetNudge({&nudged, flat, step});
  TextbookValues<Number> values;
  for (Index b = 0; b < problem.contract.shape.batch; ++b) {
    for (Index h = 0; h < problem.contract.shape.q_heads; ++h) {
      textbook.AppendOutputs(textbook.OneHead(b, h), &values);
    }
  }
  Number loss(0.0);
  for (const auto& [output, name] : {std::pair{"out", "grad_out"}, {"lse", "grad_lse"}}) {
    const Tensor* gradient = problem.Find(name);
    if (gradient == nullptr) continue;
    for (Index i = 0; i < gradient->size(); ++i) {
      const Number& value = values.at(output)[static_cast<std::size_t>(i)];
      if (isfinite(value)) loss += Number(gradient->At(i)) * value;
    }
  }
  return loss;
}

// The largest |gradient - difference| / (1 + |difference|) over `count` elements of every gradient
// of `gradients`; the differences are those of `problem`.
double LargestMismatch(const Case& problem, const TextbookValues<Number>& gradients, Index count) {
  const Number step(pow(Number(10.0), -30));
  double largest = 0.0;
  for (const auto& [output, gradient] : gradients) {
    if (!output.starts_with("grad_")) continue;
    const Tensor& tensor = *problem.Find(output.substr(5));
    for (Index t = 0; t < std::min(count, tensor.size()); ++t) {
      const Index flat = count >= tensor.size() ? t : (t * 7919 + 5) % tensor.size();
      const Number up = Loss(problem, tensor, flat, step);
      const Number down = Loss(problem, tensor, flat, Number(-step));
      const Number difference((up - down) / (Number(2.0) * step));
      const Number error(abs(Number(gradient[static_cast<std::size_t>(flat)] - difference)));
      largest = std::max(largest, static_cast<double>(Number(error / (1 + abs(difference)))));
    }
  }
  return largest;
}

TextbookValues<Number> GradientsOf(const Case& problem) {
  return EvaluateTextbook(Textbook<Number>(problem));
}

constexpr double kDifferenceError = 1e-55;

class TextbookGradientTest : public ::testing::TestWithParam<ScoreKind> {};

TEST_P(TextbookGradientTest, IsTheDifferenceOfTheForwardFormula) {
  // Every feature alone, then combinations of many.
  std::vector<unsigned> combinations{0, 0xdb6, 0x5b7, 0xf6f, 0xfff};
  for (unsigned bit = 0; bit < 12; ++bit) combinations.push_back(1u << bit);
  combinations.push_back(3u << 10);  // dropout needs a keep mask, which needs the local window
  combinations.push_back(0x103);     // an explicit scale, a bias, a mask and sinks
  for (const unsigned features : combinations) {
    const Case problem = WithGradients(features, GetParam());
    EXPECT_LT(LargestMismatch(problem, GradientsOf(problem), 1), kDifferenceError)
        << "features " << features;
  }
}

TEST_P(TextbookGradientTest, IsTheDifferenceInManyElements) {
  const Case problem = WithGradients(0x122, GetParam());  // bias, soft cap and sinks
  EXPECT_LT(LargestMismatch(problem, GradientsOf(problem), 12), kDifferenceError);
}

// A bias of a few elements: its gradient sums over the axes that it repeats.
TEST_P(TextbookGradientTest, SumsOverTheAxesOfABroadcastBias) {
  for (const Shape& shape : {Shape{1, 1, 1, 7}, Shape{2, 1, 5, 1}, Shape{1, 4, 1, 1}}) {
    Case problem = WithGradients(2, GetParam());
    problem.tensors["bias"] = NormalTensor(DType::kF64, shape, "bias");
    ASSERT_TRUE(FinishCase(&problem).ok());
    EXPECT_LT(LargestMismatch(problem, GradientsOf(problem), 4), kDifferenceError);
  }
}

// The policy of empty rows decides no gradient, also where out depends on v.
TEST_P(TextbookGradientTest, IsZeroForRowsWithoutAKey) {
  Case problem = WithGradients(9, GetParam());  // mask and query lengths
  const TextbookValues<Number> zero = GradientsOf(problem);
  for (const EmptyRow policy : {EmptyRow::kUniform, EmptyRow::kNan}) {
    problem.contract.empty_row = policy;
    const TextbookValues<Number> other = GradientsOf(problem);
    for (const char* name : {"grad_q", "grad_k", "grad_v"}) {
      EXPECT_EQ(zero.at(name), other.at(name)) << name;
    }
  }
}

// The check notices a gradient that leaves out any one thing: it is compared with the differences
// of a case that has it.
TEST_P(TextbookGradientTest, MismatchIsSeen) {
  const auto expect_seen = [](const Case& problem, const Case& without, const char* what) {
    EXPECT_GT(LargestMismatch(problem, GradientsOf(without), 4), 1e-6) << what;
  };
  const Case problem = WithGradients(0xd22 | 8, GetParam());  // bias, cap, sinks, local, dropout
  Case without = problem;
  without.contract.softcap = 0.0;
  expect_seen(problem, without, "soft cap");
  without = problem;
  without.contract.dropout_rate = 0.0;
  expect_seen(problem, without, "dropout");
  without = problem;
  without.contract.local->gaussian = false;
  expect_seen(problem, without, "gaussian");
  without = problem;
  without.contract.scale = {false, 1.25};
  expect_seen(problem, without, "scale");
  without = problem;
  without.tensors.erase("grad_lse");
  if (problem.Find("grad_lse") != nullptr) expect_seen(problem, without, "grad_lse");
}

INSTANTIATE_TEST_SUITE_P(Scores, TextbookGradientTest,
                         ::testing::Values(ScoreKind::kDot, ScoreKind::kGeneral,
                                           ScoreKind::kAdditive));

// The two number types agree, gradients included.
TEST(Textbook, GradientsAgreeBetweenNumberTypes) {
  for (const ScoreKind score : {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    const Case problem = WithGradients(0xd22, score);
    const TextbookResult a = EvaluateTextbook(problem, TextbookNumber::kMpfr100);
    const TextbookResult b = EvaluateTextbook(problem, TextbookNumber::kCppBinFloat100);
    ASSERT_EQ(a.size(), problem.contract.outputs.size());
    for (const auto& [name, tensor] : a) {
      ASSERT_EQ(static_cast<Index>(tensor.hi.size()), ElementCount(OutputShape(problem, name)));
      for (std::size_t i = 0; i < tensor.hi.size(); ++i) {
        if (!std::isfinite(tensor.hi[i])) continue;
        const TextbookTensor& other = b.at(name);
        const double difference = (tensor.hi[i] - other.hi[i]) + (tensor.lo[i] - other.lo[i]);
        EXPECT_LE(std::abs(difference), 1e-30 * std::max(1e-3, std::abs(tensor.hi[i]))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace attest
