// SPDX-License-Identifier: Apache-2.0
// attest bench: measures, on one thread, and prints a table.
#include <fmt/format.h>

#include <memory>

#include "bench/benchmark.h"
#include "cli/command.h"
#include "core/run_record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

struct BenchCommand {
  std::string name;
  std::string out;
  bool quick = false;
  int rounds = 10;
};

// "rule 0%, double 99.98%, ...": rungs that settled nothing are left out.
std::string Shares(const ordered_json& counts) {
  double all = 0.0;
  for (const auto& [rung, count] : counts.items()) all += count.get<double>();
  std::string text;
  for (const auto& [rung, count] : counts.items()) {
    if (count == 0) continue;
    text += fmt::format("{}{} {:.4g}% ({})", text.empty() ? "" : ", ", rung,
                        100.0 * count.get<double>() / all, count.get<std::int64_t>());
  }
  return text;
}

void PrintRow(const ordered_json& row) {
  fmt::print("{:<24} {:<5}", row["name"].get<std::string>(), row["dtype"].get<std::string>());
  if (row.contains("unsupported")) {
    fmt::print(" unsupported: {}\n", row["unsupported"].get<std::string>());
    return;
  }
  const ordered_json& certified = row["certified"];
  if (row.contains("mpfr")) {
    fmt::print(" {:>12.0f} {:>11.1f} {:>8.0f}", row["mpfr"]["ns_per_element_min"].get<double>(),
               certified["ns_per_element_min"].get<double>(), row["ratio"].get<double>());
  } else {
    fmt::print(" {:>12} {:>11.1f} {:>8}", "-", certified["ns_per_element_min"].get<double>(), "-");
  }
  fmt::print(" {:>6} {:>8.2f} {:>6.1f}%\n", row["goal"].is_null() ? "-" : row["goal"].dump(),
             row["certified_gflops"].get<double>(), 100.0 * row["share_of_fma_peak"].get<double>());
}

void PrintRecord(const ordered_json& record) {
  fmt::print("{}: {}, the least of {} round(s){}\n", record["name"].get<std::string>(),
             record["clock"].get<std::string>(), record["rounds"].get<int>(),
             record["quick"].get<bool>() ? " (quick: short inputs, figures mean little)" : "");
  fmt::print(
      "Per output element: plain MPFR of 50 digits, the certified ladder, and their ratio.\n\n");
  fmt::print("{:<24} {:<5} {:>12} {:>11} {:>8} {:>6} {:>8} {:>7}\n", "queries x keys x size",
             "type", "mpfr ns", "certify ns", "ratio", "goal", "GFLOP/s", "peak");
  for (const ordered_json& row : record["rows"]) PrintRow(row);
  fmt::print("\n");
  for (const ordered_json& row : record["rows"]) {
    if (row.contains("unsupported")) continue;
    fmt::print("{} {}: rows {}; elements {}; median {:.1f} ns\n", row["name"].get<std::string>(),
               row["dtype"].get<std::string>(), Shares(row["rows_by_rung"]),
               Shares(row["elements_by_rung"]),
               row["certified"]["ns_per_element_median"].get<double>());
  }
  fmt::print("\nPeak of double multiply-adds on {}: {:.1f} GFLOP/s (median of the rounds {:.1f})\n",
             record["manifest"]["simd_target"].get<std::string>(),
             record["fma_peak_gflops"].get<double>(),
             record["fma_peak_gflops_median"].get<double>());
  if (!record["mpfr"].get<bool>()) {
    fmt::print("The comparison needs MPFR, which this build was configured without.\n");
  }
}

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
  if (command.name.empty()) {
    PrintList(common.json);
    return Status();
  }
  if (!command.out.empty()) {
    if (Status s = PrepareFile(command.out); !s.ok()) return s;
  }
  BenchmarkOptions options;
  options.quick = command.quick;
  options.rounds = command.quick ? 1 : command.rounds;
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
    PrintRecord(*record);
  }
  return Status();
}

}  // namespace

void AddBenchCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand("bench", "Measure what certified elements cost");
  const auto options = std::make_shared<BenchCommand>();
  command->add_option("name", options->name, "What to measure; without it, what there is");
  command->add_option("--out", options->out, "Write the record to this JSON file");
  CLI::Option* rounds = command
                            ->add_option("--rounds", options->rounds,
                                         "Rounds, of which the least time counts (default: 10)")
                            ->check(CLI::Range(1, 1000));
  command
      ->add_flag("--quick", options->quick, "One round at an eighth of every length, to try it out")
      ->excludes(rounds);
  command->footer("Benchmarks:\n" + ListText() +
                  "Always one thread; goals are shown and never decide the exit status.\n"
                  "Examples:\n"
                  "  attest bench reference\n"
                  "  attest bench reference --rounds 20 --out out/bench.json");
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common);
    *exit_status = status.ok() ? kExitConforms : Fail(status);
  });
}

}  // namespace attest
