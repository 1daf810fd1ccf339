// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_tables.h"

namespace attest {
namespace {

std::vector<FaultInfo> EmptyRowFaults() {
  const char* const rows = "empty rows";
  const char* const sentinels = "mask sentinels";
  return {
      {"full-row-nan", rows, "a row without allowed keys goes through an unguarded softmax: NaN",
       "tracel-ai/burn#4694", Fault::kFullRowNan},
      {"full-row-mean-of-v", rows,
       "the lowest float stands for -infinity, so that an empty row becomes the mean of v",
       "microsoft/onnxruntime#28958", Fault::kFullRowMeanOfV},
      {"guard-on-one-path-only", rows,
       "empty rows are guarded only in the path that returns no weights", "pytorch/pytorch#160064",
       Fault::kGuardOnOnePathOnly},
      {"mask-via-inf-product", rows,
       "a boolean mask times -infinity is the bias: 0 * -infinity makes allowed keys NaN",
       "onnx/onnx#8068", Fault::kMaskViaInfProduct},
      {"finfo-min-overflow-half", sentinels,
       "in binary16, -65504 plus a negative score overflows to -infinity: NaN in padded rows",
       "huggingface/transformers#17306", Fault::kFinfoMinOverflowHalf},
      {"sentinel-beats-real-score", sentinels,
       "masked keys have the score -10000, which real scores can lie below",
       "ohdearquant/lattice#361", Fault::kSentinelBeatsRealScore},
      {"mask-fill-near-zero", sentinels, "masked keys have the score +1e-9", "awslabs/gluonts#1401",
       Fault::kMaskFillNearZero},
      {"plus-infinity-fill", sentinels, "masked keys have the score +infinity",
       "lucidrains/memory-compressed-attention#2", Fault::kPlusInfinityFill},
  };
}

std::vector<FaultInfo> MeaningFaults() {
  const char* const meaning = "mask meaning";
  return {
      {"bool-mask-added-as-number", meaning, "adds the boolean mask to the scores as 0 or 1",
       "huggingface/transformers#41443", Fault::kBoolMaskAddedAsNumber},
      {"mask-polarity-inverted", meaning, "attends where the boolean mask is false",
       "lucidrains/x-transformers#160", Fault::kMaskPolarityInverted},
      {"float-bias-thresholded", meaning, "a bias other than 0 masks its key and is not added",
       "pytorch/pytorch#107084", Fault::kFloatBiasThresholded},
      {"causal-lost-when-weights-requested", meaning,
       "the causal rule is only in the path that returns no weights", "keras-team/keras#23038",
       Fault::kCausalLostWhenWeightsRequested},
      {"causal-needs-a-mask", meaning, "the causal rule holds only where there is a mask as well",
       "facebookresearch/xformers#103", Fault::kCausalNeedsAMask},
      {"causal-always-on", meaning, "the causal rule holds whatever the contract says",
       "google/torchax#39", Fault::kCausalAlwaysOn},
      {"explicit-mask-ignored", meaning, "never reads the boolean mask", "pytorch/pytorch#122753",
       Fault::kExplicitMaskIgnored},
      {"mask-after-softmax", meaning, "writes -infinity into the probabilities of masked keys",
       "huggingface/pytorch-image-models#2236", Fault::kMaskAfterSoftmax},
      {"mask-multiplies-scores", meaning, "scores times the 0/1 mask: masked keys have the score 0",
       "georg-wolflein/good-features#1", Fault::kMaskMultipliesScores},
      {"holey-mask-as-length", meaning, "takes a row of the mask for a number of leading keys",
       "microsoft/onnxruntime#27885", Fault::kHoleyMaskAsLength},
      {"mask-dropped-as-redundant", meaning,
       "replaces a mask that hides no key from all queries by the rule j <= i",
       "huggingface/transformers#30311", Fault::kMaskDroppedAsRedundant},
  };
}

std::vector<FaultInfo> IndexFaults() {
  const char* const index = "mask indexing";
  const char* const causal = "causal alignment";
  return {
      {"padding-on-query-axis", index, "reads a mask of padded keys with the query's index",
       "hyunwoongko/transformer#40", Fault::kPaddingOnQueryAxis},
      {"first-row-of-chunk-mask", index, "every query of a chunk has the mask of its first query",
       "google-research/tabfm#40", Fault::kFirstRowOfChunkMask},
      {"later-batches-empty", index,
       "a table of key tiles is read with another batch stride than it was laid out with",
       "pytorch/pytorch#139462", Fault::kLaterBatchesEmpty},
      {"causal-ignores-past", causal, "bottom-right causal without its offset",
       "tinygrad/tinygrad#15949", Fault::kCausalIgnoresPast},
      {"causal-wrong-corner", causal, "top-left causal with the offset of bottom-right",
       "pytorch/executorch#22426", Fault::kCausalWrongCorner},
      {"causal-sees-next", causal, "allows one key behind the diagonal", "RVC-Boss/GPT-SoVITS#965",
       Fault::kCausalSeesNext},
      {"causal-drops-self", causal, "allows only the keys before the diagonal",
       "PaddlePaddle/flash-attention#48", Fault::kCausalDropsSelf},
      {"diagonal-tile-only", causal,
       "masks key by key only in the tile that has the number of its query tile",
       "pytorch/executorch#9105", Fault::kDiagonalTileOnly},
  };
}

std::vector<FaultInfo> WindowFaults() {
  const char* const window = "sliding windows";
  const char* const tiles = "partial tiles";
  return {
      {"window-plus-one", window, "the window reaches one key further to the left",
       "huggingface/transformers#39408", Fault::kWindowPlusOne},
      {"window-negative-means-all", window,
       "the left side is negated, which then means that it is unbounded", "proger/hippogriff#7",
       Fault::kWindowNegativeMeansAll},
      {"window-future-leak", window, "the right side of the window counts only with causal",
       "jax-ml/jax#39576", Fault::kWindowFutureLeak},
      {"window-needs-a-mask", window,
       "an early return skips the window where there is no mask, causal rule or length",
       "jax-ml/jax#32300", Fault::kWindowNeedsAMask},
      {"window-from-padded-end", window,
       "the window's diagonal comes from the buffers' lengths, not from the sequences'",
       "NVIDIA/TransformerEngine#1281", Fault::kWindowFromPaddedEnd},
      {"zero-filled-tail-keys", tiles, "keys of zeros that fill up the last tile take part",
       "flashinfer-ai/flashinfer#5090", Fault::kZeroFilledTailKeys},
      {"tail-guard-needs-mask", tiles,
       "keys of zeros that fill up the last tile are masked only where there is a mask",
       "NVIDIA/cudnn-frontend#53", Fault::kTailGuardNeedsMask},
      {"tail-of-one", tiles, "a last tile of a single key is skipped", "pytorch/pytorch#191937",
       Fault::kTailOfOne},
      {"causal-loop-bound-short", tiles,
       "a tile of queries visits no more keys than its first query may see", "jax-ml/jax#17314",
       Fault::kCausalLoopBoundShort},
  };
}

}  // namespace

std::vector<FaultInfo> MaskFaults() {
  std::vector<FaultInfo> all = EmptyRowFaults();
  for (const auto& faults : {MeaningFaults(), IndexFaults(), WindowFaults()}) {
    all.insert(all.end(), faults.begin(), faults.end());
  }
  return all;
}

}  // namespace attest
