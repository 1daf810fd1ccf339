// SPDX-License-Identifier: Apache-2.0
// ggml, the tensor library of llama.cpp: its fused attention with keys and values in f32.
#include <cstring>
#include <filesystem>
#include <utility>

#include "bench/peers/peer.h"
#include "bench/peers/shared_library.h"

namespace attest {
namespace {

constexpr char kFolder[] = "@node-llama-cpp/linux-x64/bins/linux-x64";

// Of ggml.h. Objects are only ever handled by pointer.
struct Context;
struct GgmlTensor;
struct Graph;
struct Backend;
struct InitParams {
  std::size_t memory_size;
  void* memory;
  bool no_alloc;
};
enum Type : int { kTypeF32 = 0, kTypeF16 = 1 };

struct Functions {
  Context* (*init)(InitParams params);
  void (*free)(Context* context);
  GgmlTensor* (*new_tensor)(Context* context, Type type, Index n0, Index n1, Index n2, Index n3);
  void* (*get_data)(const GgmlTensor* tensor);
  GgmlTensor* (*flash_attention)(Context* context, GgmlTensor* q, GgmlTensor* k, GgmlTensor* v,
                                 GgmlTensor* mask, float scale, float max_bias, float softcap);
  Graph* (*new_graph)(Context* context);
  void (*build_forward)(Graph* graph, GgmlTensor* tensor);
  const char* (*version)();
  Backend* (*cpu_init)();
  void (*backend_free)(Backend* backend);
  void (*set_threads)(Backend* backend, int threads);
  int (*compute)(Backend* backend, Graph* graph);

  bool FindAll(const SharedLibrary& base, const SharedLibrary& cpu) {
    return base.Find("ggml_init", &init) && base.Find("ggml_free", &free) &&
           base.Find("ggml_new_tensor_4d", &new_tensor) && base.Find("ggml_get_data", &get_data) &&
           base.Find("ggml_flash_attn_ext", &flash_attention) &&
           base.Find("ggml_new_graph", &new_graph) &&
           base.Find("ggml_build_forward_expand", &build_forward) &&
           base.Find("ggml_version", &version) && cpu.Find("ggml_backend_cpu_init", &cpu_init) &&
           cpu.Find("ggml_backend_cpu_set_n_threads", &set_threads) &&
           base.Find("ggml_backend_free", &backend_free) &&
           base.Find("ggml_backend_graph_compute", &compute);
  }
};

// The library with one backend of one thread.
struct Ggml {
  Ggml() = default;
  Ggml(const Ggml&) = delete;
  Ggml& operator=(const Ggml&) = delete;
  ~Ggml() {
    if (backend != nullptr) f.backend_free(backend);
  }

  Functions f{};
  Backend* backend = nullptr;
};

class FlashCall final : public AttentionCall {
 public:
  FlashCall(const AttentionProblem& problem, const Ggml& ggml)
      : shape_(problem.shape), ggml_(ggml) {}
  ~FlashCall() override {
    if (context_ != nullptr) ggml_.f.free(context_);
  }

  Status Prepare(const AttentionProblem& p) {
    const Functions& f = ggml_.f;
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
        ggml_.f.new_tensor(context_, kTypeF32, shape[3], shape[2], shape[1], shape[0]);
    std::memcpy(ggml_.f.get_data(copy), tensor.bytes(), tensor.byte_size());
    return copy;
  }

  // ggml has no causal rule; a mask is added to the scores, in f16.
  GgmlTensor* CausalMask() {
    constexpr std::uint16_t kZero = 0;
    constexpr std::uint16_t kMinusInfinity = 0xfc00;
    GgmlTensor* mask = ggml_.f.new_tensor(context_, kTypeF16, shape_.keys, shape_.queries, 1, 1);
    auto* row = static_cast<std::uint16_t*>(ggml_.f.get_data(mask));
    for (Index i = 0; i < shape_.queries; ++i, row += shape_.keys) {
      const Index seen = shape_.keys - shape_.queries + i + 1;
      for (Index j = 0; j < shape_.keys; ++j) row[j] = j < seen ? kZero : kMinusInfinity;
    }
    return mask;
  }

  AttentionShape shape_;
  const Ggml& ggml_;
  Context* context_ = nullptr;
  Graph* graph_ = nullptr;
  GgmlTensor* result_ = nullptr;
};

// The build for the instruction set that ggml itself rates highest on this machine; 0 is "cannot
// run". `name`: "sapphirerapids".
StatusOr<SharedLibrary> BestBuild(const std::filesystem::path& folder, std::string* name) {
  constexpr std::string_view kPrefix = "libggml-cpu-";
  int best_score = 0;
  std::filesystem::path best;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (!stem.starts_with(kPrefix)) continue;
    const StatusOr<SharedLibrary> library = SharedLibrary::Open(entry.path().string());
    int (*score)() = nullptr;
    if (!library.ok() || !library->Find("ggml_backend_score", &score)) continue;
    if (const int value = score(); value > best_score) {
      best_score = value;
      best = entry.path();
      *name = stem.substr(kPrefix.size());
    }
  }
  if (best_score == 0) return NotFound("no build for this machine");
  return SharedLibrary::Open(best.string());
}

}  // namespace

PeerLibrary LoadGgml() {
  PeerLibrary peer{.name = "ggml", .licence = "MIT"};
  const auto folder = FindPeerFile(kFolder);
  if (!folder) {
    peer.missing = "package @node-llama-cpp/linux-x64 not found (make peers)";
    return peer;
  }
  const StatusOr<SharedLibrary> base = SharedLibrary::Open((*folder / "libggml-base.so").string());
  if (!base.ok()) {
    peer.missing = base.status().message();
    return peer;
  }
  std::string build;
  const StatusOr<SharedLibrary> cpu = BestBuild(*folder, &build);
  if (!cpu.ok()) {
    peer.missing = cpu.status().message();
    return peer;
  }
  const auto ggml = std::make_shared<Ggml>();
  if (!ggml->f.FindAll(*base, *cpu)) {
    peer.missing = "not the functions of ggml";
    return peer;
  }
  peer.changed_fp_state = base->changed_fp_state() || cpu->changed_fp_state();
  peer.version = std::string(ggml->f.version()) + ", build " + build;
  ggml->backend = ggml->f.cpu_init();
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
