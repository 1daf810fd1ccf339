// SPDX-License-Identifier: Apache-2.0
// attest bench: measures, and prints a table or the record.
#include <fmt/format.h>

#include <memory>

#include "bench/benchmark.h"
#include "cli/bench_tables.h"
#include "cli/command.h"
#include "core/run_record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

struct BenchCommand {
  std::string name = "attention";
  std::string out;
  bool list = false;
  bool quick = false;
  int rounds = 10;
  std::string shape;
};

std::string ListText() {
  std::string text;
  for (const Benchmark& benchmark : Benchmarks()) {
    text += fmt::format("{:<12} {}\n", benchmark.name, benchmark.question);
  }
  return text;
}

void PrintList(bool as_json) {
  if (!as_json) {
    fmt::print("{}", ListText());
    return;
  }
  ordered_json list = ordered_json::array();
  for (const Benchmark& benchmark : Benchmarks()) {
    list.push_back({{"name", benchmark.name}, {"description", benchmark.question}});
  }
  fmt::print("{}\n", list.dump(2));
}

Status Run(const BenchCommand& command, const CommonOptions& common) {
  if (command.list) {
    PrintList(common.json);
    return Status();
  }
  if (!command.out.empty()) {
    if (Status s = PrepareFile(command.out); !s.ok()) return s;
  }
  BenchmarkOptions options;
  options.quick = command.quick;
  options.rounds = command.quick ? 1 : command.rounds;
  options.shape = command.shape;
  options.seed = common.seed;
  options.command = common.command_line;
  options.progress = [&](std::size_t done, std::size_t all) {
    ShowProgress("bench " + command.name, done, all);
  };
  StatusOr<ordered_json> record = RunBenchmark(command.name, options);
  if (!record.ok()) return record.status();
  if (!command.out.empty()) {
    if (Status s = WriteRecord(command.out, *record); !s.ok()) return s;
  }
  if (common.json) {
    fmt::print("{}\n", record->dump(2));
  } else {
    PrintBenchmark(*record);
  }
  return Status();
}

}  // namespace

void AddBenchCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand("bench", "Measure kernels and certified elements");
  const auto options = std::make_shared<BenchCommand>();
  command->add_option("name", options->name, "What to measure (default: attention)");
  command->add_flag("--list", options->list, "List what can be measured, and measure nothing");
  command->add_option("--out", options->out, "Write the record to this JSON file");
  CLI::Option* rounds = command
                            ->add_option("--rounds", options->rounds,
                                         "Rounds, of which the least time counts (default: 10)")
                            ->check(CLI::Range(1, 1000));
  command
      ->add_flag("--quick", options->quick,
                 "attention: few rounds, under a minute; reference: one round, short inputs")
      ->excludes(rounds);
  command->add_option("--shape", options->shape,
                      "attention: heads x length x head size instead of the table's shapes");
  command->footer("Benchmarks:\n" + ListText() +
                  "One thread unless said otherwise; no figure decides the exit status.\n"
                  "Examples:\n"
                  "  attest bench --quick\n"
                  "  attest bench --shape 12x512x64\n"
                  "  attest bench reference --rounds 20 --out out/bench.json");
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common);
    *exit_status = status.ok() ? kExitConforms : Fail(status);
  });
}

}  // namespace attest
