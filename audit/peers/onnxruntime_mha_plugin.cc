// SPDX-License-Identifier: Apache-2.0
// Plug-in: operator MultiHeadAttention of com.microsoft, by ONNX Runtime.
#include "audit/peers/onnx_call.h"
#include "audit/peers/peer_call.h"

namespace attest {
namespace {

// [B, H, T, D] as [B, T, H * D].
Tensor HeadsInRows(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  Tensor swapped = WithAxesSwapped(tensor);
  Tensor rows(tensor.dtype(), {s[0], s[2], s[1] * s[3]});
  std::copy_n(swapped.bytes(), swapped.byte_size(), rows.bytes());
  return rows;
}

}  // namespace

const std::string& PeerInfoText() {
  static const std::string text = InfoText({
      .name = "ONNX Runtime, MultiHeadAttention",
      .version = SharedOnnxRuntime().ok() ? (*SharedOnnxRuntime())->version() : "not installed",
      .supports = {{"dtypes", {"f32", "f16"}},
                   {"scores", {"dot"}},
                   {"masks", {"bias", "causal_top_left", "causal_bottom_right", "kv_lengths"}},
                   {"features", {"explicit_scale", "v_dim"}},
                   {"outputs", {"out"}}},
      .arithmetic = {{{"profile", "f16-math"}}, {{"profile", "f32"}}},
  });
  return text;
}

StatusOr<TensorMap> PeerAttention(const Case& problem, int threads) {
  if (!SharedOnnxRuntime().ok()) return Internal(SharedOnnxRuntime().status().message());
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  Index past = 0;
  if (c.causal == Causal::kBottomRight) {
    if (s.q_len > s.kv_len) return Unsupported("the causal rule is top-left without a cache");
    past = s.kv_len - s.q_len;
  }
  const Tensor* lengths = problem.Find("kv_lengths");
  if (lengths != nullptr && c.causal == Causal::kBottomRight) {
    return Unsupported("the causal rule does not depend on key lengths");
  }

  OnnxCall call("MultiHeadAttention", "com.microsoft");
  call.Attribute("num_heads", s.q_heads);
  if (!c.scale.rsqrt_dk) call.Attribute("scale", static_cast<float>(c.scale.value));
  if (c.causal != Causal::kNone) call.Attribute("unidirectional", std::int64_t{1});
  const Tensor& k = *problem.Find("k");
  const Tensor& v = *problem.Find("v");
  call.Input("q", HeadsInRows(*problem.Find("q")));
  call.Input("k", HeadsInRows(RowsOf(k, past, s.kv_len - past)));
  call.Input("v", HeadsInRows(RowsOf(v, past, s.kv_len - past)));
  if (lengths != nullptr) {
    call.NoInputUpTo(4);
    call.Input("lengths", *lengths);
  }
  if (const Tensor* bias = problem.Find("bias"); bias != nullptr) {
    // Broadcast over entries and heads, not over queries and keys.
    const std::optional<Tensor> added = ConvertedExactly(WithFullRows(*bias, s), c.dtype);
    if (!added) return Unsupported("the bias must be of the type of q, which has no such numbers");
    call.NoInputUpTo(5);
    call.Input("bias", *added);
  }
  if (past > 0) {
    call.NoInputUpTo(6);
    call.Input("past_k", RowsOf(k, 0, past));
    call.Input("past_v", RowsOf(v, 0, past));
  }
  call.Output("out", c.dtype, {s.batch, s.q_len, s.q_heads * s.v_dim});
  if (past > 0) {
    call.Output("present_k", c.dtype, k.shape());
    call.Output("present_v", c.dtype, v.shape());
  }
  if (Status status = call.Run(**SharedOnnxRuntime(), 17, threads); !status.ok()) return status;
  Tensor rows(c.dtype, {s.batch, s.q_len, s.q_heads, s.v_dim});
  const Tensor& out = call.output("out");
  std::copy_n(out.bytes(), out.byte_size(), rows.bytes());
  return TensorMap{{"out", WithAxesSwapped(rows)}};
}

}  // namespace attest
