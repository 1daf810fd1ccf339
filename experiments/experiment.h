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
  int seeds = 0;        // how many, where an experiment repeats itself from `seed` on; 0: its own
  std::string command;  // for the manifest
  std::function<void(std::size_t done, std::size_t all)> progress;
  std::function<void(const std::string& what)> doing;  // what is being run, where steps are long
  // A record that another experiment has made by the same options, or null: then it is run again
  // where its result is needed. May be empty.
  std::function<const nlohmann::ordered_json*(const std::string& name)> finished;
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
StatusOr<nlohmann::ordered_json> RunPathLength(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunRealActivations(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunLongSentences(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunReproducibility(const ExperimentOptions& options);
StatusOr<nlohmann::ordered_json> RunLedger(const ExperimentOptions& options);

}  // namespace attest
