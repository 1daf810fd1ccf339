// SPDX-License-Identifier: Apache-2.0
// Pass rules of public projects at their limits, and which faults pass under them.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "audit/judge.h"
#include "experiments/experiment.h"
#include "experiments/tolerance_rules.h"
#include "experiments/tolerance_subjects.h"
#include "properties/faults/unit_case.h"

namespace attest {
namespace {

bool Accepts(const std::string& name, const RuleInput& input) {
  for (const PassRule& rule : PassRules()) {
    if (rule.name == name) return rule.accepts(input);
  }
  ADD_FAILURE() << name;
  return false;
}

// One element with the exact value 1.
bool AcceptsOne(const std::string& name, DType dtype, double got, double plain = 1.0) {
  const std::vector<double> exact{1.0};
  const std::vector<double> gots{got};
  const std::vector<double> plains{plain};
  return Accepts(name, {dtype, false, exact, gots, plains});
}

TEST(PassRule, JudgesByItsPublishedLimit) {
  EXPECT_TRUE(AcceptsOne("ggml", DType::kF32, 1.02236));  // sqrt(5e-4) = 0.0223607
  EXPECT_FALSE(AcceptsOne("ggml", DType::kF32, 1.02237));
  EXPECT_TRUE(AcceptsOne("ONNX", DType::kF32, 1.0010));
  EXPECT_FALSE(AcceptsOne("ONNX", DType::kBF16, 1.0011));
  EXPECT_TRUE(AcceptsOne("PyTorch", DType::kF32, 1.0000112));
  EXPECT_FALSE(AcceptsOne("PyTorch", DType::kF32, 1.0000114));
  EXPECT_TRUE(AcceptsOne("PyTorch", DType::kBF16, 1.016));
  EXPECT_FALSE(AcceptsOne("PyTorch", DType::kF16, 1.0011));
  EXPECT_FALSE(AcceptsOne("PyTorch", DType::kF64, 1.0000003));
  EXPECT_TRUE(AcceptsOne("FlashAttention-2", DType::kBF16, 1.0078125, 0.99609375));
  EXPECT_FALSE(AcceptsOne("FlashAttention-2", DType::kBF16, 1.015625, 0.99609375));
  // 1 + 0.3 is 1.296875 in bf16, and 1.296875 - 0.3 is 0.99609375: 2^-8 is lost.
  EXPECT_TRUE(AcceptsOne("FlashAttention-3", DType::kBF16, 1.0078125));
  EXPECT_FALSE(AcceptsOne("FlashAttention-3", DType::kBF16, 1.015625));
  EXPECT_TRUE(AcceptsOne("MLX", DType::kF32, 1.0000199));
  EXPECT_FALSE(AcceptsOne("MLX", DType::kF32, 1.0000201));
  EXPECT_FALSE(AcceptsOne("MLX", DType::kF16, 1.000601));
  EXPECT_TRUE(AcceptsOne("JAX", DType::kF32, 1.0199));
  EXPECT_FALSE(AcceptsOne("JAX", DType::kF16, 1.0201));
  EXPECT_TRUE(AcceptsOne("TransformerEngine", DType::kBF16, 1.0299));
  EXPECT_FALSE(AcceptsOne("TransformerEngine", DType::kF16, 1.0021));
  EXPECT_TRUE(AcceptsOne("TransformerEngine FP8", DType::kF32, 1.5));
  EXPECT_FALSE(AcceptsOne("TransformerEngine FP8", DType::kF32, 1.5000001));
}

TEST(PassRule, OneDnnLetsSixElementsInTenThousandFail) {
  const std::vector<double> exact(10001, 2.0);
  std::vector<double> got = exact;
  std::fill(got.begin(), got.begin() + 6, 3.0);
  EXPECT_TRUE(Accepts("oneDNN", {DType::kF16, false, exact, got, exact}));
  got[6] = 2.00294;  // 2 * 0.001466 is 0.002932
  EXPECT_FALSE(Accepts("oneDNN", {DType::kF16, false, exact, got, exact}));
  EXPECT_TRUE(Accepts("oneDNN", {DType::kF32, false, exact, got, exact}));
}

// Scores 0 and 1.1015625 (ln 3 in bf16): the weights 0.24945 and 0.75055 are 255/1024 and 3/4 in
// bf16.
TEST(PlainHalfOut, RoundsWeightsToTheTensorsType) {
  Case problem = UnitCase({0, kLn3}, {4, 8}, 1, DType::kBF16);
  problem.contract.out_dtype = DType::kF32;
  ASSERT_TRUE(FinishCase(&problem).ok());
  const StatusOr<Expectation> expected = Expect(problem);
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  EXPECT_EQ(PlainHalfOut(problem, *expected), std::vector<double>{4.0 * 255.0 / 1024.0 + 6.0});
}

// Column `column` of the fault's row.
nlohmann::ordered_json CellOf(const nlohmann::ordered_json& table, const std::string& fault,
                              const std::string& column) {
  const nlohmann::ordered_json& columns = table["columns"];
  const auto at = std::find(columns.begin(), columns.end(), column) - columns.begin();
  for (const nlohmann::ordered_json& row : table["rows"]) {
    if (row[0] == fault) return row[static_cast<std::size_t>(at)];
  }
  ADD_FAILURE() << fault;
  return nullptr;
}

TEST(Tolerances, ShowWhatPassesAndRepeat) {
  ExperimentOptions options;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const StatusOr<nlohmann::ordered_json> record = RunExperiment("tolerances", options);
  ASSERT_TRUE(record.ok()) << record.status().message();
  const nlohmann::ordered_json& tables = (*record)["tables"];
  EXPECT_EQ((*record)["verdict"], "reproduced") << (*record)["summary"];
  const nlohmann::ordered_json& random = tables[2];
  const nlohmann::ordered_json& suite = tables[3];
  // An error of 1e-3 is an NMSE of 1e-6, and below 1e-2.
  EXPECT_EQ(CellOf(random, "weights-off-by-one-thousandth", "ggml"), 0);
  EXPECT_EQ(CellOf(random, "weights-off-by-one-thousandth", "JAX"), 0);
  EXPECT_GT(CellOf(random, "weights-off-by-one-thousandth", "bound"), 0);
  EXPECT_GT(CellOf(random, "weights-off-by-one-thousandth", "MLX"), 0);
  EXPECT_GT(CellOf(random, "scale-missing", "JAX"), 0);
  // No random score is below -50000.
  EXPECT_EQ(CellOf(random, "max-seed-5e4", "bound"), 0);
  EXPECT_EQ(CellOf(random, "max-seed-5e4", "PyTorch"), 0);
  EXPECT_GT(CellOf(suite, "max-seed-5e4", "bound"), 0);
  // A tolerance below the roundoff of 16 bits tells nothing by what it rejects there.
  EXPECT_EQ(CellOf(random, "max-seed-5e4", "ONNX"), 0);
  EXPECT_GT(CellOf(tables[4], "none", "ONNX"), 0);
  // Only the layout shows it.
  EXPECT_EQ(CellOf(suite, "strides-ignored", "bound"), 0);
  // The bound rejects nothing that is right.
  for (const nlohmann::ordered_json& row : tables[4]["rows"]) EXPECT_EQ(row[3], 0) << row;
  EXPECT_GE(tables[4]["rows"].size(), 36U);

  options.threads = 1;
  const StatusOr<nlohmann::ordered_json> again = RunExperiment("tolerances", options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(tables, (*again)["tables"]);
}

}  // namespace
}  // namespace attest
