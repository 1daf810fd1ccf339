// SPDX-License-Identifier: Apache-2.0
// attest report: the stability report of experiments, built-in kernels, installed peers and real
// activations.
#include <fmt/format.h>

#include <memory>

#include "audit/audit.h"
#include "audit/builtin.h"
#include "audit/peer_subjects.h"
#include "cli/command.h"
#include "experiments/experiment.h"
#include "optimized/targets.h"
#include "reports/report.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

struct ReportCommand {
  std::string out = "out/report";
  bool quick = false;
  bool full = false;
};

// Collects the records of one report.
class ReportRun {
 public:
  ReportRun(const CommonOptions& common, bool full) : common_(common), full_(full) {}

  Status Experiments() {
    for (const Experiment& experiment : attest::Experiments()) {
      ExperimentOptions options;
      options.quick = !full_;
      options.threads = common_.threads;
      options.seed = common_.seed;
      options.command = fmt::format("attest experiment {}{}{}", experiment.name,
                                    full_ ? " --full" : "", SeedArgument());
      options.progress = [&](std::size_t done, std::size_t all) {
        ShowProgress("experiment " + experiment.name, done, all);
      };
      StatusOr<ordered_json> record = experiment.run(options);
      if (!record.ok()) return record.status();
      records_.push_back(*std::move(record));
    }
    return Status();
  }

  // Audits the subjects that `names` make, by `suites`.
  Status Audits(const std::vector<std::string>& suites, const std::vector<std::string>& names) {
    StatusOr<std::vector<SuiteCase>> cases = MakeSuites(suites, common_.seed);
    if (!cases.ok()) return cases.status();
    std::string arguments;
    for (const std::string& suite : suites) arguments += " --suite " + suite;
    Auditor auditor(*std::move(cases), Options());
    for (const std::string& name : names) {
      StatusOr<std::unique_ptr<Subject>> subject = MakeBuiltinSubject(name);
      if (!subject.ok()) return subject.status();
      const std::string command =
          fmt::format("attest audit --kernel {}{}{}", name, arguments, SeedArgument());
      if (Status s = Add(auditor.Audit(**subject, command)); !s.ok()) return s;
    }
    return Status();
  }

  // Another engine's own outputs on the shipped activations.
  Status RecordedEngine() {
    StatusOr<std::filesystem::path> cases = ShippedCases("use_lite");
    if (!cases.ok()) return cases.status();
    StatusOr<std::unique_ptr<Subject>> subject =
        MakeRecordedSubject((*cases / "tfjs").string(), "TensorFlow.js 4.22.0, CPU backend");
    if (!subject.ok()) return subject.status();
    StatusOr<std::vector<SuiteCase>> real = MakeSuite("real", common_.seed);
    if (!real.ok()) return real.status();
    return Add(Auditor(*std::move(real), Options())
                   .Audit(**subject,
                          "attest audit --results cases/use_lite/tfjs "
                          "--cases cases/use_lite"));
  }

  // Audits every peer that is installed, by the suite quick and real activations.
  Status InstalledPeers() {
    std::vector<std::string> installed;
    for (const PeerEntry& peer : Peers()) {
      if (peer.missing.empty()) installed.push_back(peer.name);
    }
    if (installed.empty()) return Status();
    StatusOr<std::vector<SuiteCase>> cases = MakeSuites({"real", "quick"}, common_.seed);
    if (!cases.ok()) return cases.status();
    Auditor auditor(*std::move(cases), Options());
    for (const std::string& name : installed) {
      StatusOr<std::unique_ptr<Subject>> subject = MakePeerSubject(name, ProcessLimits{});
      if (!subject.ok()) {
        // Somebody else's installation; the report goes on without it.
        fmt::print(stderr, "attest: left out: {}\n", subject.status().message());
        continue;
      }
      StatusOr<ordered_json> record = auditor.Audit(
          **subject, fmt::format("attest audit --kernel peer:{} --suite real --suite quick{}", name,
                                 SeedArgument()));
      if (!record.ok()) return record.status();
      ++peers_;
      if ((*record)["verdict"] != "conforms") ++peers_with_findings_;
      records_.push_back(*std::move(record));
    }
    return Status();
  }

  const ordered_json& records() const { return records_; }
  int with_findings() const { return with_findings_; }
  // Apart from the above: what a peer does decides no exit status.
  int peers() const { return peers_; }
  int peers_with_findings() const { return peers_with_findings_; }

 private:
  std::string SeedArgument() const {
    return common_.seed == 0 ? "" : fmt::format(" --seed {}", common_.seed);
  }
  AuditOptions Options() const {
    AuditOptions options;
    options.threads = common_.threads;
    options.seed = common_.seed;
    options.progress = [](const std::string& name, std::size_t done, std::size_t all) {
      ShowProgress("audit of " + name + ", case", done, all);
    };
    return options;
  }
  Status Add(StatusOr<ordered_json> record) {
    if (!record.ok()) return record.status();
    if ((*record)["verdict"] != "conforms") ++with_findings_;
    records_.push_back(*std::move(record));
    return Status();
  }

  const CommonOptions& common_;
  const bool full_;
  ordered_json records_ = ordered_json::array();
  int with_findings_ = 0;
  int peers_ = 0;
  int peers_with_findings_ = 0;
};

Status Run(const ReportCommand& command, const CommonOptions& common, int* exit_status) {
  if (Status s = PrepareDirectory(command.out); !s.ok()) return s;
  ReportRun run(common, command.full);
  if (Status s = run.Experiments(); !s.ok()) return s;
  const std::string generated = command.full ? "standard" : "quick";
  // Quick: every kernel on the best target, one of each algorithm on the others.
  std::vector<std::string> kernels;
  for (const std::string_view target : RunnableTargets()) {
    for (const BuiltinKernel& kernel : BuiltinKernels()) {
      const bool plain = kernel.name.find('-') == std::string::npos;
      if (kernel.specimen || (!command.full && !plain && target != RunnableTargets().front())) {
        continue;
      }
      kernels.push_back(fmt::format("{}@{}", kernel.name, target));
    }
  }
  if (Status s = run.RecordedEngine(); !s.ok()) return s;
  if (Status s = run.Audits({"real", generated}, kernels); !s.ok()) return s;
  if (Status s = run.InstalledPeers(); !s.ok()) return s;
  if (Status s = WriteReport(command.out, run.records()); !s.ok()) return s;
  if (common.json) {
    fmt::print("{}\n", run.records().dump(2));
  } else {
    const std::size_t peers = static_cast<std::size_t>(run.peers());
    fmt::print(
        "{} audits, {} with findings; {} peers, {} with findings; {} experiments\n"
        "{}/report.html\n",
        run.records().size() - Experiments().size() - peers, run.with_findings(), peers,
        run.peers_with_findings(), Experiments().size(), command.out);
  }
  *exit_status = run.with_findings() == 0 ? kExitConforms : kExitFindings;
  return Status();
}

}  // namespace

void AddReportCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand(
      "report", "The stability report: experiments, built-in kernels, peers, real activations");
  const auto options = std::make_shared<ReportCommand>();
  command->add_option("--out", options->out, "Directory (default: out/report)");
  CLI::Option* quick = command->add_flag("--quick", options->quick, "Some minutes (the default)");
  command->add_flag("--full", options->full, "More draws, larger sizes, every SIMD target: hours")
      ->excludes(quick);
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common, exit_status);
    if (!status.ok()) *exit_status = Fail(status);
  });
}

}  // namespace attest
