// SPDX-License-Identifier: Apache-2.0
// attest experiment: runs one experiment and writes its record and page.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "experiments/experiment.h"
#include "reports/report.h"

namespace attest {
namespace {

struct ExperimentCommand {
  std::string name;
  std::string out;
  bool full = false;
  int seeds = 0;
};

Status Run(const ExperimentCommand& command, const CommonOptions& common) {
  ExperimentOptions options;
  options.quick = !command.full;
  options.threads = common.threads;
  options.seed = common.seed;
  options.seeds = command.seeds;
  options.command = common.command_line;
  std::string doing = command.name;
  options.doing = [&](const std::string& what) { doing = command.name + ": " + what; };
  options.progress = [&](std::size_t done, std::size_t all) { ShowProgress(doing, done, all); };
  const std::string out = command.out.empty() ? "out/" + command.name : command.out;
  const auto known = [&](const Experiment& e) { return e.name == command.name; };
  if (std::any_of(Experiments().begin(), Experiments().end(), known)) {
    if (Status s = PrepareDirectory(out); !s.ok()) return s;
  }
  StatusOr<nlohmann::ordered_json> record = RunExperiment(command.name, options);
  if (!record.ok()) return record.status();
  if (Status s = WriteReport(out, nlohmann::ordered_json::array({*record})); !s.ok()) return s;
  if (common.json) {
    fmt::print("{}\n", record->dump(2));
  } else {
    fmt::print("{}: {}\n{}\n{}/report.html\n", command.name,
               (*record)["verdict"].get<std::string>(), (*record)["summary"].get<std::string>(),
               out);
  }
  return Status();
}

}  // namespace

void AddExperimentCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand("experiment", "Run one experiment");
  const auto options = std::make_shared<ExperimentCommand>();
  command->add_option("name", options->name, "See attest list experiments")->required();
  command->add_option("--out", options->out, "Directory of its page (default: out/NAME)");
  command->add_flag("--full", options->full, "More draws and larger sizes");
  command
      ->add_option("--seeds", options->seeds,
                   "How many seeds, from --seed on, where an experiment takes several (mutation)")
      ->check(CLI::Range(1, 1000));
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common);
    *exit_status = status.ok() ? kExitConforms : Fail(status);
  });
}

}  // namespace attest
