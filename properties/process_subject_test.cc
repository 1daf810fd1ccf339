// SPDX-License-Identifier: Apache-2.0
// Implementations in processes of their own: whatever they do is a finding with its code, and the
// audit goes on.
#include "audit/process_subject.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/case_spec.h"
#include "audit/kernel_call.h"
#include "audit/probe.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// All that line_subject can do, so that nothing has to be tried out.
constexpr const char* kEverything = R"({"name":"line","version":"1",
  "supports":{"dtypes":["f64","f32","bf16","f16"],"scores":["dot","general","additive"],
    "masks":["boolean","bias","causal_top_left","causal_bottom_right","window","kv_lengths",
             "q_lengths","documents","local"],
    "features":["gqa","alibi","softcap","sinks","dropout","explicit_scale","v_dim","out_dtype",
                "grad_lse"],
    "outputs":["out","lse","weights","grad_q","grad_k","grad_v","grad_bias","grad_sinks"],
    "empty_row":"zero"},
  "arithmetic":{"profile":"f32","deterministic":true}})";

std::string Flat(std::string json) {
  std::erase(json, '\n');
  return json;
}

StatusOr<std::unique_ptr<Subject>> Make(const std::string& what, const std::string& info,
                                        const ProcessLimits& limits = {.seconds = 20.0}) {
  const std::string environment = info.empty() ? "" : "LINE_SUBJECT_INFO='" + Flat(info) + "' ";
  return MakeExecSubject(environment + "exec " ATTEST_LINE_SUBJECT " " + what, limits);
}

// Small cases that a law or two applies to.
std::vector<SuiteCase> Cases() {
  std::vector<SuiteCase> cases;
  for (const Index keys : {1, 3, 4, 7, 16, 33}) {
    CaseSpec spec{.shape = {1, 2, 1, 3, keys, 4, 4, 4}};
    spec.outputs = {"out"};
    cases.push_back({"test", "small", MakeCase(spec, 0)});
  }
  return cases;
}

ordered_json Audit(const std::string& what, const std::string& info = kEverything,
                   const ProcessLimits& limits = {.seconds = 20.0}) {
  const StatusOr<std::unique_ptr<Subject>> subject = Make(what, info, limits);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  if (!subject.ok()) return {};
  AuditOptions options;
  options.only_law = "";
  const auto record = Auditor(Cases(), options).Audit(**subject, "test");
  EXPECT_TRUE(record.ok()) << record.status().message();
  return record.ok() ? *record : ordered_json();
}

std::set<std::string> Codes(const ordered_json& record) {
  std::set<std::string> codes;
  for (const ordered_json& finding : record["findings"]) codes.insert(finding["code"]);
  return codes;
}

TEST(ProcessSubject, RightImplementationConforms) {
  for (const char* what : {"right", "noise"}) {
    const StatusOr<std::unique_ptr<Subject>> subject = Make(what, kEverything);
    ASSERT_TRUE(subject.ok()) << subject.status().message();
    EXPECT_EQ((*subject)->info().name, "line");
    const auto record = Auditor(Cases(), {}).Audit(**subject, "test");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
    EXPECT_EQ((*record)["cases"]["passed"], 6);
    EXPECT_FALSE((*record)["laws"].empty());
  }
}

struct Misbehaviour {
  const char* what;
  const char* code;
  const char* words;  // of the explanation
};

class ProcessSubjectMisbehaves : public ::testing::TestWithParam<Misbehaviour> {};

// In one case only: a finding of its code with its case, and every other case passes.
TEST_P(ProcessSubjectMisbehaves, IsAFindingAndTheAuditGoesOn) {
  const auto& [what, code, words] = GetParam();
  ProcessLimits limits{.seconds = 20.0, .memory_bytes = std::uint64_t{400} << 20};
  if (std::string(code) == "timeout") limits.seconds = 0.5;
  const ordered_json record = Audit(std::string(what) + " 4", kEverything, limits);
  ASSERT_EQ(record["verdict"], "findings");
  EXPECT_EQ(Codes(record), std::set<std::string>{code});
  EXPECT_EQ(record["findings"][0]["case"], Cases()[2].problem.name);
  EXPECT_NE(record["findings"][0]["explanation"].get<std::string>().find(words), std::string::npos)
      << record["findings"][0]["explanation"];
  EXPECT_EQ(record["cases"]["passed"], 5) << record["cases"];
  const bool crashed = std::set<std::string>{"crash", "timeout", "memory"}.contains(code);
  EXPECT_EQ(record["cases"]["crashed"], crashed ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(
    Every, ProcessSubjectMisbehaves,
    ::testing::Values(Misbehaviour{"crash", "crash", "signal 11"},
                      Misbehaviour{"abort", "crash", "signal 6"},
                      Misbehaviour{"exit", "crash", "ended with status 0"},
                      Misbehaviour{"close", "crash", "closed its standard output"},
                      Misbehaviour{"loop", "timeout", "no answer within 0.5 s"},
                      Misbehaviour{"hog", "memory", "more than 400 MiB"},
                      Misbehaviour{"garbage", "garbage", "answered \"hello\""},
                      Misbehaviour{"garbage-json", "garbage", "[1, 2"},
                      Misbehaviour{"no-status", "garbage", "\"status\" was expected"},
                      Misbehaviour{"unknown-status", "garbage", "perfect"},
                      Misbehaviour{"endless", "garbage", "without the end of a line"},
                      Misbehaviour{"no-result", "bad-result", "there is no result file"},
                      Misbehaviour{"half-result", "bad-result", "result file: "},
                      Misbehaviour{"wrong-shape", "bad-result", "[1, 2, 3]"},
                      Misbehaviour{"missing-output", "missing-output", "not given"},
                      Misbehaviour{"error", "error", "out of paper"}),
    [](const auto& parameter) {
      std::string name = parameter.param.what;
      std::erase(name, '-');
      return name;
    });

TEST(ProcessSubject, WrongNumbersAreAlwaysFound) {
  for (const char* what : {"zeros", "copy", "nan", "random", "previous"}) {
    const ordered_json record = Audit(what);
    EXPECT_EQ(record["verdict"], "findings") << what;
    EXPECT_EQ(record["cases"]["crashed"], 0) << what;
  }
}

TEST(ProcessSubject, WhatSupportsNothingIsNotAudited) {
  const std::string none = R"({"supports":{"dtypes":[]}})";
  EXPECT_EQ(Audit("right", none)["verdict"], "nothing audited");
  EXPECT_EQ(Audit("unsupported", "")["verdict"], "nothing audited");
}

TEST(ProcessSubject, WhatEndsAgainAndAgainEndsTheAudit) {
  const ordered_json at_start = Audit("crash-at-start", "");
  EXPECT_EQ(Codes(at_start), std::set<std::string>{"crash"});
  EXPECT_EQ(at_start["cases"]["crashed"], 3);
  EXPECT_EQ(at_start["cases"]["not_run"], 3);
  const ordered_json loop = Audit("loop", kEverything, {.seconds = 0.2});
  EXPECT_EQ(Codes(loop), std::set<std::string>{"timeout"});
  EXPECT_EQ(loop["cases"]["crashed"], 3);
  EXPECT_EQ(loop["cases"]["not_run"], 3);
}

TEST(ProcessSubject, WhatIsWrittenUnaskedIsFound) {
  const ordered_json record = Audit("unasked");
  EXPECT_EQ(Codes(record), std::set<std::string>{"garbage"});
  EXPECT_NE(record["findings"][0]["explanation"].get<std::string>().find("by the way"),
            std::string::npos);
}

TEST(ProcessSubject, RefusesWhatCannotBeRun) {
  const auto refused = [](const StatusOr<std::unique_ptr<Subject>>& subject,
                          const std::string& words) {
    ASSERT_FALSE(subject.ok());
    EXPECT_NE(subject.status().message().find(words), std::string::npos)
        << subject.status().message();
  };
  refused(MakeExecSubject("no-such-command-anywhere", {}), "cannot be run");
  refused(MakeExecSubject("/dev/null", {}), "cannot be run");
  refused(Make("right", R"({"supports":{"dtype":["f32"]}})"), "supports.dtype: unknown field");
  refused(Make("right", R"({"supports":{"masks":["causal"]}})"), "unknown 'causal'");
  refused(Make("right", R"({"arithmetic":{"profile":"f31"}})"), "unknown profile 'f31'");
}

bool Has(const std::vector<std::string>& sentences, const std::string& words) {
  for (const std::string& sentence : sentences) {
    if (sentence.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(ProcessSubject, WhatIsNotDeclaredIsTriedOut) {
  const StatusOr<std::unique_ptr<Subject>> subject = Make("right", "");
  ASSERT_TRUE(subject.ok()) << subject.status().message();
  const SubjectInfo& info = (*subject)->info();
  EXPECT_TRUE(Has(info.assumptions, "no info"));
  EXPECT_TRUE(Has(info.assumptions, "dtypes, by trial: bf16, f16, f32, f64"));
  EXPECT_TRUE(Has(info.assumptions, "scores, by trial: additive, dot, general"));
  // The kernel offers every output; it follows the contract's policy, so that none is assumed.
  EXPECT_TRUE(info.outputs.contains("grad_v_a") && info.outputs.contains("weights"));
  EXPECT_FALSE(info.empty_row.has_value());
  const auto record = Auditor(Cases(), {}).Audit(**subject, "test");
  ASSERT_TRUE(record.ok());
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
}

// A subject of our own, with a convention and arithmetic that it does not declare.
class Undeclared : public Subject {
 public:
  const SubjectInfo& info() const override { return info_; }
  Outcome Run(const Case& problem, const CallOptions& options) const override {
    Case asked = problem;
    asked.contract.empty_row = EmptyRow::kUniform;
    if (problem.contract.dtype == DType::kF64) return Outcome::Unsupported("f64");
    if (problem.contract.softcap > 0.0) return Outcome::Failed("error", "what is a soft cap?");
    if (problem.Find("sinks") != nullptr) asked.tensors.erase("sinks");  // wrong, not declined
    if (options.layout != Layout::kDense) return Outcome::Ok({});
    StatusOr<TensorMap> outputs =
        RunKernel(asked, Mode::kFast, AttentionAlgorithm::kTiled, execution_);
    if (!outputs.ok()) return Outcome::Failed("error", outputs.status().message());
    outputs->erase("lse");
    if (problem.contract.dtype == DType::kBF16) {
      // An error that the scores' rounding to bf16 explains, and that of weights alone does not.
      for (Index i = 0; i < outputs->at("out").size(); ++i) {
        outputs->at("out").Set(i, outputs->at("out").At(i) * (1.0 + 6.0 / 256));
      }
    }
    return Outcome::Ok(*std::move(outputs));
  }

 private:
  SubjectInfo info_;
  mutable Execution execution_{1};
};

TEST(Probe, FindsConventionsAndTakesWrongForOffered) {
  Capabilities capabilities;
  std::vector<std::string> assumptions;
  Probe(Undeclared(), &capabilities, &assumptions);
  EXPECT_EQ(capabilities.dtypes, (NameSet{"bf16", "f16", "f32"}));
  EXPECT_FALSE(capabilities.features->contains("softcap"));
  EXPECT_TRUE(Has(assumptions, "softcap (what is a soft cap?)"));
  EXPECT_TRUE(capabilities.features->contains("sinks"));
  EXPECT_FALSE(capabilities.outputs->contains("lse"));
  EXPECT_TRUE(capabilities.outputs->contains("weights"));
  EXPECT_EQ(capabilities.empty_row, EmptyRow::kUniform);
  EXPECT_EQ(capabilities.layouts, NameSet{"dense"});
  ASSERT_EQ(capabilities.arithmetic.size(), 1u);
  EXPECT_EQ(capabilities.arithmetic[0].profile, "bf16-math");
}

TEST(Capabilities, KeepWhatElseIsSaid) {
  const StatusOr<Capabilities> some = ParseCapabilities(R"({"name":"n","device":"H200"})");
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_EQ(some->declared["device"], "H200");
  EXPECT_FALSE(ParseCapabilities("[]").ok());
}

TEST(Capabilities, DecideWhatIsAsked) {
  const StatusOr<Capabilities> some =
      ParseCapabilities(R"({"supports":{"dtypes":["f32"],"masks":["boolean"],"head_dims":[4,8]}})");
  ASSERT_TRUE(some.ok()) << some.status().message();
  CaseSpec spec{.shape = {1, 2, 1, 3, 5, 4, 4, 4}};
  EXPECT_FALSE(MissingFor(MakeCase(spec, 0), *some).has_value());
  spec.mask = true;
  EXPECT_FALSE(MissingFor(MakeCase(spec, 0), *some).has_value());
  spec.causal = Causal::kTopLeft;
  EXPECT_EQ(MissingFor(MakeCase(spec, 0), *some), "masks: no causal_top_left");
  spec.causal = Causal::kNone;
  spec.shape.v_dim = 6;
  EXPECT_EQ(MissingFor(MakeCase(spec, 0), *some), "head_dims: no 6");
  spec.dtype = DType::kF64;
  EXPECT_EQ(MissingFor(MakeCase(spec, 0), *some), "dtypes: no f64");
}

}  // namespace
}  // namespace attest
