// SPDX-License-Identifier: Apache-2.0
// kernel_validation: every built-in kernel on every SIMD target against certified values.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "core/run_record.h"
#include "optimized/kernels.h"
#include "properties/kernel_validation/kernel_validation.h"

namespace attest {
namespace {

struct Arguments {
  std::uint64_t seed = 0;
  std::optional<Index> elements;
  std::optional<double> seconds;
  Index at_least = 1;
  std::vector<std::string> kernels;
  std::vector<std::string> families;
  std::string case_name;
  int threads = 2;
  std::string record;
  std::string save;
};

const Family* FindKernelFamily(const std::string& name) {
  for (const Family* family : AllKernelFamilies()) {
    if (name == family->name) return family;
  }
  return nullptr;
}

// "rules/17": a family and an index.
std::string CheckCase(const std::string& name) {
  const std::size_t slash = name.find('/');
  const std::string index = slash == std::string::npos ? "" : name.substr(slash + 1);
  const bool is_number = !index.empty() && index.size() < 12 &&
                         index.find_first_not_of("0123456789") == std::string::npos;
  if (is_number && FindKernelFamily(name.substr(0, slash)) != nullptr) return "";
  return "'" + name + "' is not FAMILY/INDEX (--list lists the families)";
}

void PrintTable(const ValidationTally& tally) {
  fmt::print(
      "largest error/bound: of outputs in the type of the arithmetic (and the case), narrower\n");
  fmt::print("{:<27}{:<8}{:>8}{:>12}{:>11}{:>11}{:>11}{:>8}\n", "kernel", "target", "cases",
             "unsupported", "elements", "not judged", "as wide", "narrow");
  for (const auto& [key, kernel] : tally.kernels) {
    const LargestRatio wide = kernel.Largest(false);
    fmt::print("{:<27}{:<8}{:>8}{:>12}{:>11}{:>11}{:>11.4f}{:>8.4f}  {}\n", key.first, key.second,
               kernel.cases, kernel.unsupported, kernel.total(), kernel.not_judged, wide.ratio,
               kernel.Largest(true).ratio, wide.case_name);
  }
  const auto print = [](const char* what, const BitsTally& bits) {
    fmt::print("same bits {:<46}{:>12} elements compared, {} results differ\n", what, bits.compared,
               bits.different);
  };
  print("of reproducible kernels on all targets", tally.across_targets);
  print("on one and three threads", tally.across_threads);
  print("of decode- and tiled-reproducible", tally.decode_and_tiled);
}

KernelValidationOptions OptionsFrom(const Arguments& arguments) {
  KernelValidationOptions options;
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.kernels = arguments.kernels.empty() ? KernelsToValidate() : arguments.kernels;
  if (arguments.elements) options.elements = *arguments.elements;
  if (arguments.seconds) options.seconds = *arguments.seconds;
  if (!arguments.elements && !arguments.seconds) options.elements = 10000000;
  for (const Family* family : AllKernelFamilies()) {
    if (arguments.families.empty() ||
        std::find(arguments.families.begin(), arguments.families.end(), family->name) !=
            arguments.families.end()) {
      options.families.push_back(family);
    }
  }
  if (!arguments.case_name.empty()) {
    const std::size_t slash = arguments.case_name.find('/');
    options.families = {FindKernelFamily(arguments.case_name.substr(0, slash))};
    options.first_index = std::atoll(arguments.case_name.c_str() + slash + 1);
    options.most_cases = options.threads = 1;
  }
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [target = options.elements](Index elements, Index violations) {
      fmt::print(stderr, "\r\x1b[K{} elements a kernel and target", elements);
      if (target != std::numeric_limits<Index>::max()) fmt::print(stderr, " of {}", target);
      fmt::print(stderr, ", {} violations ", violations);
      std::fflush(stderr);
    };
  }
  return options;
}

int Fail(const std::string& message) {
  fmt::print(stderr, "kernel_validation: {}\n", message);
  return 2;
}

int Run(const Arguments& arguments) {
  const KernelValidationOptions options = OptionsFrom(arguments);
  if (!arguments.save.empty()) {
    const StatusOr<Case> problem =
        DrawKernelCase(*options.families.front(), options.seed, options.first_index);
    const Status saved = problem.ok() ? WriteCase(arguments.save, *problem) : problem.status();
    if (!saved.ok()) return Fail(saved.message());
  }
  if (const auto folder = std::filesystem::path(arguments.record).parent_path(); !folder.empty()) {
    std::error_code error;  // before the work, not after it
    std::filesystem::create_directories(folder, error);
    if (error)
      return Fail(fmt::format("{}: cannot be created: {}", folder.string(), error.message()));
  }
  const StatusOr<KernelValidation> validation = ValidateKernels(options);
  if (options.progress) fmt::print(stderr, "\r\x1b[K");
  if (!validation.ok()) return Fail(validation.status().message());
  const ValidationTally& tally = validation->tally;
  PrintTable(tally);
  for (const KernelViolation& violation : tally.violations) fmt::print("{}\n", ToLine(violation));
  if (tally.refused > 0) {
    fmt::print("{} of {} cases refused, first: {}\n", tally.refused, tally.cases,
               tally.first_refusal);
  }
  bool ok = validation->ok();
  if (tally.fewest_elements() < arguments.at_least) {
    fmt::print("only {} elements were judged, expected {}\n", tally.fewest_elements(),
               arguments.at_least);
    ok = false;
  }
  fmt::print("{} cases, at least {} elements a kernel and target, in {:.1f} s, seed {}: {}\n",
             tally.cases, tally.fewest_elements(), validation->seconds, options.seed,
             ok ? "no violation" : "VIOLATIONS");
  if (!arguments.record.empty()) {
    const Status written = WriteRecord(arguments.record, ToJson(*validation, options));
    if (!written.ok()) return Fail(written.message());
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  CLI::App app{
      "Judges every built-in kernel on every SIMD target of this machine by certified values and "
      "derived bounds, on random and adversarial cases of many families."};
  attest::Arguments arguments;
  app.add_option("--elements", arguments.elements,
                 "End when every kernel has had so many elements judged on every target (10000000)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", arguments.seconds, "End after so many seconds")
      ->check(CLI::PositiveNumber);
  app.add_option("--at-least", arguments.at_least,
                 "Fail when fewer were judged of some kernel on some target");
  app.add_option("--seed", arguments.seed, "Decides every case (0)");
  app.add_option("--kernels", arguments.kernels, "Kernels, separated by commas (all)")
      ->delimiter(',')
      ->check([](const std::string& name) {
        return attest::FindKernel(name) ? "" : "no kernel '" + name + "'";
      });
  CLI::Option* families =
      app.add_option("--families", arguments.families, "Families, separated by commas (all)")
          ->delimiter(',')
          ->check([](const std::string& name) {
            return attest::FindKernelFamily(name) != nullptr ? "" : "no family '" + name + "'";
          });
  CLI::Option* one = app.add_option("--case", arguments.case_name, "FAMILY/INDEX: that case only")
                         ->check(attest::CheckCase)
                         ->excludes(families);
  app.add_option("--save", arguments.save, "Write that case as .safetensors")->needs(one);
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
    for (const attest::Family* each : attest::AllKernelFamilies()) fmt::print("{}\n", each->name);
    return 0;
  }
  return attest::Run(arguments);
}
