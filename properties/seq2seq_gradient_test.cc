// SPDX-License-Identifier: Apache-2.0
// Gradients of whole models, each parameter's, against differences in arithmetic of 50 digits.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "experiments/seq2seq/model-inl.h"

namespace attest {
namespace {

using Real = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<50>,
                                           boost::multiprecision::et_off>;

struct Variant {
  std::string name;
  ModelOptions options;
};

std::vector<Variant> Variants() {
  std::vector<Variant> variants;
  for (const Architecture architecture : Architectures()) {
    ModelOptions options{.architecture = architecture,
                         .source_words = 7,
                         .target_words = 6,
                         .embedding = 2,
                         .encoder = 2,
                         .decoder = 4,
                         .attention = 3,
                         .half_width = 1.0,
                         .max_source = 3,
                         .heads = 2,
                         .feed_forward = 3,
                         .seed = 11};
    const std::string name(NameOf(architecture));
    variants.push_back({name, options});
    if (architecture == Architecture::kBahdanau || architecture == Architecture::kConcat) {
      options.kernel_scores = true;
      variants.push_back({name + "_kernel_scores", options});
      options.kernel_scores = false;
    }
    if (architecture == Architecture::kQueryKeyValue ||
        architecture == Architecture::kTransformer) {
      options.scaled = false;
      variants.push_back({name + "_unscaled", options});
      options.scaled = true;
    }
    if (architecture == Architecture::kFixed) {
      options.reverse_source = true;
      variants.push_back({name + "_reversed", options});
      options.bidirectional = false;
      variants.push_back({name + "_forward_only", options});
    }
  }
  for (Variant& variant : variants) {
    std::replace(variant.name.begin(), variant.name.end(), '-', '_');
  }
  return variants;
}

class WholeModel : public testing::TestWithParam<Variant> {};

TEST_P(WholeModel, GradientsAgreeWithDifferencesOfFiftyDigits) {
  const ModelOptions& options = GetParam().options;
  ASSERT_TRUE(CheckModelOptions(options).ok());
  // Different lengths: padding on both sides.
  const std::vector<SentencePair> pairs{{{4, 5, 6, 4}, {4, 5}, {}}, {{6, 3}, {5, 4, 4}, {}}};
  Model<double> model(options);
  const StatusOr<BatchResult> result = model.Run(pairs, true);
  ASSERT_TRUE(result.ok()) << result.status().message();
  Model<Real> exact(options);
  for (std::size_t i = 0; i < exact.values().size(); ++i) {
    exact.values()[i] = Real(model.values()[i]);
  }
  const Real loss = *exact.ExactLoss(pairs);
  EXPECT_NEAR(result->loss, static_cast<double>(loss), 1e-14 * result->loss);

  const Real step("1e-15");
  double worst = 0.0;
  std::size_t checked = 0;
  for (const ParameterSpec& spec : model.parameters()) {
    std::vector<double> differences;
    double largest = 0.0;
    for (Index i = spec.offset; i < spec.offset + spec.size(); ++i) {
      Real& value = exact.values()[static_cast<std::size_t>(i)];
      const Real kept = value;
      value = kept + step;
      const Real above = *exact.ExactLoss(pairs);
      value = kept - step;
      const Real below = *exact.ExactLoss(pairs);
      value = kept;
      differences.push_back(static_cast<double>((above - below) / (2 * step)));
      largest = std::max(largest, std::fabs(differences.back()));
    }
    for (Index i = 0; i < spec.size(); ++i) {
      const double difference = differences[static_cast<std::size_t>(i)];
      const double gradient = model.gradients()[static_cast<std::size_t>(spec.offset + i)];
      // Elements that nearly cancel are measured by a millionth of the parameter's largest.
      const double size = std::max(std::fabs(difference), 1e-6 * largest);
      const double error = std::fabs(gradient - difference);
      EXPECT_TRUE(error <= 1e-6 * size)
          << spec.name << "[" << i << "] is " << gradient << ", not " << difference;
      if (size > 0.0) worst = std::max(worst, error / size);
      ++checked;
    }
  }
  RecordProperty("parameters", static_cast<int>(checked));
  std::printf("%s: %zu parameters, largest relative error %.2e\n", GetParam().name.c_str(), checked,
              worst);
}

INSTANTIATE_TEST_SUITE_P(Every, WholeModel, testing::ValuesIn(Variants()),
                         [](const testing::TestParamInfo<Variant>& variant) {
                           return variant.param.name;
                         });

}  // namespace
}  // namespace attest
