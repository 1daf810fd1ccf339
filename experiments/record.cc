// SPDX-License-Identifier: Apache-2.0
#include "experiments/record.h"

#include <span>
#include <utility>

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

ordered_json HeatMap(const HeatMapText& text, ordered_json x_values, ordered_json y_values,
                     ordered_json z_values) {
  ordered_json plot;
  plot["kind"] = "heatmap";
  plot["title"] = text.title;
  plot["note"] = text.note;
  plot["x"] = {{"label", text.x_label}, {"values", std::move(x_values)}};
  plot["y"] = {{"label", text.y_label}, {"values", std::move(y_values)}};
  plot["z"] = {{"label", text.z_label}, {"values", std::move(z_values)}};
  if (text.log_z) plot["z"]["scale"] = "log";
  return plot;
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
