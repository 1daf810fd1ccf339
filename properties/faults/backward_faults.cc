// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_tables.h"

namespace attest {
namespace {

std::vector<FaultInfo> GradientFaults() {
  const char* const dropout = "dropout";
  const char* const backward = "backward pass";
  return {
      {"dropout-backward-factor", dropout,
       "the backward pass rescales kept weights by the rate instead of 1/(1 - rate)",
       "NVIDIA/apex#816", Fault::kDropoutBackwardFactor},
      {"dropout-in-inference", dropout, "drops weights at random where no keep mask is given",
       "huggingface/pytorch-image-models#1978", Fault::kDropoutInInference},
      {"backward-ignores-causal-flag", backward, "the backward pass is causal where forward is not",
       "triton-lang/triton#4541", Fault::kBackwardIgnoresCausalFlag},
      {"grouped-gradient-not-summed", backward,
       "gradients of a shared key/value head keep the last query head's part only",
       "marin-community/levanter#449", Fault::kGroupedGradientNotSummed},
      {"bias-gradient-last-writer", backward,
       "the gradient of a broadcast bias keeps one summand instead of the sum",
       "HKUSTDial/flash-sparse-attention#194", Fault::kBiasGradientLastWriter},
      {"bias-gradient-zero", backward, "the bias receives no gradient", "jax-ml/jax#27184",
       Fault::kBiasGradientZero},
      {"empty-row-nan-gradient", backward,
       "the NaN of an empty row is hidden in the forward pass and used in the backward pass",
       "pytorch/pytorch#196170", Fault::kEmptyRowNanGradient},
      {"split-backward-partial-statistics", backward,
       "each part's backward pass uses its own LSE and row term", "SHI-Labs/NATTEN#299",
       Fault::kSplitBackwardPartialStatistics},
      {"softmax-backward-without-row-term", backward, "dS = P dP without subtracting the row term",
       "ooples/AiDotNet.Tensors#49", Fault::kSoftmaxBackwardWithoutRowTerm},
      {"dp-contracts-key-width", backward, "dP sums as many channels of v as k has",
       "XunhaoLai/native-sparse-attention-triton#27", Fault::kDpContractsKeyWidth},
      {"bias-only-gradient", backward, "the LSE is missing where the bias alone has a gradient",
       "pytorch/pytorch#188302", Fault::kBiasOnlyGradient},
  };
}

}  // namespace

std::vector<FaultInfo> BackwardFaults() {
  const char* const repeatability = "repeatability";
  const char* const coder = "encoder-decoder";
  std::vector<FaultInfo> all = GradientFaults();
  const std::vector<FaultInfo> others{
      {"split-count-from-batch", repeatability,
       "the number of partial sums depends on the batch size", "vllm-project/vllm#53257",
       Fault::kSplitCountFromBatch},
      {"atomic-order", repeatability, "the order of the sums of grad_q changes from call to call",
       "Dao-AILab/flash-attention#414", Fault::kAtomicOrder},
      {"unsynchronised-row-sum", repeatability,
       "now and then a part of the backward pass's row term is lost",
       "Dao-AILab/flash-attention#359", Fault::kUnsynchronisedRowSum},
      {"weights-averaged-over-heads", "returned weights", "every head returns the heads' mean",
       "facebookresearch/fairseq#3365", Fault::kWeightsAveragedOverHeads},
      {"additive-pads-attended", coder, "additive attention ignores the key lengths",
       "tensorflow/tensorflow#512", Fault::kAdditivePadsAttended},
      {"softmax-over-queries", coder, "weights are normalised over queries instead of keys",
       "labmlai/annotated_deep_learning_paper_implementations#146", Fault::kSoftmaxOverQueries},
      {"softmax-over-singleton", coder, "every weight is 1", "DEEP-PolyU/KEQA_WSDM19#2",
       Fault::kSoftmaxOverSingleton},
  };
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace attest
