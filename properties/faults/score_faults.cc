// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_tables.h"

namespace attest {

std::vector<FaultInfo> ScoreFaults() {
  const char* const scale = "scale";
  const char* const softcap = "soft cap";
  const char* const alibi = "ALiBi";
  const char* const heads = "grouped heads";
  return {
      {"scale-missing", scale, "ignores the scale", "mlc-ai/mlc-llm#3426", Fault::kScaleMissing},
      {"scale-full-model-dim", scale, "default scale from the width of all heads together",
       "lucidrains/vit-pytorch#65", Fault::kScaleFullModelDim},
      {"scale-inverted", scale, "divides by the scale", "esceptico/perceiver-io#9",
       Fault::kScaleInverted},
      {"scale-on-probabilities", scale, "multiplies the weights instead of the scores by the scale",
       "FrancescoSaverioZuppichini/ViT#2", Fault::kScaleOnProbabilities},
      {"scale-from-padded-dim", scale, "default scale from the head size as padded for the kernel",
       "intel/ipex-llm#12619", Fault::kScaleFromPaddedDim},
      {"bias-scaled-with-scores", scale, "the bias is scaled too where there is a boolean mask",
       "microsoft/onnxruntime#14976", Fault::kBiasScaledWithScores},
      {"softcap-after-mask", softcap,
       "the mask comes before the soft cap, which turns -infinity into -cap", "onnx/onnx#7865",
       Fault::kSoftcapAfterMask},
      {"softcap-wrong-factor", softcap, "s tanh(s/c) in the place of c tanh(s/c)",
       "unslothai/unsloth-zoo#593", Fault::kSoftcapWrongFactor},
      {"tanh-by-exponentials", softcap,
       "tanh as a quotient of exponentials, which overflow for large scores",
       "vllm-project/vllm#56578", Fault::kTanhByExponentials},
      {"softcap-before-scale", softcap, "caps the unscaled score and scales afterwards",
       "huggingface/trl#5691", Fault::kSoftcapBeforeScale},
      {"alibi-sign", alibi, "favours far keys", "meta-pytorch/attention-gym#86", Fault::kAlibiSign},
      {"alibi-slope-exponent", alibi, "default slopes from a head number that starts at 0",
       "paiml/aprender#2143", Fault::kAlibiSlopeExponent},
      {"alibi-lost-in-decode", alibi, "a single query has no position bias",
       "keras-team/keras-hub#2862", Fault::kAlibiLostInDecode},
      {"zero-slope-times-nan", alibi,
       "without ALiBi adds slope 0 times positions that nobody wrote", "ggml-org/llama.cpp#5574",
       Fault::kZeroSlopeTimesNan},
      {"gqa-tiled-heads", heads, "key/value head h mod Hkv instead of floor(h/(Hq/Hkv))",
       "onnx/onnx#7274", Fault::kGqaTiledHeads},
      {"gqa-wrong-divisor", heads, "key/value head floor(h/Hkv)", "PSAL-POSTECH/ONNXim#34",
       Fault::kGqaWrongDivisor},
  };
}

}  // namespace attest
