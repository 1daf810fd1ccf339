// SPDX-License-Identifier: Apache-2.0
// What the records of all experiments have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "experiments/experiment.h"

namespace attest {

// The fixed texts of an experiment. The rule is written before the run: it alone decides the
// verdict.
struct ExperimentText {
  std::string name;
  std::string title;
  std::string claim;
  std::string source;
  std::string rule;
};

// A record with these texts, the question from Experiments(), and empty tables, plots and notes.
nlohmann::ordered_json NewRecord(const ExperimentText& text);

// A heat map for the record's plots: z has one list for each y, one number (or null) for each x.
struct HeatMapText {
  std::string title;
  std::string note;
  std::string x_label;
  std::string y_label;
  std::string z_label;
  bool log_z = false;
};
nlohmann::ordered_json HeatMap(const HeatMapText& text, nlohmann::ordered_json x_values,
                               nlohmann::ordered_json y_values, nlohmann::ordered_json z_values);

// Adds the manifest; the outputs' digest is that of the record's tables.
void AddManifest(const ExperimentOptions& options, const std::string& inputs_sha256,
                 nlohmann::ordered_json* record);

}  // namespace attest
