// SPDX-License-Identifier: Apache-2.0
// Plug-in: operator GroupQueryAttention of com.microsoft, by ONNX Runtime. It takes head sizes that
// are multiples of 8, equal for q, k and v: others are filled up with zeros, which add to no score.
#include <algorithm>

#include "audit/peers/onnx_call.h"
#include "audit/peers/peer_call.h"

namespace attest {
namespace {

// What the operator has no words for: it is always causal, its queries are the last tokens, several
// of them make one prompt or continue that of a single entry.
std::optional<std::string> Refusal(const Case& problem) {
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  // A single query sees every key before it, which are all, with or without the causal rule.
  if (c.causal == Causal::kNone && s.q_len != 1) return "the operator is always causal";
  if (s.q_len > s.kv_len) return "more queries than keys";
  if (s.q_len == 0) return "no query";
  if (const Tensor* lengths = problem.Find("kv_lengths"); lengths != nullptr) {
    if (s.q_len > 1) return "key lengths of several queries are those of padded prompts";
    for (Index b = 0; b < s.batch; ++b) {
      if (lengths->At(b) < 1) return "a query is itself a key: no length 0";
    }
  }
  return std::nullopt;
}

// The head size that the operator is given.
Index PaddedSize(const Dimensions& s) { return (std::max(s.qk_dim, s.v_dim) + 7) / 8 * 8; }

Tensor Padded(const Tensor& tensor, Index size) {
  Shape shape = tensor.shape();
  const std::size_t from = SizeOf(tensor.dtype()) * static_cast<std::size_t>(shape[3]);
  shape[3] = size;
  const std::size_t to = SizeOf(tensor.dtype()) * static_cast<std::size_t>(size);
  Tensor padded(tensor.dtype(), shape);
  for (std::size_t row = 0; (row + 1) * to <= padded.byte_size(); ++row) {
    std::copy_n(tensor.bytes() + row * from, from, padded.bytes() + row * to);
  }
  return padded;
}

Index LengthOf(const Case& problem, Index b) {
  const Tensor* lengths = problem.Find("kv_lengths");
  return lengths ? static_cast<Index>(lengths->At(b)) : problem.contract.shape.kv_len;
}

// The last q_len rows of each entry's keys, as [B, Tq, H * D].
Tensor NewRows(const Case& problem, const Tensor& tensor) {
  const Shape& s = tensor.shape();
  const Index count = problem.contract.shape.q_len;
  Tensor rows(tensor.dtype(), {s[0], count, s[1] * s[3]});
  const std::size_t size = SizeOf(tensor.dtype()) * static_cast<std::size_t>(s[3]);
  std::byte* to = rows.bytes();
  for (Index b = 0; b < s[0]; ++b) {
    const Index first = LengthOf(problem, b) - count;
    for (Index t = first; t < first + count; ++t) {
      for (Index h = 0; h < s[1]; ++h, to += size) {
        const Index row = (b * s[1] + h) * s[2] + t;
        std::copy_n(tensor.bytes() + static_cast<std::size_t>(row) * size, size, to);
      }
    }
  }
  return rows;
}

Tensor QueryRows(const Tensor& q) {
  const Tensor swapped = WithAxesSwapped(q);
  const Shape& s = swapped.shape();
  Tensor rows(q.dtype(), {s[0], s[1], s[2] * s[3]});
  std::copy_n(swapped.bytes(), swapped.byte_size(), rows.bytes());
  return rows;
}

// Bias and sinks are of the type of q; the bias may be broadcast over entries and heads alone.
Status AddBiasAndSinks(const Case& problem, OnnxCall* call) {
  const Dimensions& s = problem.contract.shape;
  const DType dtype = problem.contract.dtype;
  const Status refusal =
      Unsupported("a bias or sink must be of the type of q, which has no such numbers");
  if (const Tensor* bias = problem.Find("bias"); bias != nullptr) {
    const std::optional<Tensor> converted = ConvertedExactly(WithFullRows(*bias, s), dtype);
    if (!converted) return refusal;
    call->NoInputUpTo(10);
    call->Input("bias", *converted);
  }
  if (const Tensor* sinks = problem.Find("sinks"); sinks != nullptr) {
    const std::optional<Tensor> converted = ConvertedExactly(*sinks, dtype);
    if (!converted) return refusal;
    call->NoInputUpTo(11);
    call->Input("sinks", *converted);
  }
  return Status();
}

}  // namespace

const std::string& PeerInfoText() {
  static const std::string text = InfoText({
      .name = "ONNX Runtime, GroupQueryAttention",
      .version = SharedOnnxRuntime().ok() ? (*SharedOnnxRuntime())->version() : "not installed",
      .supports = {{"dtypes", {"f32", "f16"}},
                   {"scores", {"dot"}},
                   {"masks", {"bias", "causal_bottom_right", "window", "kv_lengths"}},
                   {"features", {"gqa", "softcap", "sinks", "explicit_scale", "v_dim"}},
                   {"outputs", {"out"}}},
      // In f16, everything inside is f32.
      .arithmetic = {{{"profile", "f32"}}},
  });
  return text;
}

StatusOr<TensorMap> PeerAttention(const Case& problem, int threads) {
  if (!SharedOnnxRuntime().ok()) return Internal(SharedOnnxRuntime().status().message());
  if (const auto refusal = Refusal(problem); refusal) return Unsupported(*refusal);
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  OnnxCall call("GroupQueryAttention", "com.microsoft");
  call.Attribute("num_heads", s.q_heads);
  call.Attribute("kv_num_heads", s.kv_heads);
  const Index size = PaddedSize(s);
  if (!c.scale.rsqrt_dk || size != s.qk_dim) {
    call.Attribute("scale", static_cast<float>(ScaleOf(c)));
  }
  if (c.softcap > 0) call.Attribute("softcap", static_cast<float>(c.softcap));
  if (c.window.left >= 0) {
    // The number of keys that are seen, the query's own among them.
    call.Attribute("local_window_size", std::min(c.window.left, s.kv_len) + 1);
  }
  const Tensor k = Padded(*problem.Find("k"), size);
  const Tensor v = Padded(*problem.Find("v"), size);
  call.Input("q", QueryRows(Padded(*problem.Find("q"), size)));
  call.Input("k", NewRows(problem, k));
  call.Input("v", NewRows(problem, v));
  Index longest = 0;
  Tensor last(DType::kI32, {s.batch});
  for (Index b = 0; b < s.batch; ++b) {
    longest = std::max(longest, LengthOf(problem, b));
    last.Set(b, static_cast<double>(LengthOf(problem, b) - 1));
  }
  if (s.kv_len > s.q_len) {
    // The cache is as long as all keys; what lies behind an entry's length is not looked at.
    call.Input("past_k", k);
    call.Input("past_v", v);
  }
  call.NoInputUpTo(5);
  call.Input("last", last);
  Tensor total(DType::kI32, {1});
  total.Set(0, static_cast<double>(longest));
  call.Input("total", total);
  if (Status status = AddBiasAndSinks(problem, &call); !status.ok()) return status;
  call.Output("out", c.dtype, {s.batch, s.q_len, s.q_heads * size});
  call.Output("present_k", c.dtype, k.shape());
  call.Output("present_v", c.dtype, v.shape());
  if (Status status = call.Run(**SharedOnnxRuntime(), 17, threads); !status.ok()) return status;
  Tensor rows(c.dtype, {s.batch, s.q_len, s.q_heads, s.v_dim});
  const std::size_t from = SizeOf(c.dtype) * static_cast<std::size_t>(size);
  const std::size_t to = SizeOf(c.dtype) * static_cast<std::size_t>(s.v_dim);
  for (std::size_t row = 0; (row + 1) * to <= rows.byte_size(); ++row) {
    std::copy_n(call.output("out").bytes() + row * from, to, rows.bytes() + row * to);
  }
  return TensorMap{{"out", WithAxesSwapped(rows)}};
}

}  // namespace attest
