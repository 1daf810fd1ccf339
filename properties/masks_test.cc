// SPDX-License-Identifier: Apache-2.0
// Conventions for masks: what each gives, by numbers that were computed by other means.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "experiments/experiment.h"
#include "experiments/mask_conventions.h"
#include "properties/faults/fault_catalogue.h"
#include "reference/certify.h"

namespace attest {
namespace {

std::string TextOf(const nlohmann::ordered_json& record, const std::string& question,
                   const std::string& reading) {
  for (const nlohmann::ordered_json& row : record["tables"][0]["rows"]) {
    if (row[0] == question && row[2] == reading) return row[3];
  }
  ADD_FAILURE() << question << ": " << reading;
  return "";
}

TEST(Masks, GiveWhatTheConventionsSay) {
  const StatusOr<nlohmann::ordered_json> run = RunExperiment("masks", {});
  ASSERT_TRUE(run.ok()) << run.status().message();
  const nlohmann::ordered_json& record = *run;
  EXPECT_EQ(record["verdict"], "reproduced") << record["summary"];
  // Row 0 by softmax in 40 digits.
  const std::string mask = "boolean mask";
  EXPECT_EQ(TextOf(record, mask, "true keeps").substr(0, 7), "4.03361");
  EXPECT_EQ(TextOf(record, mask, "true drops").substr(0, 7), "10.7144");
  EXPECT_EQ(TextOf(record, mask, "added as 0 or 1").substr(0, 7), "4.43212");
  EXPECT_EQ(TextOf(record, mask, "multiplies the scores").substr(0, 7), "5.33184");
  EXPECT_EQ(TextOf(record, "causal, fewer queries than keys", "bottom-right"), "3.90932 4.21077");
  EXPECT_EQ(TextOf(record, "causal, more queries than keys", "bottom-right, empty rows 0"),
            "0 0 0 1 1.18243");
  // A row whose keys are all hidden: the softmax of its own scores in f32, where -1e4 leaves them
  // whole; the mean of v where they drown; NaN where the sentinel is an infinity.
  const std::string row = "row without an allowed key";
  EXPECT_EQ(TextOf(record, row, "-1e4 in f32"), "3.90932 3.84605");
  EXPECT_EQ(TextOf(record, row, "-1e9 in f32"), "3.90932 3.75");
  EXPECT_EQ(TextOf(record, row, "-1e4 in bf16"), "3.90932 3.75");
  EXPECT_EQ(TextOf(record, row, "-1e9 (-infinity) in f16"), "3.90932 nan");
  // Real scores below the sentinel: the hidden key takes all.
  const std::string low = "sentinels, scores near -12000";
  EXPECT_EQ(TextOf(record, low, "-infinity"), "1");
  EXPECT_EQ(TextOf(record, low, "-1e4 in f32"), "64");
  EXPECT_EQ(TextOf(record, low, "lowest in bf16"), "1");
  // Hidden twice, the lowest number overflows: the mean of the keys hidden once, (1 + 4 + 8) / 3.
  EXPECT_EQ(TextOf(record, "two masks added", "lowest in f32"), "4.33333 3.75");

  ExperimentOptions two;
  two.threads = 2;
  const StatusOr<nlohmann::ordered_json> again = RunExperiment("masks", two);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(record["tables"], (*again)["tables"]);
  EXPECT_EQ(record["plots"], (*again)["plots"]);
}

// An implementation in f32 that adds the sentinel itself gives the same.
TEST(SentinelCase, IsWhatPlainF32ArithmeticGives) {
  const MaskInput input{{2, 2}, {0.5, -1, 1, 0.25}, {1, 2, 4, 8}};
  const std::vector<std::vector<int>> hidden{{1, 1, 1, 1}, {0, 1, 0, 1}};
  // (n + 2 + 2 spread) u for the weights, n u for the sum, times n max |v| (Blanchard et al. 2021,
  // Thm 4.3); weights further apart vanish.
  const double bound = (4 + 2 + 2 * 4 + 4) * 0x1p-24 * 4 * 8;
  for (const double sentinel : {-1.0, -1e3, -1e4, -1e7, -1e9, -3e38}) {
    Case exact = SentinelCase(input, hidden, sentinel, DType::kF32);
    ASSERT_TRUE(FinishCase(&exact).ok());
    const StatusOr<Certified> certified = Certify(exact);
    ASSERT_TRUE(certified.ok()) << certified.status().message();

    Case plain = exact;
    for (Index i = 0; i < 2; ++i) plain.tensors["q"].Set(i, 2.0);
    for (Index at = 0; at < 8; ++at) {
      const bool hides =
          hidden[static_cast<std::size_t>(at / 4)][static_cast<std::size_t>(at % 4)] > 0;
      plain.tensors["bias"].Set(at, hides ? sentinel : 0.0);
    }
    const StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject("none");
    ASSERT_TRUE(subject.ok());
    const Outcome outcome = (*subject)->Run(plain, {});
    ASSERT_EQ(outcome.kind, Outcome::Kind::kOk) << outcome.message;
    for (Index i = 0; i < 2; ++i) {
      const double expected = certified->outputs.at("out").values[static_cast<std::size_t>(i)].hi;
      EXPECT_NEAR(outcome.outputs.at("out").At(i), expected, bound) << sentinel;
    }
  }
}

}  // namespace
}  // namespace attest
