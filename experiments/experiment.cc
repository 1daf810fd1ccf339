// SPDX-License-Identifier: Apache-2.0
#include "experiments/experiment.h"

#include <fmt/format.h>

namespace attest {

const std::vector<Experiment>& Experiments() {
  static const std::vector<Experiment> experiments{
      {"worked-example", "Which numbers does the chapter's worked example give?", RunWorkedExample},
      {"saturation", "Does softmax saturate as D_k grows, and does 1/sqrt(D_k) prevent it?",
       RunSaturation},
      {"mutation", "Does an audit catch every known fault, and nothing that is right?",
       RunMutation},
      {"tolerances", "Which faults pass under the tolerances that projects test with?",
       RunTolerances},
      {"masks", "Where do conventions for masks differ without any error?", RunMasks},
  };
  return experiments;
}

StatusOr<nlohmann::ordered_json> RunExperiment(const std::string& name,
                                               const ExperimentOptions& options) {
  std::vector<std::string> names;
  for (const Experiment& experiment : Experiments()) {
    if (experiment.name == name) return experiment.run(options);
    names.push_back(experiment.name);
  }
  return NotFound(fmt::format("no experiment '{}' (known: {})", name, fmt::join(names, ", ")));
}

}  // namespace attest
