// SPDX-License-Identifier: Apache-2.0
// The validation of kernels itself: it sees wrong elements and bits, and what it draws is varied.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "optimized/targets.h"
#include "properties/kernel_validation/kernel_validation.h"

namespace attest {
namespace {

const Family* FamilyOf(const std::string& name) {
  for (const Family* family : AllKernelFamilies()) {
    if (name == family->name) return family;
  }
  return nullptr;
}

KernelValidationOptions OptionsFor(const std::string& family, Index cases) {
  KernelValidationOptions options;
  options.kernels = {"tiled", "tiled-reproducible", "decode-reproducible"};
  options.families = {FamilyOf(family)};
  options.most_cases = cases;
  options.threads = 1;
  return options;
}

// A run in which element 0 of `tensor` is moved by so many of its bounds, on one kernel and target.
ValidationTally Moved(const std::string& family, const std::string& tensor, double bounds) {
  KernelValidationOptions options = OptionsFor(family, 1);
  options.tamper = [&](const KernelAndTarget& key, const Case&, const Expectation& expected,
                       TensorMap* outputs) {
    if (key.first != "tiled" || key.second != RunnableTargets()[0]) return;
    Tensor& got = outputs->at(tensor);
    got.Set(0, expected.certified.outputs.at(tensor).values[0].nearest +
                   bounds * BoundOf(expected, tensor, 0));
  };
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  EXPECT_TRUE(validation.ok());
  return validation->tally;
}

TEST(KernelValidation, AcceptsTheKernels) {
  for (const char* family : {"rules", "non_finite", "rising_scores", "gaussian"}) {
    const StatusOr<KernelValidation> validation = ValidateKernels(OptionsFor(family, 4));
    ASSERT_TRUE(validation.ok());
    EXPECT_TRUE(validation->ok()) << family;
    EXPECT_EQ(validation->tally.cases, 4);
    EXPECT_EQ(validation->tally.kernels.size(), 3 * RunnableTargets().size());
    EXPECT_GT(validation->tally.fewest_elements(), 0);
    EXPECT_GT(validation->tally.across_targets.compared, 0);
    EXPECT_GT(validation->tally.across_threads.compared, 0);
    EXPECT_GT(validation->tally.decode_and_tiled.compared, 0);
  }
}

// The specimen overflows where scores rise above 88.7.
TEST(KernelValidation, SeesTheSpecimenFail) {
  KernelValidationOptions options = OptionsFor("rising_scores", 1);
  options.first_index = 69;  // scores up to 138
  options.kernels = {"materialised-unshifted"};
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  ASSERT_TRUE(validation.ok());
  for (const auto& [key, kernel] : validation->tally.kernels) {
    EXPECT_GT(kernel.violations, 0) << key.second;
  }
  const std::vector<std::string> names = KernelsToValidate();
  EXPECT_EQ(std::count(names.begin(), names.end(), "materialised-unshifted"), 0);
}

// A row without keys under the policy `uniform`: both take the mean of the values in double.
TEST(KernelValidation, HoldsDecodeToTheBitsOfTiled) {
  KernelValidationOptions options = OptionsFor("boolean_mask", 1);
  options.kernels = {"tiled-reproducible", "decode-reproducible"};
  options.seed = 11;
  options.first_index = 8;
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  ASSERT_TRUE(validation.ok());
  EXPECT_GT(validation->tally.decode_and_tiled.compared, 0);
  EXPECT_EQ(validation->tally.decode_and_tiled.different, 0);
}

// Two bounds off is a violation in the kernel, target, case, tensor and element where it is; half a
// bound is none. Three threads do not give the moved bits.
TEST(KernelValidation, SeesAnElementTwoBoundsOff) {
  for (const char* tensor : {"out", "lse"}) {
    const ValidationTally tally = Moved("head_sizes", tensor, 2.0);
    ASSERT_EQ(tally.violations.size(), 2u) << tensor;
    const KernelViolation& violation = tally.violations[0];
    EXPECT_EQ(violation.kernel, "tiled");
    EXPECT_EQ(violation.target, RunnableTargets()[0]);
    EXPECT_EQ(violation.case_name, "head_sizes/0");
    EXPECT_EQ(violation.what, "above its bound");
    EXPECT_EQ(violation.tensor, tensor);
    EXPECT_EQ(violation.index, std::vector<Index>(violation.index.size(), 0));
    EXPECT_GT(std::fabs(violation.got - violation.exact), violation.bound);
    EXPECT_NE(ToLine(violation).find(violation.case_name), std::string::npos);
    EXPECT_EQ(tally.violations[1].what, "bits differ from one thread");
  }
}

TEST(KernelValidation, TakesAnElementHalfABoundOff) {
  const ValidationTally tally = Moved("head_sizes", "out", 0.5);
  for (const KernelViolation& violation : tally.violations) {
    EXPECT_EQ(violation.what, "bits differ from one thread");
  }
}

TEST(KernelValidation, SeesANaN) {
  KernelValidationOptions options = OptionsFor("head_sizes", 1);
  options.tamper = [](const KernelAndTarget&, const Case&, const Expectation&, TensorMap* outputs) {
    outputs->at("out").Set(0, std::nan(""));
  };
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  ASSERT_TRUE(validation.ok());
  for (const auto& [key, kernel] : validation->tally.kernels) EXPECT_GE(kernel.violations, 1);
}

// The last bit of one element, on one target only.
TEST(KernelValidation, SeesOneBitBetweenTargets) {
  if (RunnableTargets().size() < 2) GTEST_SKIP() << "one SIMD target";
  KernelValidationOptions options = OptionsFor("head_sizes", 1);
  options.kernels = {"tiled-reproducible"};
  options.tamper = [](const KernelAndTarget& key, const Case&, const Expectation&,
                      TensorMap* outputs) {
    if (key.second != RunnableTargets()[1]) return;
    Tensor& out = outputs->at("out");
    out.bytes()[0] ^= std::byte{1};
  };
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  ASSERT_TRUE(validation.ok());
  EXPECT_EQ(validation->tally.across_targets.different, 1);
  EXPECT_FALSE(validation->ok());
}

TEST(KernelValidation, SeesAMissingOutput) {
  KernelValidationOptions options = OptionsFor("head_sizes", 1);
  options.kernels = {"tiled"};
  options.tamper = [](const KernelAndTarget&, const Case&, const Expectation&, TensorMap* outputs) {
    outputs->erase("lse");
  };
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  ASSERT_TRUE(validation.ok());
  EXPECT_FALSE(validation->ok());
}

TEST(KernelValidation, CountsTheSameForTheSameSeed) {
  KernelValidationOptions options = OptionsFor("lengths", 6);
  const StatusOr<KernelValidation> once = ValidateKernels(options);
  options.threads = 2;
  const StatusOr<KernelValidation> again = ValidateKernels(options);
  ASSERT_TRUE(once.ok() && again.ok());
  EXPECT_EQ(ToJson(once->tally), ToJson(again->tally));
}

// Every family draws cases, and together they have every part of the contract and every type.
TEST(KernelFamilies, DrawTheWholeContract) {
  std::set<std::string> seen;
  for (const Family* family : AllKernelFamilies()) {
    for (Index index = 0; index < 8; ++index) {
      const StatusOr<Case> problem = DrawKernelCase(*family, 0, index);
      ASSERT_TRUE(problem.ok()) << family->name << ": " << problem.status().message();
      const Contract& contract = problem->contract;
      EXPECT_EQ(contract.arithmetic.profile, contract.dtype == DType::kF64 ? "f64" : "f32");
      seen.insert(std::string(NameOf(contract.dtype)));
      for (const auto& [name, tensor] : problem->tensors) seen.insert(name);
      for (const std::string& output : contract.outputs) seen.insert(output);
      if (contract.shape.kv_len == 0) seen.insert("no keys");
      if (contract.shape.q_heads > contract.shape.kv_heads) seen.insert("groups");
      if (contract.softcap > 0.0) seen.insert("soft cap");
      if (contract.window.left >= 0) seen.insert("window");
      if (contract.causal == Causal::kTopLeft) seen.insert("top left");
      if (contract.causal == Causal::kBottomRight) seen.insert("bottom right");
      if (contract.empty_row == EmptyRow::kUniform) seen.insert("uniform");
    }
  }
  for (const char* part :
       {"f32",       "f64",          "bf16",      "f16",         "mask",         "bias",
        "keep",      "kv_lengths",   "q_lengths", "q_documents", "kv_documents", "alibi_slopes",
        "sinks",     "local_center", "w",         "w_q",         "w_k",          "b",
        "v_a",       "grad_out",     "grad_lse",  "grad_q",      "grad_k",       "grad_v",
        "grad_bias", "grad_sinks",   "grad_w",    "grad_w_q",    "grad_w_k",     "grad_b",
        "grad_v_a",  "weights",      "no keys",   "groups",      "soft cap",     "window",
        "top left",  "bottom right", "uniform"}) {
    EXPECT_TRUE(seen.contains(part)) << part;
  }
}

}  // namespace
}  // namespace attest
