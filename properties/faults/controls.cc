// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/controls.h"

#include <bit>
#include <cstdint>

#include "properties/faults/fault_catalogue.h"

namespace attest {

const std::vector<ControlInfo>& Controls() {
  static const std::vector<ControlInfo> controls{
      {"dropout-weights-sum", "kept weights are scaled up, so that a row of them need not sum to 1",
       "pytorch/pytorch#33360, facebookresearch/fairseq#351", Control::kDropoutWeightsSum},
      {"bottom-right-zero-rows", "with Tq > Tk, bottom-right causal leaves the first rows empty",
       "Dao-AILab/flash-attention#1778", Control::kBottomRightZeroRows},
      {"alibi-by-column", "slope * j differs from slope * (j - i) by a constant a row: another LSE",
       "mosaicml/llm-foundry#186, NVIDIA-NeMo/Speech#7105", Control::kAlibiByColumn},
      {"alibi-uniform-offset", "distances that are all one too large change the LSE alone",
       "vllm-project/vllm#945", Control::kAlibiUniformOffset},
      {"mask-after-softmax-renormalised",
       "masked probabilities divided by what is left of their sum are right",
       "abisee/pointer-generator#88, ruotianluo/self-critical.pytorch#89",
       Control::kMaskAfterSoftmaxRenormalised},
      {"row-term-from-output", "sum dO O equals sum P dP where O is the whole output",
       "huggingface/picotron#37", Control::kRowTermFromOutput},
      {"scale-split-over-q-and-k", "q and k each take the square root of the scale",
       "huggingface/diffusers#929", Control::kScaleSplitOverQAndK},
      {"causal-corner-convention", "both corners are the same where Tq = Tk", "ml-explore/mlx#2835",
       Control::kCausalCornerConvention},
      {"lse-base-convention", "an LSE to base 2 is declared; out and weights are judged",
       "flashinfer-ai/flashinfer#4547", Control::kLseBaseConvention},
      {"functional-dropout", "dropout wherever there is a rate is declared",
       "pytorch/pytorch#124464", Control::kFunctionalDropout},
      {"slope-table-convention", "two tables of slopes agree where the heads are a power of 2",
       "NVIDIA/TensorRT-LLM#1611, baichuan-inc/Baichuan2#225", Control::kSlopeTableConvention},
      {"empty-row-convention", "the mean of v is declared for empty rows", "pytorch/pytorch#131060",
       Control::kEmptyRowConvention},
      {"moderate-sentinel",
       "-1e4 gives the weights that -infinity gives as long as scores are near 0",
       "PaddlePaddle/PaddleOCR#18341", Control::kModerateSentinel},
      {"denominator-only-sink", "a sink adds to the denominator, after the keys, and has no value",
       "sgl-project/sgl-kernel-npu#216", Control::kDenominatorOnlySink},
      {"window-at-decode", "the window as the first key of the loop", "ROCm/flash-attention#185",
       Control::kWindowAtDecode},
      {"atomic-order-declared", "sums of any order, where determinism is not declared",
       "Dao-AILab/flash-attention#988", Control::kAtomicOrderDeclared},
      {"row-constant-shift", "a constant added to all scores of a row changes the LSE alone",
       "elementary", Control::kRowConstantShift},
  };
  return controls;
}

void Declare(Control control, SubjectInfo* info) {
  switch (control) {
    case Control::kAlibiByColumn:
    case Control::kAlibiUniformOffset:
    case Control::kLseBaseConvention:
    case Control::kRowConstantShift:
      info->outputs.insert(OutputNames().begin(), OutputNames().end());
      info->outputs.erase("lse");
      break;
    case Control::kEmptyRowConvention:
      info->empty_row = EmptyRow::kUniform;
      break;
    case Control::kAtomicOrderDeclared:
      info->deterministic = info->batch_invariant = false;
      break;
    default:
      break;
  }
}

namespace {

bool HasAlibi(const PlainCall& call) {
  const Alibi alibi = call.contract->alibi;
  return alibi == Alibi::kDefault || (alibi != Alibi::kNone && call.in.alibi_slopes.present());
}

// Whether the control adds the same constant to all scores of a row in this call.
bool ShiftsRows(const PlainCall& call) {
  if (call.Has(Control::kRowConstantShift)) return true;
  return HasAlibi(call) &&
         (call.Has(Control::kAlibiByColumn) || call.Has(Control::kAlibiUniformOffset));
}

}  // namespace

Status Accepts(const PlainCall& call) {
  const Contract& contract = *call.contract;
  const Dimensions& s = contract.shape;
  const bool lengths = call.in.kv_lengths.present() || call.in.q_lengths.present();
  const bool f64 = contract.dtype == DType::kF64 || contract.arithmetic.profile == "f64";
  if (ShiftsRows(call)) {
    if (call.in.sinks.present()) return Unsupported("sinks: they are not shifted with the scores");
    if (f64) return Unsupported("dtype: the shift's own rounding is below that of f32 only");
  }
  if (call.Has(Control::kAlibiByColumn) && HasAlibi(call)) {
    const bool behind = contract.causal == Causal::kBottomRight ||
                        (contract.causal == Causal::kTopLeft && s.kv_len >= s.q_len);
    if (!behind || lengths) return Unsupported("alibi: keys before the diagonal only");
  }
  if (call.Has(Control::kMaskAfterSoftmaxRenormalised) && f64) {
    return Unsupported("dtype: its own rounding is below that of f32 only");
  }
  if (call.Has(Control::kCausalCornerConvention) && contract.causal != Causal::kNone &&
      (lengths || s.q_len != s.kv_len)) {
    return Unsupported("causal: another corner by convention");
  }
  if (call.Has(Control::kFunctionalDropout) && contract.dropout_rate > 0.0 &&
      !call.in.keep.present()) {
    return Unsupported("dropout: applied wherever there is a rate, by convention");
  }
  if (call.Has(Control::kSlopeTableConvention) && HasAlibi(call) &&
      !call.in.alibi_slopes.present() &&
      !std::has_single_bit(static_cast<std::uint64_t>(s.q_heads))) {
    return Unsupported("alibi: another table of slopes by convention");
  }
  return Status();
}

}  // namespace attest
