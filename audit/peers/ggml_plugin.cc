// SPDX-License-Identifier: Apache-2.0
// Plug-in: ggml_flash_attn_ext, the fused attention of llama.cpp. All masks go into its one mask,
// which is f16 and added to the scores; with ALiBi it is multiplied by a head's slope first.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "audit/peers/ggml.h"
#include "audit/peers/peer_call.h"

namespace attest {
namespace {

const StatusOr<std::shared_ptr<Ggml>>& Library() {
  static const StatusOr<std::shared_ptr<Ggml>> library = Ggml::Load();
  return library;
}

// Its slopes for 8 are the default ones of the contract.
constexpr float kMaxBias = 8.0f;

// [B or 1, Hq or 1, Tq, Tk] in f16; nothing where nothing is masked.
StatusOr<std::optional<Tensor>> MaskOf(const Case& problem, bool alibi) {
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  const Tensor* bias = problem.Find("bias");
  if (alibi && bias != nullptr) return Unsupported("with ALiBi the mask is multiplied by slopes");
  Tensor added = Additions(problem, bias != nullptr ? bias->dtype() : DType::kF32);
  bool needed = alibi;
  for (Index flat = 0; flat < added.size(); ++flat) {
    const std::vector<Index> at = Unflatten(flat, added.shape());
    double value = added.At(flat);
    if (alibi) value -= static_cast<double>(std::abs(at[2] + s.kv_len - s.q_len - at[3]));
    added.Set(flat, value);
    needed |= value != 0.0;
  }
  if (!needed) return std::optional<Tensor>();
  std::optional<Tensor> mask = ConvertedExactly(added, DType::kF16);
  if (!mask) return Unsupported("the mask is f16, which has no such numbers");
  return mask;
}

// One graph with its tensors.
class Graph {
 public:
  Graph(const Ggml& ggml, std::size_t bytes) : f_(ggml.f), backend_(ggml.backend) {
    constexpr std::size_t kOverhead = std::size_t{1} << 20;
    context_ = f_.init({.memory_size = bytes + kOverhead, .memory = nullptr, .no_alloc = false});
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (context_ != nullptr) f_.free(context_);
  }
  GgmlContext* context() const { return context_; }

  // Axes in ggml's order: the last one first.
  GgmlTensor* Copied(const Tensor& tensor) const {
    Shape s = tensor.shape();
    while (s.size() < 4) s.insert(s.begin(), 1);
    const GgmlType type = tensor.dtype() == DType::kF32   ? kGgmlF32
                          : tensor.dtype() == DType::kF16 ? kGgmlF16
                                                          : kGgmlBF16;
    GgmlTensor* copy = f_.new_tensor(context_, type, s[3], s[2], s[1], s[0]);
    std::memcpy(f_.get_data(copy), tensor.bytes(), tensor.byte_size());
    return copy;
  }

  Status Compute(GgmlTensor* result, int threads) const {
    GgmlGraph* graph = f_.new_graph(context_);
    f_.build_forward(graph, result);
    f_.set_threads(backend_, threads);
    const int status = f_.compute(backend_, graph);
    return status == 0 ? Status() : Internal("ggml: status " + std::to_string(status));
  }

 private:
  const GgmlFunctions& f_;
  GgmlBackend* backend_;
  GgmlContext* context_ = nullptr;
};

}  // namespace

// Queries are always f32, keys and values of the case's type. With f16 values ggml may add up the
// output in f16, for which there is no profile: f16 is not offered.
const std::string& PeerInfoText() {
  static const std::string text = InfoText({
      .name = "ggml, flash_attn_ext",
      .version = Library().ok() ? (*Library())->version : "not installed",
      .supports = {{"dtypes", {"f32", "bf16"}},
                   {"scores", {"dot"}},
                   {"masks",
                    {"boolean", "bias", "causal_top_left", "causal_bottom_right", "window",
                     "kv_lengths", "q_lengths", "documents", "local"}},
                   {"features",
                    {"gqa", "alibi", "softcap", "sinks", "explicit_scale", "v_dim", "out_dtype"}},
                   {"empty_row", "zero"},
                   {"outputs", {"out"}}},
      .arithmetic = {{{"profile", "f32"}}},
  });
  return text;
}

StatusOr<TensorMap> PeerAttention(const Case& problem, int threads) {
  if (!Library().ok()) return Internal(Library().status().message());
  const Ggml& ggml = **Library();
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  if (c.local && c.local->gaussian) return Unsupported("no weights after the softmax");
  if (s.batch * s.q_len * s.kv_len == 0) return Unsupported("no empty tensors");
  const bool tensor_slopes = problem.Find("alibi_slopes") != nullptr && c.alibi != Alibi::kNone;
  if (tensor_slopes) return Unsupported("ALiBi has no slopes but the default ones");
  const bool alibi = c.alibi == Alibi::kDefault;
  const StatusOr<std::optional<Tensor>> mask = MaskOf(problem, alibi);
  if (!mask.ok()) return mask.status();
  const Tensor q = *ConvertedExactly(*problem.Find("q"), DType::kF32);
  const Tensor& k = *problem.Find("k");
  const Tensor& v = *problem.Find("v");
  Tensor rows(DType::kF32, {s.batch, s.q_len, s.q_heads, s.v_dim});

  const Graph graph(ggml, q.byte_size() + k.byte_size() + v.byte_size() + rows.byte_size() +
                              (*mask ? (*mask)->byte_size() : 0));
  if (graph.context() == nullptr) return Internal("ggml: no memory");
  GgmlTensor* result =
      ggml.f.flash_attention(graph.context(), graph.Copied(q), graph.Copied(k), graph.Copied(v),
                             *mask ? graph.Copied(**mask) : nullptr, static_cast<float>(ScaleOf(c)),
                             alibi ? kMaxBias : 0.0f, static_cast<float>(c.softcap));
  if (const Tensor* sinks = problem.Find("sinks"); sinks != nullptr) {
    ggml.f.add_sinks(result, graph.Copied(*ConvertedExactly(*sinks, DType::kF32)));
  }
  if (Status status = graph.Compute(result, threads); !status.ok()) return status;
  std::memcpy(rows.bytes(), ggml.f.get_data(result), rows.byte_size());
  return TensorMap{{"out", WithAxesSwapped(rows)}};
}

}  // namespace attest
