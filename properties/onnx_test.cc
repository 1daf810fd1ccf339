// SPDX-License-Identifier: Apache-2.0
// Stored outputs of ONNX's node tests: those of Attention are correctly rounded, those of Softmax
// conform, and a wrong one is found.
#include "audit/onnx_suite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "audit/audit.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

const std::string kAttention = std::string(ATTEST_SOURCE_DIR) + "/cases/onnx";
const std::string kDebian = ATTEST_ONNX_TESTDATA;

OnnxSuite SuiteOf(const std::string& directory) {
  StatusOr<OnnxSuite> suite = MakeOnnxSuite(directory);
  EXPECT_TRUE(suite.ok()) << suite.status().message();
  return suite.ok() ? *std::move(suite) : OnnxSuite{};
}

ordered_json AuditOf(const OnnxSuite& suite) {
  Auditor auditor(CasesOf(suite), {});
  const StatusOr<ordered_json> record = auditor.Audit(*MakeStoredSubject(suite, "stored"), "test");
  EXPECT_TRUE(record.ok()) << record.status().message();
  return record.ok() ? *record : ordered_json();
}

TEST(OnnxSuite, StoredAttentionIsCorrectlyRounded) {
  const OnnxSuite suite = SuiteOf(kAttention);
  EXPECT_TRUE(suite.declined.empty());
  EXPECT_EQ(suite.cases.size(), 10u);  // eight tests, two of them with scores
  const ordered_json record = AuditOf(suite);
  EXPECT_EQ(record["verdict"], "conforms") << record["findings"].dump(2);
  EXPECT_EQ(record["cases"]["passed"], 10);
  // Each element that was computed, and every element of the caches.
  EXPECT_EQ(record["elements"]["compared"], 1592);
  EXPECT_EQ(record["elements"]["not_judged"], 0);
  EXPECT_EQ(record["elements"]["not_correctly_rounded"], 0);
  const std::vector<std::string> remarks = RemarksOn(suite, OnnxAudited::kStoredResults);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_TRUE(remarks[0].starts_with("2400 elements of present_key")) << remarks[0];
}

TEST(OnnxSuite, StoredSoftmaxConforms) {
  const OnnxSuite suite = SuiteOf(kDebian);
  EXPECT_EQ(suite.cases.size(), 14u);
  const ordered_json record = AuditOf(suite);
  EXPECT_EQ(record["verdict"], "conforms") << record["findings"].dump(2);
  EXPECT_EQ(record["cases"]["passed"], 14);
  EXPECT_EQ(record["elements"]["compared"], 622);
  std::printf("  not the correctly rounded value: %s of 622 elements\n",
              record["elements"]["not_correctly_rounded"].dump().c_str());
  EXPECT_EQ(RemarksOn(suite, OnnxAudited::kImplementation).size(), 2u);  // other operators, graphs
}

TEST(OnnxSuite, TakesOneTestAFolderOrTheRoot) {
  const std::string test = "test_softmax_axis_1";
  const OnnxSuite one = SuiteOf(kDebian + "/node/" + test);
  ASSERT_EQ(one.cases.size(), 1u);
  EXPECT_EQ(one.cases[0].item.problem.name, test);
  EXPECT_EQ(SuiteOf(kDebian + "/node/" + test + "/").cases[0].item.problem.name, test);
  EXPECT_EQ(SuiteOf(kDebian + "/node").cases.size(), SuiteOf(kDebian).cases.size());

  EXPECT_EQ(MakeOnnxSuite(kAttention + "/absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MakeOnnxSuite(std::string(ATTEST_SOURCE_DIR) + "/cases/use_lite").status().code(),
            StatusCode::kNotFound);
  const Status other = MakeOnnxSuite(kDebian + "/node/test_abs").status();
  EXPECT_EQ(other.code(), StatusCode::kUnsupported);
  EXPECT_NE(other.message().find("another operator"), std::string::npos) << other.message();
}

// An element that is a thousandth off is a finding on its tensor; the next number is a finding too
// only where the bound is narrower, but never counts as correctly rounded.
TEST(OnnxSuite, FindsAWrongStoredValue) {
  for (const std::string& directory : {kAttention, kDebian}) {
    const OnnxSuite suite = SuiteOf(directory);
    for (const OnnxCase& item : suite.cases) {
      for (const auto& [output, tensor] : item.stored) {
        const Index last = tensor.size() - 1;
        const double right = tensor.At(last);
        OnnxSuite changed{.cases = {item}, .declined = {}};
        const ordered_json before = AuditOf(changed);
        Tensor& stored = changed.cases[0].stored.at(output);

        stored.Set(last, right + 0.001 * std::fabs(right) + 0.001);
        const ordered_json record = AuditOf(changed);
        ASSERT_EQ(record["verdict"], "findings") << item.item.problem.name << " " << output;
        EXPECT_EQ(record["findings"][0]["tensor"], output);

        if (stored.dtype() != DType::kF32 || right == 0.0) continue;
        // Away from a value that was not correctly rounded before, in either direction.
        for (const double towards : {-1.0, 1.0}) {
          stored.Set(last, std::nextafter(static_cast<float>(right),
                                          static_cast<float>(towards) *
                                              std::numeric_limits<float>::infinity()));
          const ordered_json near = AuditOf(changed);
          if (before["elements"]["not_correctly_rounded"] != 0) continue;
          EXPECT_EQ(near["elements"]["not_correctly_rounded"], 1) << item.item.problem.name;
        }
      }
    }
  }
}

TEST(OnnxSuite, FindsAWrongCache) {
  OnnxSuite suite = SuiteOf(kAttention + "/test_attention_4d_causal_with_past_and_present");
  const StatusOr<OnnxModel> model =
      ReadOnnxModel(kAttention + "/test_attention_4d_causal_with_past_and_present");
  ASSERT_TRUE(model.ok());
  StatusOr<std::vector<OnnxDataSet>> sets =
      ReadOnnxDataSets(kAttention + "/test_attention_4d_causal_with_past_and_present", *model);
  ASSERT_TRUE(sets.ok());
  Tensor& cache = sets->at(0).outputs.at(model->outputs[2]);
  cache.Set(5, -cache.At(5));
  const StatusOr<std::vector<OnnxCase>> cases =
      AttentionCases("changed", *model, sets->at(0), &suite.declined);
  ASSERT_TRUE(cases.ok());
  suite.cases = *cases;
  const ordered_json record = AuditOf(suite);
  ASSERT_EQ(record["findings"].size(), 1u);
  EXPECT_EQ(record["findings"][0]["code"], "wrong-cache");
  EXPECT_NE(record["findings"][0]["explanation"].get<std::string>().find("present_value"),
            std::string::npos);
}

}  // namespace
}  // namespace attest
