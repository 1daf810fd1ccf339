// SPDX-License-Identifier: Apache-2.0
// Every kernel in every mode, on every SIMD target, is audited by the suite `quick`.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/builtin.h"
#include "optimized/kernels.h"
#include "optimized/targets.h"

namespace attest {
namespace {

// One auditor for all tests: the certified values of the suite are made once.
Auditor& QuickAuditor() {
  static Auditor auditor(*MakeSuite("quick", 0), {});
  return auditor;
}

std::vector<std::string> EveryKernel() {
  std::vector<std::string> names;
  for (const BuiltinKernel& kernel : BuiltinKernels()) {
    for (const std::string_view target : RunnableTargets()) {
      names.push_back(kernel.name + "@" + std::string(target));
    }
  }
  return names;
}

class KernelsAudit : public ::testing::TestWithParam<std::string> {};

TEST_P(KernelsAudit, IsWithoutFindings) {
  const StatusOr<std::unique_ptr<Subject>> subject = MakeBuiltinSubject(GetParam());
  ASSERT_TRUE(subject.ok()) << subject.status().message();
  const StatusOr<nlohmann::ordered_json> record = QuickAuditor().Audit(**subject, "test");
  ASSERT_TRUE(record.ok()) << record.status().message();
  const std::optional<KernelInfo> kernel = FindKernel(GetParam().substr(0, GetParam().find('@')));
  ASSERT_TRUE(kernel.has_value());
  if (kernel->specimen) {
    // Unshifted exponentials overflow on the cases of large scores: an audit must say so.
    EXPECT_EQ((*record)["verdict"], "findings");
    return;
  }
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
  const std::size_t all = QuickAuditor().cases().size();
  if (kernel->gradients) {
    EXPECT_EQ((*record)["cases"]["run"], all);
  } else {
    EXPECT_GE((*record)["cases"]["run"], all * 4 / 5);  // the others ask for gradients
  }
}

INSTANTIATE_TEST_SUITE_P(Every, KernelsAudit, ::testing::ValuesIn(EveryKernel()),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) {
                             if (c == '-' || c == '@') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace attest
