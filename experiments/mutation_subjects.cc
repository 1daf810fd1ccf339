// SPDX-License-Identifier: Apache-2.0
#include "experiments/mutation_subjects.h"

#include <chrono>
#include <set>

#include "audit/builtin.h"
#include "audit/minimal_case.h"
#include "optimized/targets.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Multiplications of the case's scores and outputs: how much there is to look at.
Index SizeOf(const Case& problem) {
  const Dimensions& s = problem.contract.shape;
  return s.batch * s.q_heads * s.q_len * s.kv_len * (s.qk_dim + s.v_dim);
}

// The smallest case that failed, shrunk while the first of its findings remains.
std::string SmallestCase(const Subject& subject, const std::vector<SuiteCase>& cases,
                         const ordered_json& record, Index calls) {
  std::set<std::string> failed;
  for (const ordered_json& result : record["case_results"]) {
    if (result["status"] == "failed") failed.insert(result["case"].get<std::string>());
  }
  const Case* smallest = nullptr;
  for (const SuiteCase& item : cases) {
    if (!failed.contains(item.problem.name)) continue;
    if (smallest == nullptr || SizeOf(item.problem) < SizeOf(*smallest)) smallest = &item.problem;
  }
  if (smallest == nullptr) return "";
  const StatusOr<ordered_json> alone =
      Auditor({{"alone", "alone", *smallest}}, {}).Audit(subject, "");
  if (!alone.ok() || (*alone)["findings"].empty()) return Describe(*smallest);
  const ordered_json& finding = (*alone)["findings"][0];
  ShrinkLimits limits;
  limits.calls = calls;
  limits.seconds = 600.0;  // the number of calls decides
  const std::optional<Case> minimal =
      MinimalCase(subject, *smallest, finding["code"], finding["tensor"], limits);
  return Describe(minimal ? *minimal : *smallest);
}

}  // namespace

std::vector<MutationSubject> PlainSubjects() {
  std::vector<MutationSubject> subjects;
  for (const FaultInfo& fault : Faults()) {
    subjects.push_back(
        {MutationKind::kFault, fault.name, fault.fault_class, fault.behaviour, fault.reference});
  }
  subjects.push_back({MutationKind::kControl, "none", "control",
                      "the plain implementation without a fault", "elementary"});
  for (const ControlInfo& control : Controls()) {
    subjects.push_back(
        {MutationKind::kControl, control.name, "control", control.reason, control.reference});
  }
  return subjects;
}

std::vector<MutationSubject> KernelSubjects() {
  std::vector<MutationSubject> subjects;
  for (const std::string_view target : RunnableTargets()) {
    for (const BuiltinKernel& kernel : BuiltinKernels()) {
      if (kernel.specimen) continue;
      subjects.push_back({MutationKind::kKernel, kernel.name + "@" + std::string(target),
                          std::string(target), kernel.description, ""});
    }
  }
  return subjects;
}

StatusOr<std::unique_ptr<Subject>> MakeSubject(const MutationSubject& subject) {
  return subject.kind == MutationKind::kKernel ? MakeBuiltinSubject(subject.name)
                                               : MakePlainSubject(subject.name);
}

StatusOr<MutationRow> ExamineMutation(const MutationSubject& subject,
                                      const std::vector<Auditor*>& suites, AuditExtent extent,
                                      Index calls) {
  const StatusOr<std::unique_ptr<Subject>> made = MakeSubject(subject);
  if (!made.ok()) return made.status();
  MutationRow row;
  row.subject = subject;
  for (Auditor* const auditor : suites) {
    const double start = Now();
    const StatusOr<ordered_json> record = auditor->Audit(**made, "", extent);
    row.seconds += Now() - start;
    if (!record.ok()) return record.status();
    row.cases_run += (*record)["cases"]["run"].get<Index>();
    if ((*record)["findings"].empty()) continue;
    row.suite = auditor->cases().front().suite;
    for (const ordered_json& finding : (*record)["findings"]) {
      row.codes[finding["code"]] += finding["cases"].get<Index>();
    }
    for (const ordered_json& result : (*record)["case_results"]) {
      if (result["status"] == "failed") ++row.families[result["family"]];
    }
    row.smallest = SmallestCase(**made, auditor->cases(), *record, calls);
    break;
  }
  return row;
}

ordered_json ToJson(const MutationRow& row) {
  return {{"name", row.subject.name},
          {"class", row.subject.group},
          {"reference", row.subject.reference},
          {"suite", row.suite},
          {"codes", row.codes},
          {"families", row.families},
          {"cases_run", row.cases_run},
          {"seconds", row.seconds},
          {"smallest_case", row.smallest}};
}

}  // namespace attest
