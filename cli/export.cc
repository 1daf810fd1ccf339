// SPDX-License-Identifier: Apache-2.0
// attest export: the cases of suites as files, for implementations that run where Attest does not.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "audit/case_index.h"
#include "audit/process_subject.h"
#include "audit/suite.h"
#include "cli/command.h"
#include "cli/python_adapter.h"
#include "core/digest.h"
#include "core/file_io.h"
#include "core/run_record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAdapterFile = "attest_adapter.py";
constexpr const char* kReadMeFile = "README.txt";

struct ExportCommand {
  std::vector<std::string> suites;
  std::string out;
};

std::string ReadMe(const std::string& directory) {
  return fmt::format(
      R"(Cases of Attest, one .safetensors file each: the tensors q, k, v and those that take part beside
them, and the contract (what is to be computed) as JSON text in the metadata key "attest".
cases.json lists the files with their names, suites, contracts and the outputs that are asked for.

To compute results with Python and numpy, write my_adapter.py beside attest_adapter.py,

    import attest_adapter
    def function(contract, tensors, threads):
        ...  # numpy, torch or JAX; returns out, or a dict of outputs
    attest_adapter.serve(function, {{"name": "mine", "supports": {{"outputs": ["out"], "masks": []}}}})

and run

    python3 my_adapter.py --cases . --results results

With anything else, write the outputs of NAME.safetensors to results/NAME.safetensors (tensors out, lse,
weights, grad_q, ...), or out alone to results/NAME.npy. Cases may be left out.

Then, where Attest is installed:

    attest audit --results results --cases {}
)",
      ShellQuoted(directory));
}

// The entries of an earlier export to the directory. Refuses one that holds anything else, because
// every case file in it would be taken for one of the export.
StatusOr<std::vector<CaseEntry>> EarlierExport(const std::filesystem::path& directory) {
  StatusOr<std::vector<CaseEntry>> earlier = ReadCaseIndex(directory);
  if (earlier.ok() || earlier.status().code() != StatusCode::kNotFound) return earlier;
  std::error_code error;
  if (!std::filesystem::is_empty(directory, error) || error) {
    return InvalidArgument(directory.string() +
                           ": is neither empty nor an earlier export (no cases.json in it)");
  }
  return std::vector<CaseEntry>();
}

Status Run(const ExportCommand& options, const CommonOptions& common) {
  StatusOr<std::vector<SuiteCase>> cases = MakeSuites(options.suites, common.seed);
  if (!cases.ok()) return cases.status();
  if (Status s = PrepareDirectory(options.out); !s.ok()) return s;
  const std::filesystem::path directory = options.out;
  const StatusOr<std::vector<CaseEntry>> earlier = EarlierExport(directory);
  if (!earlier.ok()) return earlier.status();

  const std::vector<CaseEntry> entries = CaseEntries(*cases);
  std::set<std::string> files;
  for (const CaseEntry& entry : entries) files.insert(entry.file);
  std::string inputs;
  for (const SuiteCase& item : *cases) inputs += Sha256(item.problem.tensors);
  Manifest manifest;
  manifest.command = common.command_line;
  manifest.seed = common.seed;
  manifest.inputs_sha256 = Sha256(std::as_bytes(std::span(inputs)));
  const ordered_json manifest_json = ToJson(manifest);

  // The index comes first: an export that was interrupted is recognised as one, and runs again.
  if (Status s =
          WriteRecord(directory / kCaseIndexFile, CaseIndexToJson(entries, *cases, manifest_json));
      !s.ok()) {
    return s;
  }
  for (const CaseEntry& old : *earlier) {
    std::error_code error;
    if (!files.contains(old.file)) std::filesystem::remove(directory / old.file, error);
  }
  if (Status s = WriteWholeFile(directory / kAdapterFile, kPythonAdapter); !s.ok()) return s;
  if (Status s = WriteWholeFile(directory / kReadMeFile, ReadMe(options.out)); !s.ok()) return s;
  std::uintmax_t bytes = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    ShowProgress("export, case", i, entries.size());
    const std::filesystem::path file = directory / entries[i].file;
    if (Status s = WriteCase(file, (*cases)[i].problem); !s.ok()) return s;
    std::error_code error;
    bytes += std::filesystem::file_size(file, error);
  }
  ShowProgress("export, case", entries.size(), entries.size());

  if (common.json) {
    const ordered_json summary{{"attest_export", 1},
                               {"directory", options.out},
                               {"cases", entries.size()},
                               {"bytes", bytes},
                               {"manifest", manifest_json}};
    fmt::print("{}\n", summary.dump(2));
  } else {
    fmt::print("{} cases, {:.1f} MB, in {}; {} there says how to go on\n", entries.size(),
               static_cast<double>(bytes) / 1e6, options.out, kReadMeFile);
  }
  return Status();
}

}  // namespace

void AddExportCommand(CLI::App& app, const CommonOptions& common, int* exit_status) {
  CLI::App* command = app.add_subcommand("export", "Write the cases of suites as files");
  const auto options = std::make_shared<ExportCommand>();
  command->add_option("--suite", options->suites, "Suite to export, repeatable")->required();
  command->add_option("--out", options->out, "Directory, empty or an earlier export")->required();
  command->callback([options, &common, exit_status] {
    const Status status = Run(*options, common);
    *exit_status = status.ok() ? kExitConforms : Fail(status);
  });
}

}  // namespace attest
