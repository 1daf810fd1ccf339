// SPDX-License-Identifier: Apache-2.0
// attest reference: the certified result of one case.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
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
  int digits = 0;
};

nlohmann::ordered_json ToJson(const Certified& certified) {
  nlohmann::ordered_json json;
  json["undecided"] = certified.undecided;
  json["largest_precision_bits"] = certified.largest_precision;
  for (const auto& [name, tensor] : certified.outputs) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const CertifiedValue& v = tensor.values[i];
      values.push_back({{"nearest", NumberToJson(v.nearest)},
                        {"hi", NumberToJson(v.hi)},
                        {"lo", NumberToJson(v.lo)},
                        {"radius", NumberToJson(v.radius)},
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
  return fmt::format("exact in {:.17g} {:+.3g} +- {:.1e}", v.hi, v.lo, v.radius);
}

void PrintTable(const Certified& certified) {
  for (const auto& [name, tensor] : certified.outputs) {
    fmt::print("{} {} {}\n", name, NameOf(tensor.dtype), ToString(tensor.shape));
    const bool digits = !tensor.digits.empty();
    const std::size_t shown =
        digits ? tensor.values.size() : std::min(tensor.values.size(), kPrintedElements);
    for (std::size_t i = 0; i < shown; ++i) {
      const CertifiedValue& v = tensor.values[i];
      fmt::print("  {:<16} {:<24} {}{}\n", ToString(Unflatten(static_cast<Index>(i), tensor.shape)),
                 v.nearest,
                 digits && !tensor.digits[i].empty() ? tensor.digits[i] : EnclosureText(v),
                 v.decided ? "" : "  (undecided)");
    }
    if (shown < tensor.values.size()) {
      fmt::print("  ... {} more (use --out FILE, --json or --digits N)\n",
                 tensor.values.size() - shown);
    }
  }
}

Status Run(const ReferenceOptions& options, const CommonOptions& common) {
  std::error_code error;
  if (!options.out.empty() && std::filesystem::equivalent(options.file, options.out, error)) {
    return InvalidArgument(options.out + ": is the case itself; --out would overwrite it");
  }
  std::optional<std::filesystem::path> contract;
  if (!options.contract.empty()) contract = options.contract;
  StatusOr<Case> problem = ReadCase(options.file, contract);
  if (!problem.ok()) return problem.status();
  CertifyOptions certify;
  certify.threads = common.threads;
  certify.digits = options.digits;
  certify.progress = [](Index done, Index all) {
    ShowProgress("certified rows", static_cast<std::size_t>(done), static_cast<std::size_t>(all));
    return true;
  };
  StatusOr<Certified> certified = Certify(*problem, certify);
  if (!certified.ok()) {
    return {certified.status().code(), options.file + ": " + certified.status().message()};
  }
  if (!options.out.empty()) {
    TensorFile result;
    for (const auto& [name, tensor] : certified->outputs) {
      Tensor values(tensor.dtype, tensor.shape);
      for (Index i = 0; i < values.size(); ++i) {
        values.Set(i, tensor.values[static_cast<std::size_t>(i)].nearest);
      }
      result.tensors.emplace(name, std::move(values));
    }
    if (Status s = WriteSafetensors(options.out, result); !s.ok()) return s;
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
  return Status();
}

}  // namespace

void AddReferenceCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand(
      "reference", "Certified result of one case: nearest value, enclosure, decimal digits");
  const auto options = std::make_shared<ReferenceOptions>();
  command->add_option("case", options->file, "Case file (.safetensors or .npz)")->required();
  command->add_option("--contract", options->contract,
                      "Contract of a case without one (JSON file)");
  command->add_option("--out", options->out, "Write the nearest values to this .safetensors file");
  command->add_option("--digits", options->digits, "Certify this many significant decimal digits")
      ->check(CLI::Range(1, 1000));
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common);
    *exit_status = status.ok() ? kExitConforms : Fail(status);
  });
}

}  // namespace attest
