// SPDX-License-Identifier: Apache-2.0
// reference_validation: Certify against the textbook formula on millions of random elements.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "core/run_record.h"
#include "properties/reference_validation/validation.h"

namespace attest {
namespace {

struct Arguments {
  std::uint64_t seed = 0;
  std::optional<Index> elements;
  std::optional<double> seconds;
  Index at_least = 1;
  std::string family;
  std::optional<Index> index;
  int threads = 2;
  std::string record;
  std::string save;
};

void PrintFaults(const FamilyTally& tally, std::uint64_t seed) {
  const auto reproducer = [&](Index index) {
    return fmt::format("reference_validation --family {} --seed {} --index {}", tally.name, seed,
                       index);
  };
  if (tally.refused > 0) {
    fmt::print("{}: {} of {} cases refused, first: {}\n  {}\n", tally.name, tally.refused,
               tally.cases, tally.first_refusal, reproducer(tally.first_faulty_index));
  }
  for (const auto& [fault, count] : tally.verdict.faults) {
    fmt::print("{}: {} elements: {}\n", tally.name, count, NameOf(fault));
  }
  for (const FaultyElement& e : tally.verdict.examples) {
    fmt::print("  {}: {} element {}: got {:a}, expected {:a}; {}\n    {}\n", NameOf(e.fault),
               e.output, e.element, e.got, e.expected, e.detail, reproducer(e.index));
  }
}

void PrintTable(const Validation& validation) {
  fmt::print("{:<24}{:>8}{:>10}{:>8}{:>8}{:>11}{:>11}{:>11}\n", "family", "cases", "elements",
             "ties", "faults", "err/radius", "certify s", "witness s");
  const auto print = [](const FamilyTally& t) {
    Index faults = t.refused;
    for (const auto& [fault, count] : t.verdict.faults) faults += count;
    double ratio = 0.0;
    for (const auto& [name, rung] : t.verdict.rungs) ratio = std::max(ratio, rung.largest_ratio);
    fmt::print("{:<24}{:>8}{:>10}{:>8}{:>8}{:>11.3f}{:>11.2f}{:>11.2f}\n", t.name, t.cases,
               t.verdict.total(), t.verdict.ties, faults, ratio, t.certify_seconds,
               t.witness_seconds);
  };
  for (const FamilyTally& tally : validation.families) print(tally);
  print(validation.Total());
}

ValidationOptions OptionsFrom(const Arguments& arguments) {
  ValidationOptions options;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  if (arguments.elements) options.elements = *arguments.elements;
  if (arguments.seconds) options.seconds = *arguments.seconds;
  if (!arguments.elements && !arguments.seconds) options.elements = 5000000;
  for (const Family& family : Families()) {
    if (arguments.family.empty() || arguments.family == family.name) {
      options.families.push_back(&family);
    }
  }
  if (arguments.index) {  // one case
    options.first_index = *arguments.index;
    options.elements = options.threads = 1;
  }
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [target = options.elements](Index elements, Index faults) {
      fmt::print(stderr, "\r\x1b[K{} elements", elements);
      if (target != std::numeric_limits<Index>::max()) fmt::print(stderr, " of {}", target);
      fmt::print(stderr, ", {} faults ", faults);
      std::fflush(stderr);
    };
  }
  return options;
}

int Run(const Arguments& arguments) {
  const ValidationOptions options = OptionsFrom(arguments);
  if (!arguments.save.empty()) {
    const StatusOr<Case> problem =
        DrawCase(*options.families.front(), options.seed, options.first_index);
    const Status saved = problem.ok() ? WriteCase(arguments.save, *problem) : problem.status();
    if (!saved.ok()) {
      fmt::print(stderr, "reference_validation: {}\n", saved.message());
      return 2;
    }
  }
  if (const auto folder = std::filesystem::path(arguments.record).parent_path(); !folder.empty()) {
    std::error_code error;  // before the work, not after it
    std::filesystem::create_directories(folder, error);
    if (error) {
      fmt::print(stderr, "reference_validation: {}: cannot be created: {}\n", folder.string(),
                 error.message());
      return 2;
    }
  }
  const Validation validation = Validate(options);
  if (options.progress) fmt::print(stderr, "\r\x1b[K");
  PrintTable(validation);
  for (const FamilyTally& tally : validation.families) PrintFaults(tally, options.seed);
  bool ok = validation.ok();
  const Index all = validation.Total().verdict.total();
  if (all < arguments.at_least) {
    fmt::print("only {} elements were checked, expected {}\n", all, arguments.at_least);
    ok = false;
  }
  if (options.families.size() > 1 && all >= 1000000) {  // fewer may be mixed otherwise by chance
    for (const std::string& fault : MixtureFaults(validation)) {
      fmt::print("{}\n", fault);
      ok = false;
    }
  }
  fmt::print("{} elements in {:.1f} s, seed {}: {}\n", all, validation.seconds, options.seed,
             ok ? "all certified values confirmed" : "FAULTS");
  if (!arguments.record.empty()) {
    const Status written = WriteRecord(arguments.record, ToJson(validation, options));
    if (!written.ok()) {
      fmt::print(stderr, "reference_validation: {}\n", written.message());
      return 2;
    }
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  CLI::App app{
      "Checks Certify against the textbook formula in 100 digits on random cases of many "
      "families."};
  attest::Arguments arguments;
  app.add_option("--elements", arguments.elements, "End after so many elements (5000000)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", arguments.seconds, "End after so many seconds")
      ->check(CLI::PositiveNumber);
  app.add_option("--at-least", arguments.at_least, "Fail when fewer elements were checked");
  app.add_option("--seed", arguments.seed, "Decides every case (0)");
  CLI::Option* family = app.add_option("--family", arguments.family, "One family only");
  family->check([](const std::string& name) {
    return attest::FindFamily(name) != nullptr ? "" : "no family '" + name + "'";
  });
  CLI::Option* index = app.add_option("--index", arguments.index, "One case of the family only");
  index->needs(family)->check(CLI::NonNegativeNumber);
  app.add_option("--save", arguments.save, "Write that case as .safetensors")->needs(index);
  app.add_option("--threads", arguments.threads, "Worker threads (2)")->check(CLI::Range(1, 1024));
  app.add_option("--record", arguments.record, "Write the run as JSON");
  bool list = false;
  app.add_flag("--list", list, "List the families");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (list) {
    for (const attest::Family& each : attest::Families()) fmt::print("{}\n", each.name);
    return 0;
  }
  return attest::Run(arguments);
}
