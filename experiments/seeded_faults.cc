// SPDX-License-Identifier: Apache-2.0
// Audits every seeded fault, and the same implementation without one, by the suite `quick`.
#include <fmt/format.h>

#include "audit/audit.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

std::string Codes(const ordered_json& audit) {
  std::string codes;
  for (const ordered_json& finding : audit["findings"]) {
    const std::string code = finding["code"];
    if (codes.find(code) == std::string::npos) codes += (codes.empty() ? "" : ", ") + code;
  }
  return codes.empty() ? "none" : codes;
}

}  // namespace

StatusOr<ordered_json> RunSeededFaults(const ExperimentOptions& options) {
  StatusOr<std::vector<SuiteCase>> cases = MakeSuite("quick", options.seed);
  if (!cases.ok()) return cases.status();
  AuditOptions audit_options;
  audit_options.threads = options.threads;
  audit_options.seed = options.seed;
  Auditor auditor(*std::move(cases), audit_options);

  std::vector<FaultInfo> subjects{{"none", "control", "right", "", Fault::kNone}};
  subjects.insert(subjects.end(), Faults().begin(), Faults().end());
  ordered_json rows = ordered_json::array();
  std::string inputs;
  int caught = 0;
  int false_alarms = 0;
  std::size_t done = 0;
  for (const FaultInfo& fault : subjects) {
    StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject(fault.name);
    if (!subject.ok()) return subject.status();
    StatusOr<ordered_json> audit = auditor.Audit(**subject, options.command);
    if (!audit.ok()) return audit.status();
    inputs = (*audit)["manifest"]["inputs_sha256"];
    const bool findings = (*audit)["verdict"] == "findings";
    if (fault.fault == Fault::kNone) {
      false_alarms += findings ? 1 : 0;
    } else {
      caught += findings ? 1 : 0;
    }
    rows.push_back({fault.name, fault.fault_class, fault.behaviour, fault.reference,
                    findings ? "findings" : "conforms", (*audit)["cases"]["failed"],
                    Codes(*audit)});
    if (options.progress) options.progress(++done, subjects.size());
  }

  const int seeded = static_cast<int>(Faults().size());
  ordered_json record = NewRecord(
      {.name = "seeded-faults",
       .title = "Seeded faults against the suite quick",
       .claim =
           "An audit by derived bounds and laws tells a faulty implementation from a right one "
           "without a tuned tolerance.",
       .source = "Each fault was reported in public in a real implementation; the reference column "
                 "names the report.",
       .rule = "Reproduced if every fault has findings and the control has none."});
  record["verdict"] = caught == seeded && false_alarms == 0 ? "reproduced" : "not reproduced";
  record["summary"] = fmt::format("{} of {} seeded faults caught; {} false alarms on the control.",
                                  caught, seeded, false_alarms);
  record["tables"] = {
      {{"title", "Faults and what caught them"},
       {"note", "The audit does not know which fault it faces."},
       {"columns",
        {"fault", "class", "behaviour", "reported in", "verdict", "cases failed", "finding codes"}},
       {"rows", rows}}};
  AddManifest(options, inputs, &record);
  return record;
}

}  // namespace attest
