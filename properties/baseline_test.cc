// SPDX-License-Identifier: Apache-2.0
// Baselines: what is accepted, until when, and what is refused.
#include "audit/baseline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace attest {
namespace {

using nlohmann::ordered_json;
using std::chrono::year_month_day;

constexpr year_month_day Day(int year, unsigned month, unsigned day) {
  return {std::chrono::year{year}, std::chrono::month{month}, std::chrono::day{day}};
}

ordered_json Record() {
  return ordered_json::parse(R"({"implementation": {"name": "kernel"}, "remarks": [], "findings": [
    {"code": "above-bound", "tensor": "out"}, {"code": "crash", "tensor": ""}]})");
}

class Baseline : public ::testing::Test {
 protected:
  Baseline()
      : file_(std::filesystem::temp_directory_path() /
              ("attest_baseline_test_" + std::to_string(getpid()) + ".json")) {}
  ~Baseline() override { std::filesystem::remove(file_); }

  StatusOr<std::vector<AcceptedFinding>> Read(const std::string& text) const {
    std::ofstream(file_) << text;
    return ReadBaseline(file_);
  }

  // One line that names the file and contains `message`.
  void ExpectRefused(const std::string& text, const std::string& message) const {
    const auto read = Read(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_TRUE(read.status().message().starts_with(file_.string())) << read.status().message();
    EXPECT_NE(read.status().message().find(message), std::string::npos) << read.status().message();
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  }

  std::filesystem::path file_;
};

TEST_F(Baseline, AcceptsByNameCodeAndTensorUntilItsDay) {
  const auto baseline = Read(R"({"attest_baseline": 1, "accepted": [
    {"implementation": "kernel", "code": "above-bound", "tensor": "out", "until": "2027-02-28",
     "reason": "known"},
    {"implementation": "other", "code": "crash", "until": "2027-02-28"}]})");
  ASSERT_TRUE(baseline.ok()) << baseline.status().message();
  ordered_json record = Record();
  EXPECT_EQ(ApplyBaseline(*baseline, Day(2027, 2, 28), &record), 1u);
  EXPECT_EQ(record["findings"][0]["accepted"]["reason"], "known");
  EXPECT_EQ(record["findings"][0]["accepted"]["until"], "2027-02-28");
  EXPECT_FALSE(record["findings"][1].contains("accepted"));  // of another implementation
  EXPECT_TRUE(record["remarks"].empty());
  record = Record();
  EXPECT_EQ(ApplyBaseline(*baseline, Day(2027, 3, 1), &record), 2u);
  EXPECT_EQ(record["remarks"][0], "baseline: above-bound of out was accepted until 2027-02-28");
}

TEST_F(Baseline, SaysWhatWasNotFound) {
  const auto baseline = Read(R"({"attest_baseline": 1, "accepted": [
    {"implementation": "kernel", "code": "above-bound", "tensor": "lse", "until": "2027-02-28"}]})");
  ASSERT_TRUE(baseline.ok()) << baseline.status().message();
  ordered_json record = Record();
  EXPECT_EQ(ApplyBaseline(*baseline, Day(2027, 1, 1), &record), 2u);
  EXPECT_EQ(record["remarks"][0], "baseline: above-bound of lse is accepted but was not found");
}

TEST_F(Baseline, WrittenOnesAcceptAllOfTheirRecord) {
  ordered_json record = Record();
  const auto baseline = Read(BaselineOf(record, Day(2028, 2, 29)).dump());
  ASSERT_TRUE(baseline.ok()) << baseline.status().message();
  EXPECT_EQ(ApplyBaseline(*baseline, Day(2028, 2, 29), &record), 0u);
}

TEST_F(Baseline, RefusesWhatItDoesNotUnderstand) {
  ExpectRefused("[", "");
  ExpectRefused("[]", "expected an object");
  ExpectRefused(R"({"attest_baseline": 2, "accepted": []})", "attest_baseline: expected 1");
  ExpectRefused(R"({"attest_baseline": 1})", "accepted: expected an array");
  ExpectRefused(R"({"attest_baseline": 1, "accepted": [], "x": 1})", "x");
  ExpectRefused(R"({"attest_baseline": 1, "accepted": [3]})", "accepted[0]: expected an object");
  const auto entry = [](const std::string& code, const std::string& until) {
    return R"({"attest_baseline": 1, "accepted": [{"implementation": "k", "code": ")" + code +
           R"(", "until": ")" + until + "\"}]}";
  };
  ExpectRefused(entry("nonsense", "2027-01-01"), "accepted[0].code: expected the code");
  for (const char* day : {"", "2027-02-30", "2027-13-01", "27-01-01", "2027-01-01x", "2027/01/01",
                          "2027-1--01", " 2027-1-01"}) {
    ExpectRefused(entry("crash", day), "accepted[0].until: expected a day as 2027-06-30");
  }
}

}  // namespace
}  // namespace attest
