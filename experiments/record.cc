// SPDX-License-Identifier: Apache-2.0
#include "experiments/record.h"

#include <span>

#include "core/digest.h"
#include "core/run_record.h"
#include "reference/certify.h"

namespace attest {

using nlohmann::ordered_json;

ordered_json NewRecord(const ExperimentText& text) {
  ordered_json record;
  record["attest_experiment"] = 1;
  record["name"] = text.name;
  record["title"] = text.title;
  for (const Experiment& experiment : Experiments()) {
    if (experiment.name == text.name) record["question"] = experiment.question;
  }
  record["claim"] = text.claim;
  record["source"] = text.source;
  record["rule"] = text.rule;
  record["verdict"] = "";
  record["summary"] = "";
  for (const char* list : {"tables", "plots", "notes"}) record[list] = ordered_json::array();
  return record;
}

void AddManifest(const ExperimentOptions& options, const std::string& inputs_sha256,
                 ordered_json* record) {
  Manifest manifest;
  manifest.command = options.command;
  manifest.seed = options.seed;
  manifest.libraries = ReferenceLibraries();
  manifest.inputs_sha256 = inputs_sha256;
  const std::string tables = (*record)["tables"].dump();
  manifest.outputs_sha256 = Sha256(std::as_bytes(std::span(tables)));
  (*record)["manifest"] = ToJson(manifest);
}

}  // namespace attest
