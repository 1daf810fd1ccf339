// SPDX-License-Identifier: Apache-2.0
// attest report: the stability report of experiments, built-in kernels, installed peers and real
// activations.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/finished_parts.h"
#include "cli/report_parts.h"
#include "reports/report.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

struct ReportCommand {
  std::string out = "out/report";
  bool quick = false;
  bool full = false;
  bool restart = false;
  std::vector<std::string> only;
};

// Records of one kind.
struct Tally {
  int records = 0;
  int with_findings = 0;
};

// Keeps the parts whose names contain one of `only`; InvalidArgument names one that matches none.
Status KeepOnly(const std::vector<std::string>& only, std::vector<ReportPart>* parts) {
  const auto contains = [](const ReportPart& part, const std::string& text) {
    return part.name.find(text) != std::string::npos;
  };
  for (const std::string& text : only) {
    if (std::none_of(parts->begin(), parts->end(),
                     [&](const ReportPart& part) { return contains(part, text); })) {
      return InvalidArgument(fmt::format("--only {}: no part of the report has this name", text));
    }
  }
  if (only.empty()) return Status();
  std::erase_if(*parts, [&](const ReportPart& part) {
    return std::none_of(only.begin(), only.end(),
                        [&](const std::string& text) { return contains(part, text); });
  });
  return Status();
}

Status Run(const ReportCommand& command, const CommonOptions& common, int* exit_status) {
  std::vector<ReportPart> parts = ReportParts(common, command.full);
  if (Status s = KeepOnly(command.only, &parts); !s.ok()) return s;
  if (Status s = PrepareDirectory(command.out); !s.ok()) return s;
  const std::string options =
      fmt::format("{} seed {}", command.full ? "full" : "quick", common.seed);
  StatusOr<FinishedParts> finished = FinishedParts::Open(
      std::filesystem::path(command.out) / "unfinished", options, command.restart);
  if (!finished.ok()) return finished.status();
  if (finished->found() > 0) {
    fmt::print(stderr,
               "attest: goes on from {} finished parts of the run before (--restart: anew)\n",
               finished->found());
  }

  ordered_json records = ordered_json::array();
  std::vector<std::string> names;
  Tally tallies[3];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ReportPart& part = parts[i];
    std::optional<ordered_json> record = finished->Load(part.name);
    if (!record) {
      const std::string label = fmt::format("[{}/{}] {}", i + 1, parts.size(), part.name);
      ShowProgress(label, 0, 1);
      StatusOr<ordered_json> made = part.make(label, records);
      if (!made.ok()) {
        if (part.kind != PartKind::kPeer) return made.status();
        // Somebody else's installation; the report goes on without it.
        fmt::print(stderr, "attest: left out: {}\n", made.status().message());
        continue;
      }
      record = *std::move(made);
      if (Status s = finished->Store(part.name, *record); !s.ok()) return s;
    }
    Tally& tally = tallies[static_cast<int>(part.kind)];
    ++tally.records;
    tally.with_findings += record->value("verdict", "") == "findings" ? 1 : 0;
    records.push_back(*std::move(record));
    names.push_back(part.name);
  }
  if (Status s = WriteReport(command.out, records); !s.ok()) return s;
  if (Status s = finished->Remove(names); !s.ok()) return s;

  const Tally& experiments = tallies[static_cast<int>(PartKind::kExperiment)];
  const Tally& audits = tallies[static_cast<int>(PartKind::kAudit)];
  const Tally& peers = tallies[static_cast<int>(PartKind::kPeer)];
  if (common.json) {
    fmt::print("{}\n", records.dump(2));
  } else {
    fmt::print(
        "{} audits, {} with findings; {} peers, {} with findings; {} experiments\n"
        "{}/report.html\n",
        audits.records, audits.with_findings, peers.records, peers.with_findings,
        experiments.records, command.out);
  }
  // What a peer does decides no exit status.
  *exit_status = audits.with_findings == 0 ? kExitConforms : kExitFindings;
  return Status();
}

}  // namespace

void AddReportCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand(
      "report", "The stability report: experiments, built-in kernels, peers, real activations");
  const auto options = std::make_shared<ReportCommand>();
  command->add_option("--out", options->out, "Directory (default: out/report)");
  CLI::Option* quick = command->add_flag("--quick", options->quick, "Some minutes (the default)");
  command->add_flag("--full", options->full, "More draws, larger sizes, every SIMD target: an hour")
      ->excludes(quick);
  command->add_option("--only", options->only,
                      "Only the parts whose names contain this; may be repeated");
  command->add_flag("--restart", options->restart,
                    "Do not go on from what a stopped run left in DIR/unfinished");
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common, exit_status);
    if (!status.ok()) *exit_status = Fail(status);
  });
}

}  // namespace attest
