// SPDX-License-Identifier: Apache-2.0
// Audits: a subject against suites of cases, by certified values, derived bounds and laws.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "audit/expectation_cache.h"
#include "audit/finding.h"
#include "audit/subject.h"
#include "audit/suite.h"
#include "core/status.h"

namespace attest {

struct AuditOptions {
  int threads = 1;
  std::uint64_t seed = 0;
  std::optional<std::string> only_law;  // this law alone runs; none does where it is empty
  // Called with (subject, cases done, cases in all).
  std::function<void(const std::string&, std::size_t, std::size_t)> progress;
};

enum class AuditExtent {
  kAllCases,
  kFirstFailure,  // no case after the first one that fails
};

// Holds the cases and their certified values, which are made once and used for every subject.
class Auditor {
 public:
  Auditor(std::vector<SuiteCase> cases, AuditOptions options);

  // Runs every case and every law; the result is an audit record ("attest_result": 1). `command` is
  // what reproduces it, for the manifest and the findings. An error only when the reference cannot
  // judge a case. A subject that takes none of the cases gives the verdict "nothing audited".
  StatusOr<nlohmann::ordered_json> Audit(const Subject& subject, const std::string& command,
                                         AuditExtent extent = AuditExtent::kAllCases);

  const std::vector<SuiteCase>& cases() const { return cases_; }

 private:
  std::vector<SuiteCase> cases_;
  AuditOptions options_;
  ExpectationCache expectations_;
};

}  // namespace attest
