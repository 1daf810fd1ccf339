// SPDX-License-Identifier: Apache-2.0
// Experiments: one question each, answered by a run record with tables, plots and a verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/status.h"

namespace attest {

struct ExperimentOptions {
  bool quick = true;  // fewer draws and smaller sizes; the record says which
  int threads = 1;
  std::uint64_t seed = 0;
  std::string command;  // for the manifest
  std::function<void(std::size_t done, std::size_t all)> progress;
};

struct Experiment {
  std::string name;
  std::string question;
  // The record ("attest_experiment": 1), or why there is none.
  StatusOr<nlohmann::ordered_json> (*run)(const ExperimentOptions& options);
};

const std::vector<Experiment>& Experiments();

// Runs one by name; NotFound for an unknown one.
StatusOr<nlohmann::ordered_json> RunExperiment(const std::string& name,
                                               const ExperimentOptions& options);

// The drivers, one file each.
StatusOr<nlohmann::ordered_json> RunWorkedExample(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunScaling(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunNormalisation(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunSaturation(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunMutation(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunFlashStability(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunFp8Attention(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunBiasedRounding(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunErrorMetrics(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunWeightUnderflow(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunLongRows(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunDilution(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunTolerances(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunMasks(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunExponentials(const ExperimentOptions& options);

}  // namespace attest
