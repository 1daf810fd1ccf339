// SPDX-License-Identifier: Apache-2.0
// What one audit says about one faulty or right implementation: a row of the kill matrix.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "audit/subject.h"
#include "core/status.h"

namespace attest {

enum class MutationKind { kFault, kControl, kKernel };

struct MutationSubject {
  MutationKind kind = MutationKind::kFault;
  std::string name;
  std::string group;      // class of a fault; "control"; the SIMD target of a kernel
  std::string behaviour;  // one line
  std::string reference;
};

// Every fault, the plain implementation without a fault, every control.
std::vector<MutationSubject> PlainSubjects();
// The built-in kernels but the specimens, on every SIMD target of this machine, by target.
std::vector<MutationSubject> KernelSubjects();
StatusOr<std::unique_ptr<Subject>> MakeSubject(const MutationSubject& subject);

struct MutationRow {
  MutationSubject subject;
  std::string suite;                      // the first that found something; empty: none did
  std::map<std::string, Index> codes;     // of findings, with the number of cases
  std::map<std::string, Index> families;  // of failed cases, likewise
  Index cases_run = 0;
  double seconds = 0.0;  // of the audits, certified values at hand
  std::string smallest;  // the smallest case found that shows it, in words
};

// Audits by one suite after the other until one finds something. `calls` limits how long a minimal
// case is looked for.
StatusOr<MutationRow> ExamineMutation(const MutationSubject& subject,
                                      const std::vector<Auditor*>& suites, AuditExtent extent,
                                      Index calls);

nlohmann::ordered_json ToJson(const MutationRow& row);

}  // namespace attest
