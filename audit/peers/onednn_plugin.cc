// SPDX-License-Identifier: Apache-2.0
// Plug-in: oneDNN's primitives, matmul with a scale, softmax, matmul, head by head; masks and
// biases are put into the scores between them.
#include <limits>

#include "audit/peers/onednn.h"
#include "audit/peers/peer_call.h"

namespace attest {
namespace {

const StatusOr<std::shared_ptr<OneDnn>>& Library() {
  static const StatusOr<std::shared_ptr<OneDnn>> library = OneDnn::Load();
  return library;
}

}  // namespace

const std::string& PeerInfoText() {
  static const std::string text = InfoText({
      .name = "oneDNN, matmul and softmax",
      .version = Library().ok() ? (*Library())->version : "not installed",
      .supports = {{"dtypes", {"f32"}},
                   {"scores", {"dot"}},
                   {"masks",
                    {"boolean", "bias", "causal_top_left", "causal_bottom_right", "window",
                     "kv_lengths", "q_lengths", "documents", "local"}},
                   {"features", {"gqa", "explicit_scale", "v_dim", "out_dtype"}},
                   {"empty_row", "nan"},
                   {"outputs", {"out"}}},
      .arithmetic = {{{"profile", "f32"}}},
  });
  return text;
}

StatusOr<TensorMap> PeerAttention(const Case& problem, int threads) {
  if (!Library().ok()) return Internal(Library().status().message());
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  if (c.local && c.local->gaussian) return Unsupported("no weights after the softmax");
  if (s.batch * s.q_len * s.kv_len == 0) return Unsupported("no empty tensors");
  for (const char* name : {"q", "k", "v"}) {
    if (!IsFinite(*problem.Find(name))) {
      return Unsupported("products of whole matrices let a NaN or infinity reach every row");
    }
  }
  if ((*Library())->set_threads != nullptr) (*Library())->set_threads(threads);
  DnnlHead head(**Library());
  Status status =
      head.Prepare({s.q_len, s.kv_len, s.qk_dim, s.v_dim, static_cast<float>(ScaleOf(c))});
  if (!status.ok()) return status;
  const Tensor additions = Additions(problem, DType::kF32);
  Tensor out(DType::kF32, {s.batch, s.q_heads, s.q_len, s.v_dim});
  for (Index h = 0; h < s.batch * s.q_heads; ++h) {
    const Index kv_head = h / s.q_heads * s.kv_heads + h % s.q_heads / (s.q_heads / s.kv_heads);
    const float* added = additions.data<float>() + h * s.q_len * s.kv_len;
    status = head.Run(problem.Find("q")->data<float>() + h * s.q_len * s.qk_dim,
                      problem.Find("k")->data<float>() + kv_head * s.kv_len * s.qk_dim,
                      problem.Find("v")->data<float>() + kv_head * s.kv_len * s.v_dim,
                      out.data<float>() + h * s.q_len * s.v_dim, [&](float* scores) {
                        for (Index e = 0; e < s.q_len * s.kv_len; ++e) {
                          // A score that overflowed is forgotten, too.
                          const bool hidden = added[e] == -std::numeric_limits<float>::infinity();
                          scores[e] = hidden ? added[e] : scores[e] + added[e];
                        }
                      });
    if (!status.ok()) return status;
  }
  return TensorMap{{"out", std::move(out)}};
}

}  // namespace attest
