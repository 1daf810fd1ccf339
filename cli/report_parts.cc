// SPDX-License-Identifier: Apache-2.0
#include "cli/report_parts.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>

#include "audit/audit.h"
#include "audit/builtin.h"
#include "audit/peer_subjects.h"
#include "experiments/experiment.h"
#include "optimized/targets.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

std::string SeedArgument(const CommonOptions& common) {
  return common.seed == 0 ? "" : fmt::format(" --seed {}", common.seed);
}

std::string SuiteArguments(const std::vector<std::string>& suites) {
  std::string arguments;
  for (const std::string& suite : suites) arguments += " --suite " + suite;
  return arguments;
}

// The cases of some suites, made and certified when the first of the audits that share them runs.
class SharedAuditor {
 public:
  SharedAuditor(const CommonOptions& common, std::vector<std::string> suites)
      : common_(common), suites_(std::move(suites)) {}

  // From several threads at a time too.
  StatusOr<ordered_json> Audit(const Subject& subject, const std::string& command) {
    std::call_once(made_, [&] { Make(); });
    if (!status_.ok()) return status_;
    return auditor_->Audit(subject, command);
  }

  const std::vector<std::string>& suites() const { return suites_; }

 private:
  void Make() {
    StatusOr<std::vector<SuiteCase>> cases = MakeSuites(suites_, common_.seed);
    status_ = cases.status();
    if (!cases.ok()) return;
    AuditOptions options;
    options.threads = common_.threads;
    options.seed = common_.seed;
    options.progress = [](const std::string& name, std::size_t done, std::size_t all) {
      ShowProgress("audit of " + name + ", case", done, all);
    };
    auditor_ = std::make_unique<Auditor>(*std::move(cases), std::move(options));
  }

  const CommonOptions& common_;
  std::vector<std::string> suites_;
  std::once_flag made_;
  Status status_;
  std::unique_ptr<Auditor> auditor_;
};

// Trains for hours in full: a report shows what its quick run says.
constexpr std::string_view kAlwaysQuick = "long-sentences";

ReportPart ExperimentPart(const Experiment& experiment, const CommonOptions& common, bool full) {
  full = full && experiment.name != kAlwaysQuick;
  return {PartKind::kExperiment, "experiment " + experiment.name, "", "",
          [&experiment, &common, full](const std::string& label, const ordered_json& records) {
            ExperimentOptions options;
            options.quick = !full;
            options.threads = common.threads;
            options.seed = common.seed;
            options.command = fmt::format("attest experiment {}{}{}", experiment.name,
                                          full ? " --full" : "", SeedArgument(common));
            options.progress = [&](std::size_t done, std::size_t all) {
              ShowProgress(label, done, all);
            };
            options.finished = [&](const std::string& name) -> const ordered_json* {
              for (const ordered_json& record : records) {
                if (record.contains("attest_experiment") && record["name"] == name) return &record;
              }
              return nullptr;
            };
            return experiment.run(options);
          }};
}

// TensorFlow.js' own outputs on the shipped activations.
ReportPart RecordedEnginePart(const CommonOptions& common) {
  return {
      PartKind::kAudit, "audit of TensorFlow.js", "", "",
      [&common](const std::string&, const ordered_json&) -> StatusOr<ordered_json> {
        StatusOr<std::filesystem::path> cases = ShippedCases("use_lite");
        if (!cases.ok()) return cases.status();
        StatusOr<std::unique_ptr<Subject>> subject =
            MakeRecordedSubject((*cases / "tfjs").string(), "TensorFlow.js 4.22.0, CPU backend");
        if (!subject.ok()) return subject.status();
        return SharedAuditor(common, {"real"})
            .Audit(**subject, "attest audit --results cases/use_lite/tfjs --cases cases/use_lite");
      }};
}

ReportPart KernelPart(const std::string& kernel, std::string_view target,
                      const CommonOptions& common, const std::shared_ptr<SharedAuditor>& auditor) {
  const std::string name = fmt::format("{}@{}", kernel, target);
  return {
      PartKind::kAudit, "audit of " + name, std::string(target), std::string(target),
      [name, &common, auditor](const std::string&, const ordered_json&) -> StatusOr<ordered_json> {
        StatusOr<std::unique_ptr<Subject>> subject = MakeBuiltinSubject(name);
        if (!subject.ok()) return subject.status();
        return auditor->Audit(**subject,
                              fmt::format("attest audit --kernel {}{}{}", name,
                                          SuiteArguments(auditor->suites()), SeedArgument(common)));
      }};
}

ReportPart PeerPart(const std::string& name, const CommonOptions& common,
                    const std::shared_ptr<SharedAuditor>& auditor) {
  return {
      PartKind::kPeer, "audit of peer:" + name, "peers", "",
      [name, &common, auditor](const std::string&, const ordered_json&) -> StatusOr<ordered_json> {
        StatusOr<std::unique_ptr<Subject>> subject = MakePeerSubject(name, ProcessLimits{});
        if (!subject.ok()) return subject.status();
        return auditor->Audit(**subject,
                              fmt::format("attest audit --kernel peer:{}{}{}", name,
                                          SuiteArguments(auditor->suites()), SeedArgument(common)));
      }};
}

}  // namespace

std::vector<ReportPart> ReportParts(const CommonOptions& common, bool full) {
  std::vector<ReportPart> parts;
  for (const Experiment& experiment : Experiments()) {
    parts.push_back(ExperimentPart(experiment, common, full));
  }
  parts.push_back(RecordedEnginePart(common));

  const auto of_kernels = std::make_shared<SharedAuditor>(
      common, std::vector<std::string>{"real", full ? "standard" : "quick"});
  for (const std::string_view target : RunnableTargets()) {
    for (const BuiltinKernel& kernel : BuiltinKernels()) {
      const bool wanted = full || kernel.name == "tiled" || target == RunnableTargets().front();
      if (kernel.specimen || !wanted) continue;
      parts.push_back(KernelPart(kernel.name, target, common, of_kernels));
    }
  }

  std::vector<std::string> peer_suites{"real"};
  if (full) peer_suites.emplace_back("quick");
  const auto of_peers = std::make_shared<SharedAuditor>(common, std::move(peer_suites));
  for (const PeerEntry& peer : Peers()) {
    if (peer.missing.empty()) parts.push_back(PeerPart(peer.name, common, of_peers));
  }
  return parts;
}

}  // namespace attest
