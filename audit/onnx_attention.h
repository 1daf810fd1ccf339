// SPDX-License-Identifier: Apache-2.0
// One call of ONNX's operator Attention as a node test states it, checked and in our layout.
#pragma once

#include <optional>

#include "audit/onnx_file.h"
#include "core/contract.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// What the output qk_matmul_output holds, as its attribute qk_matmul_output_mode numbers it.
enum class ScoreStage { kRaw, kAfterSoftcap, kAfterMask, kWeights };

struct OnnxAttention {
  Dimensions shape;  // kv_len counts the past
  DType dtype = DType::kF32;
  Scale scale;
  double softcap = 0.0;
  bool causal = false;
  ScoreStage stage = ScoreStage::kRaw;

  // [B, H, T, D], keys and values with the past before them.
  Tensor q, k, v;
  Index past = 0;
  // Boolean or added; rank 4, as long as the keys, other axes as given or 1.
  std::optional<Tensor> mask;
  std::optional<Tensor> lengths;  // valid keys of each batch entry

  Tensor y;                               // [B, Hq, Tq, D_v]
  std::optional<Tensor> scores;           // qk_matmul_output, [B, Hq, Tq, Tk]
  const Tensor* present_key = nullptr;    // in the data set
  const Tensor* present_value = nullptr;  // likewise

  // Key j precedes or is query i where j <= i + offset: the past's length, or, with lengths, those
  // less the queries.
  Index CausalOffset(Index batch) const;
  // Whether causal rule, lengths and a boolean mask let the query see the key.
  bool Allows(Index batch, Index head, Index query, Index key) const;
};

// Unsupported where the contract has no words for the call (another version, a softmax that is
// narrower than the tensors); any other error names the input or attribute that contradicts the
// operator's definition. `data` must outlive the result.
StatusOr<OnnxAttention> ReadOnnxAttention(const OnnxModel& model, const OnnxDataSet& data);

}  // namespace attest
