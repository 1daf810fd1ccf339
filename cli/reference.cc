// SPDX-License-Identifier: Apache-2.0
// attest reference: the certified result of one case.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "core/case.h"
#include "core/run_record.h"
#include "core/safetensors.h"
#include "reference/certify.h"

namespace attest {
namespace {

constexpr std::size_t kPrintedElements = 20;  // a tensor without --digits, on standard output

struct ReferenceOptions {
  std::string file;
  std::string contract;
  std::string out;
  std::string what;
  int digits = 0;
};

// Replaces the outputs of the case by those of --what: names with commas between, or "all".
Status Select(const std::string& what, Case* problem) {
  std::vector<std::string> names;
  if (what == "all") {
    names = AllowedOutputs(*problem);
  } else {
    std::size_t begin = 0;
    for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
      comma = what.find(',', begin);
      names.push_back(what.substr(begin, comma - begin));
    }
  }
  return SelectOutputs(names, problem);
}

nlohmann::ordered_json ToJson(const Certified& certified) {
  nlohmann::ordered_json json;
  json["undecided"] = certified.undecided;
  json["largest_precision_bits"] = certified.largest_precision;
  const std::array<Index, kRungs> counts = certified.RungCounts();
  for (std::size_t rung = 0; rung < kRungs; ++rung) {
    json["rungs"][std::string(NameOf(static_cast<Rung>(rung)))] = counts[rung];
  }
  for (const auto& [name, tensor] : certified.outputs) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const CertifiedValue& v = tensor.values[i];
      values.push_back({{"nearest", NumberToJson(v.nearest)},
                        {"hi", NumberToJson(v.hi)},
                        {"lo", NumberToJson(v.lo)},
                        {"radius", NumberToJson(v.radius)},
                        {"rung", NameOf(v.rung)},
                        {"decided", v.decided}});
      if (!tensor.digits.empty()) values.back()["digits"] = tensor.digits[i];
    }
    json["outputs"][name] = {
        {"dtype", NameOf(tensor.dtype)}, {"shape", tensor.shape}, {"values", std::move(values)}};
  }
  return json;
}

std::string EnclosureText(const CertifiedValue& v) {
  if (!std::isfinite(v.hi)) return "by the contract's rules";
  if (v.radius == 0.0 && v.lo == 0.0) return fmt::format("exactly {:.17g}", v.hi);
  return fmt::format("exact in {:.17g} {:+.3g} +- {:.1e}", v.hi, v.lo, v.radius);
}

// How many elements each rung settled, and at what cost.
std::string Summary(const Certified& certified) {
  const std::array<Index, kRungs> counts = certified.RungCounts();
  std::string shares;
  Index elements = 0;
  for (std::size_t rung = 0; rung < kRungs; ++rung) {
    shares += fmt::format("{}{} {}", rung == 0 ? "" : ", ", NameOf(static_cast<Rung>(rung)),
                          counts[rung]);
    elements += counts[rung];
  }
  const std::string precision =
      certified.largest_precision > 0
          ? fmt::format("largest precision {} bits", certified.largest_precision)
          : "no ball was needed";
  return fmt::format("{} elements by the rung that settled them: {}; {}", elements, shares,
                     precision);
}

void PrintTable(const Certified& certified) {
  for (const auto& [name, tensor] : certified.outputs) {
    fmt::print("{} {} {}\n", name, NameOf(tensor.dtype), ToString(tensor.shape));
    const bool digits = !tensor.digits.empty();
    const std::size_t shown =
        digits ? tensor.values.size() : std::min(tensor.values.size(), kPrintedElements);
    for (std::size_t i = 0; i < shown; ++i) {
      const CertifiedValue& v = tensor.values[i];
      fmt::print("  {:<16} {:<24} {:<13} {}{}\n",
                 ToString(Unflatten(static_cast<Index>(i), tensor.shape)), v.nearest,
                 NameOf(v.rung),
                 digits && !tensor.digits[i].empty() ? tensor.digits[i] : EnclosureText(v),
                 v.decided ? "" : "  (undecided)");
    }
    if (shown < tensor.values.size()) {
      fmt::print("  ... {} more (use --out FILE, --json or --digits N)\n",
                 tensor.values.size() - shown);
    }
  }
  fmt::print("{}\n", Summary(certified));
}

StatusOr<Case> ReadProblem(const ReferenceOptions& options) {
  std::optional<std::filesystem::path> contract;
  if (!options.contract.empty()) contract = options.contract;
  StatusOr<Case> problem = ReadCase(options.file, contract);
  if (!problem.ok() || options.what.empty()) return problem;
  if (Status s = Select(options.what, &*problem); !s.ok()) {
    return Status(s.code(), options.file + ": --what: " + s.message());
  }
  return problem;
}

Status CheckOut(const ReferenceOptions& options) {
  if (options.out.empty()) return Status();
  std::error_code error;
  if (std::filesystem::equivalent(options.file, options.out, error)) {
    return InvalidArgument(options.out + ": is the case itself; --out would overwrite it");
  }
  return PrepareFile(options.out);
}

Status WriteNearest(const std::string& file, const Certified& certified) {
  TensorFile result;
  for (const auto& [name, tensor] : certified.outputs) {
    Tensor values(tensor.dtype, tensor.shape);
    for (Index i = 0; i < values.size(); ++i) {
      values.Set(i, tensor.values[static_cast<std::size_t>(i)].nearest);
    }
    result.tensors.emplace(name, std::move(values));
  }
  return WriteSafetensors(file, result);
}

// Sets *exit_status; the Status is for bad usage and unreadable input.
Status Run(const ReferenceOptions& options, const CommonOptions& common, int* exit_status) {
  const InterruptScope interruptible;
  if (Status s = CheckOut(options); !s.ok()) return s;
  StatusOr<Case> problem = ReadProblem(options);
  if (!problem.ok()) return problem.status();
  Index done_rows = 0;
  CertifyOptions certify;
  certify.threads = common.threads;
  certify.digits = options.digits;
  certify.progress = [&](Index done, Index all) {
    done_rows = done;
    ShowProgress("certified rows", static_cast<std::size_t>(done), static_cast<std::size_t>(all));
    return !InterruptScope::Requested();
  };
  StatusOr<Certified> certified = Certify(*problem, certify);
  if (InterruptScope::Requested()) {
    Fail(Internal(fmt::format("{}: interrupted after {} rows, nothing was written", options.file,
                              done_rows)));
    *exit_status = kExitInterrupted;
    return Status();
  }
  if (!certified.ok()) {
    return {certified.status().code(), options.file + ": " + certified.status().message()};
  }
  if (!options.out.empty()) {
    if (Status s = WriteNearest(options.out, *certified); !s.ok()) return s;
  }
  if (common.json) {
    fmt::print("{}\n", ToJson(*certified).dump());
  } else {
    PrintTable(*certified);
  }
  if (certified->undecided > 0) {
    fmt::print(stderr, "attest: {} elements could not be separated from a rounding boundary\n",
               certified->undecided);
  }
  *exit_status = kExitConforms;
  return Status();
}

}  // namespace

void AddReferenceCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand(
      "reference", "Certified result of one case: nearest value, enclosure, decimal digits");
  const auto options = std::make_shared<ReferenceOptions>();
  command->add_option("case", options->file, "Case file (.safetensors or .npz)")->required();
  command->add_option("--what", options->what,
                      "Outputs in place of the contract's, with commas between: out, lse, weights, "
                      "grad_q, ...; or all that the case allows");
  command->add_option("--contract", options->contract,
                      "Contract of a case without one (JSON file)");
  command->add_option("--out", options->out, "Write the nearest values to this .safetensors file");
  command->add_option("--digits", options->digits, "Certify this many significant decimal digits")
      ->check(CLI::Range(1, 1000));
  command->footer(
      "Prints for every element the nearest value of the output's type, the rung of the ladder\n"
      "that settled it and an enclosure of the exact value; docs/reference.md explains both.\n"
      "Ctrl-C stops it and writes nothing (exit status 130).\n"
      "Examples:\n"
      "  attest reference case.safetensors\n"
      "  attest reference case.safetensors --what out,lse --digits 50\n"
      "  attest reference case.safetensors --what grad_q,grad_k,grad_v --out "
      "gradients.safetensors\n"
      "  attest reference case.npz --contract contract.json --what all --json --threads 4");
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common, exit_status);
    if (!status.ok()) *exit_status = Fail(status);
  });
}

}  // namespace attest
