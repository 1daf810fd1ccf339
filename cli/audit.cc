// SPDX-License-Identifier: Apache-2.0
// attest audit: judges one implementation.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>

#include "audit/audit.h"
#include "audit/baseline.h"
#include "audit/builtin.h"
#include "audit/onnx_suite.h"
#include "audit/peer_subjects.h"
#include "audit/process_subject.h"
#include "cli/command.h"
#include "cli/minimal_cases.h"
#include "core/run_record.h"
#include "properties/faults/fault_catalogue.h"
#include "reports/report.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// How long a baseline that is written accepts what was found.
constexpr int kBaselineMonths = 3;

struct AuditCommand {
  std::string kernel;
  std::string plugin;
  std::string exec;
  std::string results;
  std::vector<std::string> suites;
  std::string cases;
  std::string contract;
  std::string out;
  bool no_shrink = false;
  std::string baseline;
  std::string new_baseline;
  ProcessLimits limits;
  std::uint64_t memory_mib = 0;  // 0: the default of the limits
};

// The options that name an implementation, as typed and as they are repeated in reproducers.
std::vector<std::pair<const char*, const std::string*>> SubjectOptions(
    const AuditCommand& options) {
  return {{"--kernel", &options.kernel},
          {"--plugin", &options.plugin},
          {"--exec", &options.exec},
          {"--results", &options.results}};
}

StatusOr<std::unique_ptr<Subject>> MakeSubject(const AuditCommand& options) {
  ProcessLimits limits = options.limits;
  limits.memory_bytes = options.memory_mib << 20;
  if (!options.plugin.empty()) return MakePluginSubject(options.plugin, limits);
  if (!options.exec.empty()) return MakeExecSubject(options.exec, limits);
  if (!options.results.empty()) {
    return MakeRecordedSubject(options.results, "results in " + options.results);
  }
  constexpr std::string_view kFault = "fault:";
  if (options.kernel.starts_with(kFault))
    return MakePlainSubject(options.kernel.substr(kFault.size()));
  constexpr std::string_view kPeer = "peer:";
  if (options.kernel.starts_with(kPeer)) {
    return MakePeerSubject(options.kernel.substr(kPeer.size()), limits);
  }
  return MakeBuiltinSubject(options.kernel);
}

constexpr const char* kOnnxSuite = "onnx";

bool WantsOnnx(const AuditCommand& options) {
  return std::find(options.suites.begin(), options.suites.end(), kOnnxSuite) !=
         options.suites.end();
}

// Without an implementation, node tests of ONNX are audited as they are stored.
bool IsOfStoredOutputs(const AuditCommand& options) {
  const auto given = SubjectOptions(options);
  return WantsOnnx(options) && std::all_of(given.begin(), given.end(), [](const auto& option) {
           return option.second->empty();
         });
}

// `node_tests` are those of --cases where the suite `onnx` is asked for.
StatusOr<std::vector<SuiteCase>> GatherCases(const AuditCommand& options, std::uint64_t seed,
                                             const OnnxSuite& node_tests) {
  std::vector<std::string> suites = options.suites;
  if (suites.empty() && options.cases.empty()) suites = {"quick", "real"};
  std::vector<SuiteCase> all;
  const auto append = [&](StatusOr<std::vector<SuiteCase>> cases) {
    if (cases.ok()) {
      std::move(cases->begin(), cases->end(), std::back_inserter(all));
    }
    return cases.status();
  };
  std::set<std::string> seen;
  for (const std::string& suite : suites) {
    if (!seen.insert(suite).second) continue;  // a suite that is named twice runs once
    if (suite == kOnnxSuite) {
      if (Status s = append(CasesOf(node_tests)); !s.ok()) return s;
      continue;
    }
    if (Status s = append(MakeSuite(suite, seed)); !s.ok()) return s;
  }
  if (!options.cases.empty() && !WantsOnnx(options)) {
    std::optional<std::filesystem::path> contract;
    if (!options.contract.empty()) contract = options.contract;
    if (Status s = append(ReadCases(options.cases, contract)); !s.ok()) return s;
  }
  return all;
}

// Findings that are printed in full, and for which minimal cases are looked for.
constexpr std::size_t kMostPrinted = 6;

// `recorded`: of results that were computed elsewhere.
void PrintSummary(const ordered_json& record, bool recorded) {
  const ordered_json& cases = record["cases"];
  const ordered_json& findings = record["findings"];
  const auto accepted = std::count_if(findings.begin(), findings.end(), [](const auto& finding) {
    return finding.contains("accepted");
  });
  fmt::print("{}: {}", record["implementation"]["name"].get<std::string>(),
             record["verdict"].get<std::string>());
  if (accepted > 0) fmt::print(" ({} of {} accepted)", accepted, findings.size());
  fmt::print("\n");
  fmt::print("cases: {} run, {} passed, {} failed, {} unsupported", cases["run"].get<Index>(),
             cases["passed"].get<Index>(), cases["failed"].get<Index>(),
             cases["unsupported"].get<Index>());
  for (const auto& [field, words] :
       {std::pair{"crashed", "crashed or hung"}, std::pair{"not_run", "not run"}}) {
    if (cases[field] != 0) fmt::print(", {} {}", cases[field].get<Index>(), words);
  }
  fmt::print("\n");
  if (recorded) {
    fmt::print("elements: {} compared, {} of them not the correctly rounded value\n",
               record["elements"]["compared"].get<Index>(),
               record["elements"]["not_correctly_rounded"].get<Index>());
  }
  std::set<std::string> more;  // codes; one mistake breaks many laws
  for (std::size_t i = 0; i < record["findings"].size(); ++i) {
    const ordered_json& finding = record["findings"][i];
    if (i >= kMostPrinted) {
      more.insert(finding["code"].get<std::string>());
      continue;
    }
    fmt::print("finding {}: {}\n  {} case(s), worst '{}', tensor '{}'",
               finding["code"].get<std::string>(), finding["title"].get<std::string>(),
               finding["cases"].get<Index>(), finding["case"].get<std::string>(),
               finding["tensor"].get<std::string>());
    if (finding.contains("worst")) {
      const ordered_json& worst = finding["worst"];
      fmt::print(" {}: got {}, expected {}", worst["index"].dump(), worst["got"].dump(),
                 worst["expected"].dump());
    }
    fmt::print("\n  {}\n", finding["explanation"].get<std::string>());
    if (finding.contains("accepted")) {
      fmt::print("  accepted until {}: {}\n", finding["accepted"]["until"].get<std::string>(),
                 finding["accepted"]["reason"].get<std::string>());
    }
    if (finding.contains("minimal")) PrintMinimal(finding["minimal"]);
  }
  if (!more.empty()) {
    fmt::print("{} more findings (--json has them all): {}\n",
               record["findings"].size() - kMostPrinted, fmt::join(more, ", "));
  }
  if (record["implementation"].contains("assumptions")) {
    for (const ordered_json& assumption : record["implementation"]["assumptions"]) {
      fmt::print("assumed: {}\n", assumption.get<std::string>());
    }
  }
  for (const ordered_json& remark : record["remarks"]) {
    fmt::print("remark: {}\n", remark.get<std::string>());
  }
}

// The day in UTC.
std::chrono::year_month_day Today() {
  return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
}

// A day that its month does not have becomes the last one that it has.
std::chrono::year_month_day LastValid(const std::chrono::year_month_day& date) {
  return date.ok() ? date : date.year() / date.month() / std::chrono::last;
}

// Sets *exit_status; the Status is for bad usage and unreadable input.
Status Run(const AuditCommand& options, const CommonOptions& common, int* exit_status) {
  std::string subject_argument;
  int subjects = 0;
  for (const auto& [name, value] : SubjectOptions(options)) {
    if (value->empty()) continue;
    ++subjects;
    subject_argument = fmt::format("{} {}", name, ShellQuoted(*value));
  }
  if (subjects != 1 && !(subjects == 0 && IsOfStoredOutputs(options))) {
    return InvalidArgument("audit: give exactly one of --kernel, --plugin, --exec and --results");
  }
  if (!options.results.empty() && options.cases.empty() && options.suites.empty()) {
    return InvalidArgument("audit: --results needs --cases DIR, the cases they were computed from");
  }
  if (WantsOnnx(options) && options.cases.empty()) {
    return InvalidArgument("audit: --suite onnx needs --cases DIR, the folder of its node tests");
  }
  if (!options.contract.empty() && (options.cases.empty() || WantsOnnx(options))) {
    return InvalidArgument("audit: --contract is for the cases of --cases DIR");
  }
  if (!options.out.empty()) {
    if (Status s = PrepareDirectory(options.out); !s.ok()) return s;
  }
  std::vector<AcceptedFinding> baseline;
  if (!options.baseline.empty()) {
    StatusOr<std::vector<AcceptedFinding>> read = ReadBaseline(options.baseline);
    if (!read.ok()) return read.status();
    baseline = *std::move(read);
  }
  if (!options.new_baseline.empty()) {
    if (Status s = PrepareFile(options.new_baseline); !s.ok()) return s;
  }
  OnnxSuite node_tests;
  if (WantsOnnx(options)) {
    StatusOr<OnnxSuite> suite = MakeOnnxSuite(options.cases);
    if (!suite.ok()) return suite.status();
    node_tests = *std::move(suite);
  }
  StatusOr<std::unique_ptr<Subject>> subject =
      IsOfStoredOutputs(options)
          ? MakeStoredSubject(node_tests, "stored outputs of " + options.cases)
          : MakeSubject(options);
  if (!subject.ok()) return subject.status();
  StatusOr<std::vector<SuiteCase>> cases = GatherCases(options, common.seed, node_tests);
  if (!cases.ok()) return cases.status();
  AuditOptions audit;
  audit.threads = common.threads;
  audit.seed = common.seed;
  audit.progress = [](const std::string& name, std::size_t done, std::size_t all) {
    ShowProgress("audit of " + name + ", case", done, all);
  };
  Auditor auditor(*std::move(cases), audit);
  StatusOr<ordered_json> record = auditor.Audit(**subject, common.command_line);
  if (!record.ok()) return record.status();
  const OnnxAudited audited =
      IsOfStoredOutputs(options) ? OnnxAudited::kStoredResults : OnnxAudited::kImplementation;
  for (const std::string& remark : RemarksOn(node_tests, audited)) {
    (*record)["remarks"].push_back(remark);
  }
  // Results that were recorded elsewhere exist for the cases as they are alone, and nothing is
  // learned from more calls of what hardly answers any.
  if (!options.no_shrink && !(*subject)->info().recorded && (*record)["cases"]["not_run"] == 0) {
    if (Status s = AddMinimalCases(**subject, auditor.cases(), subject_argument, options.out,
                                   kMostPrinted, &*record);
        !s.ok()) {
      return s;
    }
  }
  const std::size_t not_accepted = ApplyBaseline(baseline, Today(), &*record);
  if (!options.new_baseline.empty()) {
    const auto until = Today() + std::chrono::months(kBaselineMonths);
    if (Status s = WriteRecord(options.new_baseline, BaselineOf(*record, LastValid(until)));
        !s.ok()) {
      return s;
    }
  }
  if (!options.out.empty()) {
    const std::filesystem::path file = std::filesystem::path(options.out) / "audit.json";
    if (Status s = WriteRecord(file, *record); !s.ok()) return s;
    const ordered_json records = ordered_json::array({*record});
    if (Status s = WriteSummaries(options.out, records); !s.ok()) return s;
  }
  if (common.json) {
    fmt::print("{}\n", record->dump(2));
  } else {
    PrintSummary(*record, (*subject)->info().recorded);
  }
  const std::string verdict = (*record)["verdict"];
  if (verdict == "nothing audited") {
    return InvalidArgument(
        options.results.empty()
            ? "audit: nothing was audited, the implementation takes none of the cases"
            : fmt::format("audit: nothing was audited, no case has a result in {}",
                          options.results));
  }
  *exit_status = not_accepted == 0 ? kExitConforms : kExitFindings;
  return Status();
}

}  // namespace

void AddAuditCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand("audit", "Judge one implementation");
  const auto options = std::make_shared<AuditCommand>();
  command->add_option(
      "--kernel", options->kernel,
      "A built-in kernel (tiled, tiled@AVX2, ...), another library (peer:NAME) or a "
      "seeded fault (fault:NAME)");
  command->add_option("--plugin", options->plugin,
                      "A shared library with the interface of attest/plugin.h");
  command->add_option("--exec", options->exec,
                      "A shell command that speaks the line protocol (docs/plugins.md)");
  command->add_option("--results", options->results,
                      "Directory of result files, computed elsewhere from --cases");
  command->add_option("--suite", options->suites,
                      "Suite to run, repeatable (default: quick, real)");
  command->add_option("--cases", options->cases,
                      "Directory of case files, or one file, to run as well; or the node tests of "
                      "--suite onnx");
  command->add_option("--contract", options->contract, "Contract of cases without one (JSON file)");
  command->add_option(
      "--out", options->out,
      "Directory for audit.json, report.md, junit.xml, findings.sarif, and minimal/ with a "
      "case file for each finding");
  command->add_option("--baseline", options->baseline,
                      "JSON file of findings that are accepted until a day: they do not count");
  command->add_option("--write-baseline", options->new_baseline,
                      "Write a baseline of all findings, accepted for three months, to this file");
  command->add_flag("--no-shrink", options->no_shrink, "Do not look for minimal cases of findings");
  command
      ->add_option("--time-limit", options->limits.seconds,
                   "Seconds that --plugin and --exec may take for a case (default: 60)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--memory-limit", options->memory_mib,
                   "MiB that their processes may hold (default: half of the machine's)")
      ->check(CLI::PositiveNumber);
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common, exit_status);
    if (!status.ok()) *exit_status = Fail(status);
  });
}

}  // namespace attest
