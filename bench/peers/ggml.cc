// SPDX-License-Identifier: Apache-2.0
// ggml, the tensor library of llama.cpp: its fused attention with keys and values in f32.
#include "audit/peers/ggml.h"

#include <cstring>
#include <utility>

#include "bench/peers/peer.h"

namespace attest {
namespace {

class FlashCall final : public AttentionCall {
 public:
  FlashCall(const AttentionProblem& problem, const Ggml& ggml)
      : shape_(problem.shape), ggml_(ggml) {}
  ~FlashCall() override {
    if (context_ != nullptr) ggml_.f.free(context_);
  }

  Status Prepare(const AttentionProblem& p) {
    const GgmlFunctions& f = ggml_.f;
    const AttentionShape& s = shape_;
    constexpr std::size_t kOverhead = 64u << 20;
    const std::size_t bytes = 2 * p.q.byte_size() + p.k.byte_size() + p.v.byte_size() +
                              sizeof(std::uint16_t) * static_cast<std::size_t>(s.queries * s.keys);
    context_ = f.init({.memory_size = bytes + kOverhead, .memory = nullptr, .no_alloc = false});
    if (context_ == nullptr) return Internal("ggml: no memory");
    GgmlTensor* q = Copied(p.q);
    GgmlTensor* k = Copied(p.k);
    GgmlTensor* v = Copied(p.v);
    GgmlTensor* mask = s.causal ? CausalMask() : nullptr;
    result_ = f.flash_attention(context_, q, k, v, mask, ScaleOf(s), 0.0f, 0.0f);
    graph_ = f.new_graph(context_);
    f.build_forward(graph_, result_);
    return Status();
  }

  Status Run() override {
    const int status = ggml_.f.compute(ggml_.backend, graph_);
    return status == 0 ? Status() : Internal("ggml: status " + std::to_string(status));
  }

  std::vector<float> Output() const override {
    return HeadsFirst(static_cast<const float*>(ggml_.f.get_data(result_)), shape_.heads,
                      shape_.queries, shape_.dim);
  }

 private:
  GgmlTensor* Copied(const Tensor& tensor) {
    const Shape& shape = tensor.shape();
    GgmlTensor* copy =
        ggml_.f.new_tensor(context_, kGgmlF32, shape[3], shape[2], shape[1], shape[0]);
    std::memcpy(ggml_.f.get_data(copy), tensor.bytes(), tensor.byte_size());
    return copy;
  }

  // ggml has no causal rule; a mask is added to the scores, in f16.
  GgmlTensor* CausalMask() {
    constexpr std::uint16_t kZero = 0;
    constexpr std::uint16_t kMinusInfinity = 0xfc00;
    GgmlTensor* mask = ggml_.f.new_tensor(context_, kGgmlF16, shape_.keys, shape_.queries, 1, 1);
    auto* row = static_cast<std::uint16_t*>(ggml_.f.get_data(mask));
    for (Index i = 0; i < shape_.queries; ++i, row += shape_.keys) {
      const Index seen = shape_.keys - shape_.queries + i + 1;
      for (Index j = 0; j < shape_.keys; ++j) row[j] = j < seen ? kZero : kMinusInfinity;
    }
    return mask;
  }

  AttentionShape shape_;
  const Ggml& ggml_;
  GgmlContext* context_ = nullptr;
  GgmlGraph* graph_ = nullptr;
  GgmlTensor* result_ = nullptr;
};

}  // namespace

PeerLibrary LoadGgml() {
  PeerLibrary peer{.name = "ggml", .licence = "MIT"};
  const StatusOr<std::shared_ptr<Ggml>> loaded = Ggml::Load();
  if (!loaded.ok()) {
    peer.missing = loaded.status().message();
    return peer;
  }
  const std::shared_ptr<Ggml> ggml = *loaded;
  peer.version = ggml->version;
  peer.changed_fp_state = ggml->changed_fp_state;
  ggml->f.set_threads(ggml->backend, 1);
  peer.peers.push_back(
      {"ggml flash",
       [ggml](const AttentionProblem& problem) -> StatusOr<std::unique_ptr<AttentionCall>> {
         auto call = std::make_unique<FlashCall>(problem, *ggml);
         if (Status s = call->Prepare(problem); !s.ok()) return s;
         return std::unique_ptr<AttentionCall>(std::move(call));
       }});
  return peer;
}

}  // namespace attest
