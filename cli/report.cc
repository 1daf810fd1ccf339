// SPDX-License-Identifier: Apache-2.0
// attest report: the stability report of experiments, built-in kernels, installed peers and real
// activations.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/finished_parts.h"
#include "cli/report_parts.h"
#include "optimized/targets.h"
#include "optimized/thread_pool.h"
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

// The records of a report, one after the other or side by side.
class ReportRun {
 public:
  ReportRun(std::vector<ReportPart> parts, const FinishedParts& finished, int threads)
      : parts_(std::move(parts)), finished_(finished), threads_(threads), made_(parts_.size()) {}

  Status Make() {
    for (std::size_t first = 0; first < parts_.size();) {
      std::size_t last = first + 1;
      while (!parts_[first].group.empty() && last < parts_.size() &&
             parts_[last].group == parts_[first].group) {
        ++last;
      }
      if (Status s = MakeTogether(first, last); !s.ok()) return s;
      first = last;
    }
    return Status();
  }

  // In the order of the parts, without those that could not be made.
  const ordered_json& records() const { return records_; }
  const std::vector<std::string>& names() const { return names_; }
  int Count(PartKind kind) const { return tallies_[static_cast<std::size_t>(kind)].records; }
  int WithFindings(PartKind kind) const {
    return tallies_[static_cast<std::size_t>(kind)].with_findings;
  }

 private:
  struct Tally {
    int records = 0;
    int with_findings = 0;
  };

  // Parts [first, last), which are of one group or one.
  Status MakeTogether(std::size_t first, std::size_t last) {
    std::optional<ScopedTarget> scope;
    if (!parts_[first].target.empty()) {
      StatusOr<ScopedTarget> target = ScopedTarget::Force(parts_[first].target);
      if (!target.ok()) return target.status();
      scope.emplace(*std::move(target));
    }
    std::vector<Status> statuses(last - first);
    ThreadPool pool(last - first > 1 ? threads_ : 1);
    pool.Run(last - first, [&](std::size_t i, std::size_t) { statuses[i] = MakeOne(first + i); });
    for (const Status& status : statuses) {
      if (!status.ok()) return status;
    }
    for (std::size_t i = first; i < last; ++i) Add(i);
    return Status();
  }

  Status MakeOne(std::size_t i) {
    const ReportPart& part = parts_[i];
    made_[i] = finished_.Load(part.name);
    if (made_[i]) return Status();
    const std::string label = fmt::format("[{}/{}] {}", i + 1, parts_.size(), part.name);
    ShowProgress(label, 0, 1);
    StatusOr<ordered_json> record = part.make(label, records_);
    if (!record.ok()) {
      if (part.kind != PartKind::kPeer) return record.status();
      // Somebody else's installation; the report goes on without it.
      fmt::print(stderr, "attest: left out: {}\n", record.status().message());
      return Status();
    }
    made_[i] = *std::move(record);
    return finished_.Store(part.name, *made_[i]);
  }

  void Add(std::size_t i) {
    if (!made_[i]) return;
    Tally& tally = tallies_[static_cast<std::size_t>(parts_[i].kind)];
    ++tally.records;
    tally.with_findings += made_[i]->value("verdict", "") == "findings" ? 1 : 0;
    records_.push_back(*std::move(made_[i]));
    names_.push_back(parts_[i].name);
  }

  const std::vector<ReportPart> parts_;
  const FinishedParts& finished_;
  const int threads_;
  std::vector<std::optional<ordered_json>> made_;
  ordered_json records_ = ordered_json::array();
  std::vector<std::string> names_;
  std::array<Tally, 3> tallies_{};
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

  ReportRun run(std::move(parts), *finished, common.threads);
  if (Status s = run.Make(); !s.ok()) return s;
  if (Status s = WriteReport(command.out, run.records()); !s.ok()) return s;
  if (Status s = finished->Remove(run.names()); !s.ok()) return s;

  if (common.json) {
    fmt::print("{}\n", run.records().dump(2));
  } else {
    fmt::print(
        "{} audits, {} with findings; {} peers, {} with findings; {} experiments\n"
        "{}/report.html\n",
        run.Count(PartKind::kAudit), run.WithFindings(PartKind::kAudit), run.Count(PartKind::kPeer),
        run.WithFindings(PartKind::kPeer), run.Count(PartKind::kExperiment), command.out);
  }
  // What a peer does decides no exit status.
  *exit_status = run.WithFindings(PartKind::kAudit) == 0 ? kExitConforms : kExitFindings;
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
