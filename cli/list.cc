// SPDX-License-Identifier: Apache-2.0
// attest list: what there is.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "audit/bound.h"
#include "audit/builtin.h"
#include "audit/peer_subjects.h"
#include "audit/suite.h"
#include "bench/benchmark.h"
#include "cli/command.h"
#include "experiments/experiment.h"
#include "optimized/targets.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;  // name, description

Entries EntriesOf(const std::string& what) {
  Entries entries;
  if (what == "kernels") {
    for (const BuiltinKernel& kernel : BuiltinKernels()) {
      entries.emplace_back(kernel.name, kernel.description);
    }
    for (const BuiltinKernel& kernel : BuiltinKernels()) {
      for (const std::string_view target : RunnableTargets()) {
        entries.emplace_back(fmt::format("{}@{}", kernel.name, target),
                             fmt::format("the same on {}", target));
      }
    }
  } else if (what == "suites") {
    for (const SuiteInfo& suite : Suites()) entries.emplace_back(suite.name, suite.description);
  } else if (what == "experiments") {
    for (const Experiment& e : Experiments()) entries.emplace_back(e.name, e.question);
  } else if (what == "faults") {
    for (const FaultInfo& f : Faults()) {
      entries.emplace_back(f.name,
                           fmt::format("{}: {} ({})", f.fault_class, f.behaviour, f.reference));
    }
    for (const ControlInfo& c : Controls()) {
      entries.emplace_back(c.name, fmt::format("control: {} ({})", c.reason, c.reference));
    }
  } else if (what == "profiles") {
    for (const ProfileInfo& p : Profiles()) entries.emplace_back(p.name, p.description);
  } else if (what == "peers") {
    for (const PeerEntry& p : Peers()) {
      const std::string missing = p.missing.empty() ? "" : "; not installed: " + p.missing;
      entries.emplace_back(p.name, fmt::format("{} ({}){}", p.description, p.licence, missing));
    }
  } else if (what == "benchmarks") {
    for (const Benchmark& b : Benchmarks()) entries.emplace_back(b.name, b.question);
  }
  return entries;
}

}  // namespace

void AddListCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand("list", "List kernels, suites, experiments, ...");
  const auto what = std::make_shared<std::string>();
  command->add_option("what", *what, "What to list")
      ->required()
      ->check(CLI::IsMember(
          {"kernels", "suites", "experiments", "faults", "profiles", "peers", "benchmarks"}));
  command->callback([what, &common, exit_status] {
    const Entries entries = EntriesOf(*what);
    if (common.json) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const auto& [name, description] : entries) {
        list.push_back({{"name", name}, {"description", description}});
      }
      fmt::print("{}\n", list.dump(2));
    } else {
      std::size_t width = 0;
      for (const auto& [name, description] : entries) width = std::max(width, name.size());
      for (const auto& [name, description] : entries) {
        fmt::print("{:<{}}  {}\n", name, width, description);
      }
    }
    *exit_status = kExitConforms;
  });
}

}  // namespace attest
