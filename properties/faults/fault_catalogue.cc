// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_catalogue.h"

#include <fmt/format.h>

#include <utility>

namespace attest {
namespace {

class PlainSubject : public InProcessSubject {
 public:
  PlainSubject(Fault fault, SubjectInfo info) : fault_(fault), info_(std::move(info)) {}

  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract& contract, Buffers& inputs, Buffers& outputs,
              int /*threads*/) const override {
    const Dimensions& s = contract.shape;
    if (contract.dtype != DType::kF32 || contract.out_dtype != DType::kF32) {
      return Unsupported("dtype: f32 only");
    }
    PlainInputs in;
    in.contract = &contract;
    in.q = ViewOf<const float, 4>(inputs.at("q"));
    in.k = ViewOf<const float, 4>(inputs.at("k"));
    in.v = ViewOf<const float, 4>(inputs.at("v"));
    const std::array<Index, 4> scores{s.batch, s.q_heads, s.q_len, s.kv_len};
    for (auto& [name, buffer] : inputs) {
      if (name == "mask") {
        in.mask = BroadcastTo(ViewOf<const std::uint8_t, 4>(buffer), scores);
      } else if (name == "bias") {
        in.bias = BroadcastTo(ViewOf<const float, 4>(buffer), scores);
      } else if (name == "kv_lengths") {
        in.kv_lengths = buffer.data<const std::int32_t>();
      } else if (name == "q_lengths") {
        in.q_lengths = buffer.data<const std::int32_t>();
      } else if (name != "q" && name != "k" && name != "v") {
        return Unsupported("tensor '" + name + "': not supported");
      }
    }
    PlainOutputs out;
    for (auto& [name, buffer] : outputs) {
      if (name == "out") {
        out.out = ViewOf<float, 4>(buffer);
      } else if (name == "lse") {
        out.lse = ViewOf<float, 3>(buffer);
      } else if (name == "weights") {
        out.weights = ViewOf<float, 4>(buffer);
      } else {
        return Unsupported("output '" + name + "': not supported");
      }
    }
    PlainAttention(in, out, fault_);
    return Status();
  }

 private:
  Fault fault_;
  SubjectInfo info_;
};

}  // namespace

const std::vector<FaultInfo>& Faults() {
  static const std::vector<FaultInfo> faults{
      {"full-row-nan", "empty rows", "softmax of a row without allowed keys, unguarded: NaN",
       "tracel-ai/burn#4694", Fault::kFullRowNan},
      {"full-row-mean-of-v", "empty rows",
       "the lowest float stands for -infinity, an empty row becomes the mean of v",
       "microsoft/onnxruntime#28958", Fault::kFullRowMeanOfV},
      {"mask-polarity-inverted", "mask meaning", "attends where the boolean mask is false",
       "lucidrains/x-transformers#160", Fault::kMaskPolarityInverted},
      {"causal-sees-next", "causal alignment", "allows j <= i + 1", "RVC-Boss/GPT-SoVITS#965",
       Fault::kCausalSeesNext},
      {"causal-ignores-past", "causal alignment", "bottom-right causal without its offset",
       "tinygrad/tinygrad#15949", Fault::kCausalIgnoresPast},
      {"zero-filled-tail-keys", "partial tiles",
       "keys are padded to a multiple of the tile with zeros that take part",
       "flashinfer-ai/flashinfer#5090", Fault::kZeroFilledTailKeys},
      {"scale-missing", "scale", "ignores the scale", "mlc-ai/mlc-llm#3426", Fault::kScaleMissing},
      {"gqa-tiled-heads", "grouped heads", "key/value head h mod Hkv instead of floor(h/(Hq/Hkv))",
       "onnx/onnx#7274", Fault::kGqaTiledHeads},
      {"no-max-subtraction", "softmax range", "exp(s) without subtracting the row maximum",
       "NVIDIA/FasterTransformer#43", Fault::kNoMaxSubtraction},
      {"correction-aliased", "online softmax",
       "the old maximum aliases the new one, so the correction is always 1", "paiml/aprender#2753",
       Fault::kCorrectionAliased},
      {"probs-rounded-before-pv", "low precision",
       "weights rounded to bf16 before the product with v", "vllm-project/vllm#2368",
       Fault::kProbsRoundedBeforePv},
      {"nan-in-unused-value-slot", "masked memory",
       "weight 0 times whatever an unused value slot holds", "vllm-project/vllm#53856",
       Fault::kNanInUnusedValueSlot},
      {"padded-query-rows-garbage", "short sequences",
       "rows beyond the query length are not written", "ROCm/flash-attention#175",
       Fault::kPaddedQueryRowsGarbage},
      {"causal-lost-when-weights-requested", "mask dropped",
       "the causal rule is only in the path that returns no weights", "keras-team/keras#23038",
       Fault::kCausalLostWhenWeightsRequested},
      {"split-count-from-batch", "repeatability",
       "the number of partial sums depends on the batch size", "vllm-project/vllm#53257",
       Fault::kSplitCountFromBatch},
  };
  return faults;
}

StatusOr<std::unique_ptr<Subject>> MakePlainSubject(const std::string& fault_name) {
  SubjectInfo info;
  info.name = "fault:" + fault_name;
  info.deterministic = info.batch_invariant = info.strided = true;
  if (fault_name == "none") {
    info.description = "the plain implementation that the seeded faults change, without a fault";
    return std::unique_ptr<Subject>(std::make_unique<PlainSubject>(Fault::kNone, info));
  }
  std::vector<std::string> names;
  for (const FaultInfo& fault : Faults()) {
    names.push_back(fault.name);
    if (fault.name != fault_name) continue;
    info.description = "seeded fault: " + fault.behaviour;
    return std::unique_ptr<Subject>(std::make_unique<PlainSubject>(fault.fault, info));
  }
  return NotFound(
      fmt::format("no fault '{}' (known: none, {})", fault_name, fmt::join(names, ", ")));
}

}  // namespace attest
