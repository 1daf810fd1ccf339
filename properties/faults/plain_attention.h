// SPDX-License-Identifier: Apache-2.0
// A plain f32 attention forward with one switchable fault: what the suites must catch.
#pragma once

#include <cstdint>
#include <optional>

#include "core/contract.h"
#include "core/tensor.h"

namespace attest {

enum class Fault {
  kNone,
  kFullRowNan,
  kFullRowMeanOfV,
  kMaskPolarityInverted,
  kCausalSeesNext,
  kCausalIgnoresPast,
  kZeroFilledTailKeys,
  kScaleMissing,
  kGqaTiledHeads,
  kNoMaxSubtraction,
  kCorrectionAliased,
  kProbsRoundedBeforePv,
  kNanInUnusedValueSlot,
  kPaddedQueryRowsGarbage,
  kCausalLostWhenWeightsRequested,
  kSplitCountFromBatch,
};

struct PlainInputs {
  const Contract* contract = nullptr;
  View<const float, 4> q, k, v;
  std::optional<View<const std::uint8_t, 4>> mask;  // broadcast to [B, Hq, Tq, Tk]
  std::optional<View<const float, 4>> bias;         // likewise
  const std::int32_t* kv_lengths = nullptr;
  const std::int32_t* q_lengths = nullptr;
};

struct PlainOutputs {
  View<float, 4> out;
  std::optional<View<float, 3>> lse;
  std::optional<View<float, 4>> weights;
};

// Online softmax, key by key, as written in textbooks. Everything but `fault` is right.
void PlainAttention(const PlainInputs& in, const PlainOutputs& outputs, Fault fault);

}  // namespace attest
