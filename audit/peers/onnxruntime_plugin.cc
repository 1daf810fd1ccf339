// SPDX-License-Identifier: Apache-2.0
// Plug-in: operator Attention of ONNX, opset 23, or 24 where there are key lengths, by ONNX
// Runtime.
#include "audit/peers/onnx_call.h"
#include "audit/peers/peer_call.h"

namespace attest {
namespace {

// The causal rule counts from the first key, or from the end of a cache, or, where key lengths are
// given, from length - queries.
struct CausalPlan {
  Index past = 0;  // keys that are passed as a cache
};

StatusOr<CausalPlan> PlanCausal(const Contract& contract, bool has_lengths) {
  const Dimensions& s = contract.shape;
  if (contract.causal == Causal::kTopLeft && has_lengths) {
    return Unsupported("with key lengths the causal rule is bottom-right");
  }
  if (contract.causal != Causal::kBottomRight || has_lengths) return CausalPlan{};
  if (s.q_len > s.kv_len) return Unsupported("the causal rule is top-left without a cache");
  return CausalPlan{s.kv_len - s.q_len};
}

// One mask input: boolean, additive, or, where there are both, their sum.
StatusOr<std::optional<Tensor>> MaskOf(const Case& problem) {
  const Tensor* mask = problem.Find("mask");
  const Tensor* bias = problem.Find("bias");
  if (mask == nullptr && bias == nullptr) return std::optional<Tensor>();
  // ONNX Runtime refuses masks that are broadcast over queries or keys.
  const Dimensions& s = problem.contract.shape;
  if (bias == nullptr) return std::optional<Tensor>(WithFullRows(*mask, s));
  Tensor added = WithFullRows(*bias, s);
  if (mask != nullptr) {
    Case masks_alone{.name = {}, .contract = problem.contract, .tensors = {}};
    masks_alone.contract.causal = Causal::kNone;
    masks_alone.tensors = {{"mask", *mask}, {"bias", *bias}};
    added = Additions(masks_alone, bias->dtype());
  }
  std::optional<Tensor> converted = ConvertedExactly(added, problem.contract.dtype);
  if (!converted)
    return Unsupported("the bias must be of the type of q, which has no such numbers");
  return converted;
}

}  // namespace

// ONNX defines rows without a key to give 0 (onnx/onnx#8068).
const std::string& PeerInfoText() {
  static const std::string text = InfoText({
      .name = "ONNX Runtime, Attention",
      .version = SharedOnnxRuntime().ok() ? (*SharedOnnxRuntime())->version() : "not installed",
      .supports = {{"dtypes", {"f64", "f32", "f16"}},
                   {"scores", {"dot"}},
                   {"masks",
                    {"boolean", "bias", "causal_top_left", "causal_bottom_right", "kv_lengths"}},
                   {"features", {"gqa", "softcap", "explicit_scale", "v_dim"}},
                   {"empty_row", "zero"},
                   {"outputs", {"out", "weights"}}},
      // In f16, scores and weights are f16 tensors between steps in f32.
      .arithmetic = {{{"profile", "f16-math"}}, {{"profile", "f32"}}},
  });
  return text;
}

StatusOr<TensorMap> PeerAttention(const Case& problem, int threads) {
  if (!SharedOnnxRuntime().ok()) return Internal(SharedOnnxRuntime().status().message());
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  const Tensor* lengths = problem.Find("kv_lengths");
  const StatusOr<CausalPlan> plan = PlanCausal(c, lengths != nullptr);
  if (!plan.ok()) return plan.status();
  const StatusOr<std::optional<Tensor>> mask = MaskOf(problem);
  if (!mask.ok()) return mask.status();
  const float scale = static_cast<float>(c.scale.value);
  if (!c.scale.rsqrt_dk && c.dtype == DType::kF64 && static_cast<double>(scale) != c.scale.value) {
    return Unsupported("the scale is an attribute in f32");
  }

  OnnxCall call("Attention", "");
  if (c.causal != Causal::kNone) call.Attribute("is_causal", std::int64_t{1});
  if (!c.scale.rsqrt_dk) call.Attribute("scale", scale);
  if (c.softcap > 0) call.Attribute("softcap", static_cast<float>(c.softcap));
  const Tensor& k = *problem.Find("k");
  const Tensor& v = *problem.Find("v");
  const Index past = plan->past;
  call.Input("q", *problem.Find("q"));
  call.Input("k", RowsOf(k, past, s.kv_len - past));
  call.Input("v", RowsOf(v, past, s.kv_len - past));
  if (*mask) call.Input("mask", **mask);
  if (past > 0) {
    call.NoInputUpTo(4);
    call.Input("past_k", RowsOf(k, 0, past));
    call.Input("past_v", RowsOf(v, 0, past));
  }
  if (lengths != nullptr) {
    call.NoInputUpTo(6);
    std::vector<std::int64_t> values;
    for (Index b = 0; b < s.batch; ++b) values.push_back(static_cast<std::int64_t>(lengths->At(b)));
    call.IntegerInput("lengths", values);
  }
  call.Output("out", c.dtype, {s.batch, s.q_heads, s.q_len, s.v_dim});
  const bool with_weights = c.Wants("weights");
  if (past > 0) {
    call.Output("present_k", c.dtype, k.shape());
    call.Output("present_v", c.dtype, v.shape());
  } else if (with_weights) {
    call.NoOutput();
    call.NoOutput();
  }
  if (with_weights) {
    constexpr std::int64_t kAfterSoftmax = 3;
    call.Attribute("qk_matmul_output_mode", kAfterSoftmax);
    call.Output("weights", c.dtype, {s.batch, s.q_heads, s.q_len, s.kv_len});
  }
  const int opset = lengths != nullptr ? 24 : 23;
  if (Status status = call.Run(**SharedOnnxRuntime(), opset, threads); !status.ok()) return status;
  TensorMap results{{"out", call.output("out")}};
  if (with_weights) results.emplace("weights", call.output("weights"));
  return results;
}

}  // namespace attest
