// SPDX-License-Identifier: Apache-2.0
// What a subject declares decides what an audit, its laws included, asks it for.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.h"
#include "audit/builtin.h"
#include "audit/case_spec.h"

namespace attest {
namespace {

// The tiled kernel, with declarations of its own; remembers what it is asked for.
class Declaring : public Subject {
 public:
  explicit Declaring(std::set<std::string> outputs, std::optional<EmptyRow> policy = std::nullopt)
      : kernel_(*MakeBuiltinSubject("tiled")), info_(kernel_->info()) {
    info_.outputs = std::move(outputs);
    info_.empty_row = policy;
  }
  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions& options) const override {
    asked.insert(problem.contract.outputs.begin(), problem.contract.outputs.end());
    policies.insert(problem.contract.empty_row);
    return kernel_->Run(problem, options);
  }

  mutable std::set<std::string> asked;
  mutable std::set<EmptyRow> policies;

 private:
  std::unique_ptr<Subject> kernel_;
  SubjectInfo info_;
};

std::vector<SuiteCase> Cases() {
  CaseSpec rows{.shape = {2, 2, 1, 6, 3, 4, 4, 4}, .causal = Causal::kBottomRight};
  CaseSpec gradients{.shape = {1, 2, 1, 3, 5, 4, 4, 4}};
  gradients.gradients = true;
  return {{"test", "rows", MakeCase(rows, 0)}, {"test", "gradients", MakeCase(gradients, 0)}};
}

TEST(Declared, OutputsAreAllThatIsAskedFor) {
  const Declaring subject({"out", "lse", "grad_q"});
  const auto record = Auditor(Cases(), {}).Audit(subject, "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
  EXPECT_TRUE(subject.asked.contains("lse") && subject.asked.contains("grad_q"));
  EXPECT_FALSE(subject.asked.contains("weights") || subject.asked.contains("grad_k"));
}

TEST(Declared, CasesThatAskForNothingElseAreUnsupported) {
  std::vector<SuiteCase> cases = Cases();
  cases[0].problem.contract.outputs = {"weights"};
  const auto record = Auditor(std::move(cases), {}).Audit(Declaring({"out"}), "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["cases"]["unsupported"], 1);
  EXPECT_EQ((*record)["cases"]["passed"], 1);
}

TEST(Declared, PolicyForEmptyRowsIsWhatJudges) {
  const Declaring subject({}, EmptyRow::kNan);
  const auto record = Auditor(Cases(), {}).Audit(subject, "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
  EXPECT_EQ(subject.policies, std::set<EmptyRow>{EmptyRow::kNan});
  EXPECT_NE((*record)["remarks"].dump().find("declared empty-row policy 'nan' in 2 cases"),
            std::string::npos);
}

}  // namespace
}  // namespace attest
