// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_tables.h"

namespace attest {
namespace {

std::vector<FaultInfo> MaximumFaults() {
  const char* const range = "softmax range";
  const char* const online = "online softmax";
  return {
      {"no-max-subtraction", range, "exp(s) without subtracting the row maximum",
       "NVIDIA/FasterTransformer#43", Fault::kNoMaxSubtraction},
      {"constant-shift", range, "subtracts 10 instead of the row maximum", "HabanaAI/vllm-fork#275",
       Fault::kConstantShift},
      {"max-seed-smallest-positive", range,
       "the maximum starts at the smallest positive number, above every negative score",
       "csarofeen/pytorch#1141", Fault::kMaxSeedSmallestPositive},
      {"max-seed-5e4", range, "the maximum starts at -5e4; a row with lower scores is zero",
       "flashinfer-ai/flashinfer#4267", Fault::kMaxSeed5e4},
      {"correction-aliased", online,
       "the old maximum aliases the new one, so that the correction is always 1",
       "paiml/aprender#2753", Fault::kCorrectionAliased},
      {"masked-tile-poisons-max", online,
       "the shift 0 of a tile without keys is kept as the running maximum",
       "Dao-AILab/flash-attention#2082", Fault::kMaskedTilePoisonsMax},
  };
}

std::vector<FaultInfo> MergeFaults() {
  const char* const merge = "LSE and merging";
  const char* const sinks = "sinks";
  return {
      {"base2-lse-merged-natural", merge,
       "parts carry a base-2 LSE and are merged with natural exponentials",
       "sgl-project/sglang#40903", Fault::kBase2LseMergedNatural},
      {"merge-both-empty", merge, "two empty parts merge to NaN", "vllm-project/vllm#39148",
       Fault::kMergeBothEmpty},
      {"empty-part-finite-lse", merge, "an empty part has LSE 0 and whatever its memory held",
       "vllm-project/vllm#49294", Fault::kEmptyPartFiniteLse},
      {"merge-raw-exponentials", merge, "merges by exp(LSE) without subtracting the largest",
       "SHI-Labs/NATTEN#202", Fault::kMergeRawExponentials},
      {"partial-lse-not-stored", merge, "parts store their LSE only where the caller asks for one",
       "flashinfer-ai/flashinfer#50", Fault::kPartialLseNotStored},
      {"empty-row-lse-zero", merge, "the guard of empty rows makes their LSE 0",
       "pytorch/pytorch#134650", Fault::kEmptyRowLseZero},
      {"sink-with-placeholder-max", sinks,
       "a part without keys adds the sink relative to its placeholder maximum",
       "NVIDIA/TensorRT-LLM#19220", Fault::kSinkWithPlaceholderMax},
      {"sink-in-other-units", sinks, "all terms of the sum but the sink's carry a factor 2^8",
       "ROCm/rocm-libraries#11189", Fault::kSinkInOtherUnits},
      {"plus-one-without-shift", sinks, "the sink's term lacks the factor exp(-maximum)",
       "kyegomez/AttentionIsOFFByOne#5", Fault::kPlusOneWithoutShift},
  };
}

std::vector<FaultInfo> RoundingFaults() {
  const char* const low = "low precision";
  const char* const exponential = "exponential function";
  return {
      {"half-scores-before-scale", low, "in f16, unscaled scores are stored in f16 and overflow",
       "philipturner/metal-flash-attention#8", Fault::kHalfScoresBeforeScale},
      {"probs-rounded-before-pv", low, "f32 weights are rounded to bf16 before the product with v",
       "vllm-project/vllm#2368", Fault::kProbsRoundedBeforePv},
      {"half-denominator", low, "in f16, the sum of exponentials is kept in f16 and stops at 2048",
       "huggingface/candle#3727", Fault::kHalfDenominator},
      {"fast-exponential", exponential, "an exponential made of a float's bits, off by percents",
       "sonos/tract#2318", Fault::kFastExponential},
      {"exponential-clamped-at-min", exponential,
       "the argument is clamped, so that no weight is below the smallest normal number",
       "huggingface/funes#160", Fault::kExponentialClampedAtMin},
  };
}

}  // namespace

std::vector<FaultInfo> SoftmaxFaults() {
  std::vector<FaultInfo> all = MaximumFaults();
  for (const auto& faults : {MergeFaults(), RoundingFaults()}) {
    all.insert(all.end(), faults.begin(), faults.end());
  }
  return all;
}

}  // namespace attest
