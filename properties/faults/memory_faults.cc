// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_tables.h"

namespace attest {

std::vector<FaultInfo> MemoryFaults() {
  const char* const masked = "masked memory";
  const char* const layout = "layout";
  const char* const overflow = "address overflow";
  const char* const lengths = "short sequences";
  return {
      {"nan-in-unused-value-slot", masked,
       "weight 0 times whatever the value slots behind the last key hold",
       "vllm-project/vllm#53856", Fault::kNanInUnusedValueSlot},
      {"nan-in-masked-key", masked, "masks by adding -infinity to a score that may be NaN",
       "pytorch/pytorch#101967", Fault::kNanInMaskedKey},
      {"cache-hole", masked,
       "a decoding step stores its key one slot too far and attends the slot in between",
       "microsoft/onnxruntime-genai#2354", Fault::kCacheHole},
      {"strides-ignored", layout, "reads views of q, k and v as if they were dense",
       "pytorch/pytorch#181133", Fault::kStridesIgnored},
      {"head-dim-fixed", layout, "the scores take the first 4 channels only",
       "triton-lang/triton#621", Fault::kHeadDimFixed},
      {"value-width-from-key", layout, "rows of v and of the output are as wide as those of k",
       "lucidrains/flash-attention-jax#15", Fault::kValueWidthFromKey},
      {"int32-row-offset", overflow, "the offset of a row of k or v is formed in 32 bits",
       "thu-ml/SageAttention#386", Fault::kInt32RowOffset},
      {"int32-batch-offset", overflow,
       "the offset of a batch entry or head of k or v is formed in 32 bits",
       "microsoft/onnxruntime#20921", Fault::kInt32BatchOffset},
      {"int32-mask-offset", overflow, "the offset of a row of the mask is formed in 32 bits",
       "ggml-org/llama.cpp#24912", Fault::kInt32MaskOffset},
      {"zero-keys-unwritten", lengths, "rows of a sequence without keys are not written",
       "Dao-AILab/flash-attention#2568", Fault::kZeroKeysUnwritten},
      {"padded-query-rows-garbage", lengths, "rows beyond the query length are not written",
       "ROCm/flash-attention#175", Fault::kPaddedQueryRowsGarbage},
  };
}

}  // namespace attest
