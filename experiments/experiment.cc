// SPDX-License-Identifier: Apache-2.0
#include "experiments/experiment.h"

#include <fmt/format.h>

namespace attest {

const std::vector<Experiment>& Experiments() {
  static const std::vector<Experiment> experiments{
      {"worked-example", "Which numbers does the chapter's worked example give?", RunWorkedExample},
      {"scaling", "Is the variance of q.k D_k, and 1 with the factor 1/sqrt(D_k)?", RunScaling},
      {"saturation", "Does softmax saturate as D_k grows, and does 1/sqrt(D_k) prevent it?",
       RunSaturation},
      {"normalisation", "How far are computed weights from softmax, and their sum from 1?",
       RunNormalisation},
      {"mutation", "Does an audit catch every known fault, and nothing that is right?",
       RunMutation},
      {"flash-stability", "Does tiling cost accuracy, and which rounding point makes it so?",
       RunFlashStability},
      {"fp8-attention", "How accurate are f16 and fp8 attention on inputs with outliers?",
       RunFp8Attention},
      {"biased-rounding", "When is a rounding to bf16 a bias, and what removes it?",
       RunBiasedRounding},
      {"error-metrics", "What do metrics of a whole tensor say about its rows?", RunErrorMetrics},
      {"weight-underflow", "When do weights in e4m3 vanish beside an attention sink?",
       RunWeightUnderflow},
      {"long-rows", "What does the order of summation cost over long rows?", RunLongRows},
      {"dilution", "How does the largest weight fall with the length of a row?", RunDilution},
      {"tolerances", "Which faults pass under the tolerances that projects test with?",
       RunTolerances},
      {"masks", "Where do conventions for masks differ without any error?", RunMasks},
      {"exponentials", "How accurate are exp, 2^x, ln and tanh of floats, and where?",
       RunExponentials},
      {"path-length", "Does a gradient fall with the recurrent steps between output and input?",
       RunPathLength},
      {"real-activations", "How far does random data speak for the activations of a real model?",
       RunRealActivations},
      {"long-sentences", "What does a fixed context lose on long sentences, and attention keep?",
       RunLongSentences},
      {"reproducibility", "Who gives the same bits whatever else is in the call, at what price?",
       RunReproducibility},
      // Last: it gathers what the others found.
      {"ledger", "Which claims about attention hold, and by which numbers?", RunLedger},
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
