// SPDX-License-Identifier: Apache-2.0
// oneDNN 2: sgemm on blocks of queries, and its matmul and softmax primitives on whole heads.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/peers/blocked_attention.h"
#include "bench/peers/shared_library.h"

namespace attest {
namespace {

constexpr char kLibrary[] = "libdnnl.so.2";

// Of dnnl.h; a status of 0 is success.
using Sgemm = int(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n,
                  std::int64_t k, float alpha, const float* a, std::int64_t a_stride,
                  const float* b, std::int64_t b_stride, float beta, float* c,
                  std::int64_t c_stride);
struct Version {
  int major, minor, patch;
};
using GetVersion = const Version*();

Status ToStatus(int status) {
  return status == 0 ? Status() : Internal(fmt::format("oneDNN: status {}", status));
}

// A description of a matrix or of an operation, which the library fills in: structures of 696 to
// 2800 bytes in version 2.6.
struct alignas(16) Description {
  unsigned char bytes[8192];
};

// Objects that are only ever handled by pointer.
struct EngineObject;
struct StreamObject;
struct MemoryObject;
struct Attributes;
struct PrimitiveDescription;
struct Primitive;

struct Argument {
  int place;
  MemoryObject* memory;
};
enum Place : int { kSource = 1, kDestination = 17, kWeights = 33 };

constexpr int kCpu = 1;
constexpr int kInOrder = 1;
constexpr int kF32 = 3;
constexpr int kForwardInference = 96;

// The functions used here; each returns a status.
struct Functions {
  int (*engine_create)(EngineObject** engine, int kind, std::size_t index);
  int (*engine_destroy)(EngineObject* engine);
  int (*stream_create)(StreamObject** stream, EngineObject* engine, unsigned flags);
  int (*stream_destroy)(StreamObject* stream);
  int (*stream_wait)(StreamObject* stream);
  int (*memory_desc_init)(Description* desc, int rank, const std::int64_t* extents, int type,
                          const std::int64_t* strides);
  int (*memory_create)(MemoryObject** memory, const Description* desc, EngineObject* engine,
                       void* data);
  int (*memory_destroy)(MemoryObject* memory);
  int (*memory_set_data)(MemoryObject* memory, void* data);
  int (*attr_create)(Attributes** attributes);
  int (*attr_destroy)(Attributes* attributes);
  int (*attr_set_scales)(Attributes* attributes, std::int64_t count, int mask, const float* scales);
  int (*matmul_desc_init)(Description* operation, const Description* a, const Description* b,
                          const Description* bias, const Description* c);
  int (*softmax_desc_init)(Description* operation, int kind, const Description* data, int axis);
  int (*primitive_desc_create)(PrimitiveDescription** desc, const Description* operation,
                               const Attributes* attributes, EngineObject* engine,
                               const PrimitiveDescription* hint);
  int (*primitive_desc_destroy)(PrimitiveDescription* desc);
  int (*primitive_create)(Primitive** primitive, const PrimitiveDescription* desc);
  int (*primitive_destroy)(Primitive* primitive);
  int (*primitive_execute)(const Primitive* primitive, StreamObject* stream, int count,
                           const Argument* arguments);

  bool FindAll(const SharedLibrary& library) {
    return library.Find("dnnl_engine_create", &engine_create) &&
           library.Find("dnnl_engine_destroy", &engine_destroy) &&
           library.Find("dnnl_stream_create", &stream_create) &&
           library.Find("dnnl_stream_destroy", &stream_destroy) &&
           library.Find("dnnl_stream_wait", &stream_wait) &&
           library.Find("dnnl_memory_desc_init_by_strides", &memory_desc_init) &&
           library.Find("dnnl_memory_create", &memory_create) &&
           library.Find("dnnl_memory_destroy", &memory_destroy) &&
           library.Find("dnnl_memory_set_data_handle", &memory_set_data) &&
           library.Find("dnnl_primitive_attr_create", &attr_create) &&
           library.Find("dnnl_primitive_attr_destroy", &attr_destroy) &&
           library.Find("dnnl_primitive_attr_set_output_scales", &attr_set_scales) &&
           library.Find("dnnl_matmul_desc_init", &matmul_desc_init) &&
           library.Find("dnnl_softmax_forward_desc_init", &softmax_desc_init) &&
           library.Find("dnnl_primitive_desc_create", &primitive_desc_create) &&
           library.Find("dnnl_primitive_desc_destroy", &primitive_desc_destroy) &&
           library.Find("dnnl_primitive_create", &primitive_create) &&
           library.Find("dnnl_primitive_destroy", &primitive_destroy) &&
           library.Find("dnnl_primitive_execute", &primitive_execute);
  }
};

// The library with one engine and one stream.
struct Engine {
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() {
    if (stream != nullptr) f.stream_destroy(stream);
    if (engine != nullptr) f.engine_destroy(engine);
  }

  Functions f{};
  EngineObject* engine = nullptr;
  StreamObject* stream = nullptr;
};

// Head by head, each through the same three primitives and one score matrix.
class PrimitivesCall final : public AttentionCall {
 public:
  PrimitivesCall(const AttentionProblem& problem, const Engine& engine)
      : problem_(problem),
        engine_(engine),
        scores_(static_cast<std::size_t>(problem.shape.queries * problem.shape.keys)),
        out_(static_cast<std::size_t>(problem.q.size())) {}

  ~PrimitivesCall() override {
    for (Primitive* p : {score_product_, softmax_, value_product_}) {
      if (p != nullptr) engine_.f.primitive_destroy(p);
    }
    for (MemoryObject* m : {q_, k_, v_, s_, o_}) {
      if (m != nullptr) engine_.f.memory_destroy(m);
    }
  }

  Status Prepare() {
    const AttentionShape& s = problem_.shape;
    const Description q = Matrix(s.queries, s.dim, s.dim, 1);
    const Description k_transposed = Matrix(s.dim, s.keys, 1, s.dim);
    const Description scores = Matrix(s.queries, s.keys, s.keys, 1);
    const Description v = Matrix(s.keys, s.dim, s.dim, 1);
    const Description out = Matrix(s.queries, s.dim, s.dim, 1);

    Attributes* attr = nullptr;
    const float scale = ScaleOf(s);
    engine_.f.attr_create(&attr);
    engine_.f.attr_set_scales(attr, 1, 0, &scale);
    Description product;
    engine_.f.matmul_desc_init(&product, &q, &k_transposed, nullptr, &scores);
    Status first = Create(&product, attr, &score_product_);
    engine_.f.attr_destroy(attr);
    if (!first.ok()) return first;
    engine_.f.matmul_desc_init(&product, &scores, &v, nullptr, &out);
    if (Status status = Create(&product, nullptr, &value_product_); !status.ok()) return status;
    Description softmax;
    engine_.f.softmax_desc_init(&softmax, kForwardInference, &scores, 1);
    if (Status status = Create(&softmax, nullptr, &softmax_); !status.ok()) return status;

    struct Binding {
      MemoryObject** memory;
      const Description* desc;
      void* data;  // null: Run says where
    };
    for (const Binding& binding : {Binding{&q_, &q, nullptr}, Binding{&k_, &k_transposed, nullptr},
                                   Binding{&v_, &v, nullptr}, Binding{&o_, &out, nullptr},
                                   Binding{&s_, &scores, scores_.data()}}) {
      if (Status status = ToStatus(
              engine_.f.memory_create(binding.memory, binding.desc, engine_.engine, binding.data));
          !status.ok()) {
        return status;
      }
    }
    return Status();
  }

  Status Run() override {
    const AttentionShape& s = problem_.shape;
    for (Index head = 0; head < s.heads; ++head) {
      Point(q_, problem_.q.data<float>() + head * s.queries * s.dim);
      Point(k_, problem_.k.data<float>() + head * s.keys * s.dim);
      Point(v_, problem_.v.data<float>() + head * s.keys * s.dim);
      Point(o_, out_.data() + head * s.queries * s.dim);
      if (Status status =
              Execute(score_product_, {{kSource, q_}, {kWeights, k_}, {kDestination, s_}});
          !status.ok()) {
        return status;
      }
      if (s.causal) Mask();
      if (Status status = Execute(softmax_, {{kSource, s_}, {kDestination, s_}}); !status.ok()) {
        return status;
      }
      if (Status status =
              Execute(value_product_, {{kSource, s_}, {kWeights, v_}, {kDestination, o_}});
          !status.ok()) {
        return status;
      }
    }
    return Status();
  }

  std::vector<float> Output() const override { return out_; }

 private:
  static constexpr float kMasked = -std::numeric_limits<float>::infinity();

  Description Matrix(Index rows, Index columns, Index row_stride, Index column_stride) {
    Description desc;
    const std::int64_t extents[] = {rows, columns};
    const std::int64_t strides[] = {row_stride, column_stride};
    engine_.f.memory_desc_init(&desc, 2, extents, kF32, strides);
    return desc;
  }

  Status Create(const Description* operation, Attributes* attr, Primitive** primitive) {
    PrimitiveDescription* desc = nullptr;
    if (Status s = ToStatus(
            engine_.f.primitive_desc_create(&desc, operation, attr, engine_.engine, nullptr));
        !s.ok()) {
      return s;
    }
    const Status status = ToStatus(engine_.f.primitive_create(primitive, desc));
    engine_.f.primitive_desc_destroy(desc);
    return status;
  }

  // oneDNN writes only to what is a destination.
  void Point(MemoryObject* memory, const float* data) {
    engine_.f.memory_set_data(memory, const_cast<float*>(data));
  }

  Status Execute(Primitive* primitive, const std::vector<Argument>& args) {
    Status status = ToStatus(engine_.f.primitive_execute(
        primitive, engine_.stream, static_cast<int>(args.size()), args.data()));
    if (!status.ok()) return status;
    return ToStatus(engine_.f.stream_wait(engine_.stream));
  }

  // Its primitives have no causal rule, and a mask as their own post-operation is far slower.
  void Mask() {
    const AttentionShape& s = problem_.shape;
    for (Index i = 0; i < s.queries; ++i) {
      float* row = scores_.data() + i * s.keys;
      std::fill(row + (s.keys - s.queries + i + 1), row + s.keys, kMasked);
    }
  }

  const AttentionProblem& problem_;
  const Engine& engine_;
  std::vector<float> scores_;
  std::vector<float> out_;
  Primitive* score_product_ = nullptr;
  Primitive* softmax_ = nullptr;
  Primitive* value_product_ = nullptr;
  MemoryObject* q_ = nullptr;
  MemoryObject* k_ = nullptr;
  MemoryObject* v_ = nullptr;
  MemoryObject* s_ = nullptr;  // scores
  MemoryObject* o_ = nullptr;
};

void AddPrimitives(const SharedLibrary& library, PeerLibrary* peer) {
  const auto engine = std::make_shared<Engine>();
  if (!engine->f.FindAll(library) || engine->f.engine_create(&engine->engine, kCpu, 0) != 0 ||
      engine->f.stream_create(&engine->stream, engine->engine, kInOrder) != 0) {
    return;
  }
  peer->peers.push_back(
      {"onednn primitives",
       [engine](const AttentionProblem& problem) -> StatusOr<std::unique_ptr<AttentionCall>> {
         auto call = std::make_unique<PrimitivesCall>(problem, *engine);
         if (Status s = call->Prepare(); !s.ok()) return s;
         return std::unique_ptr<AttentionCall>(std::move(call));
       }});
}

}  // namespace

PeerLibrary LoadOneDnn() {
  PeerLibrary peer{.name = "oneDNN", .licence = "Apache-2.0"};
  const StatusOr<SharedLibrary> library = SharedLibrary::Open(kLibrary);
  if (!library.ok()) {
    peer.missing = library.status().message();
    return peer;
  }
  Sgemm* sgemm = nullptr;
  GetVersion* version = nullptr;
  if (!library->Find("dnnl_sgemm", &sgemm) || !library->Find("dnnl_version", &version)) {
    peer.missing = fmt::format("{}: not the functions of oneDNN", kLibrary);
    return peer;
  }
  peer.version = fmt::format("{}.{}.{}", version()->major, version()->minor, version()->patch);
  peer.changed_fp_state = library->changed_fp_state();
  peer.peers.push_back(BlockedAttention("onednn sgemm", [sgemm](const Product& p) {
    return ToStatus(sgemm('N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a, p.a_stride,
                          p.b, p.b_stride, 0.0f, p.c, p.c_stride));
  }));
  AddPrimitives(*library, &peer);
  return peer;
}

}  // namespace attest
