// SPDX-License-Identifier: Apache-2.0
// oneDNN 2: sgemm on blocks of queries, and its matmul and softmax primitives on whole heads.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/peers/blocked_attention.h"
#include "bench/peers/shared_library.h"

// The primitives' argument types come from the library's header: a build without it has sgemm only.
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR == 2
#define ATTEST_ONEDNN_PRIMITIVES
#endif
#endif

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

#ifdef ATTEST_ONEDNN_PRIMITIVES

// The functions used here, by their own types.
struct Functions {
  decltype(dnnl_engine_create)* engine_create;
  decltype(dnnl_stream_create)* stream_create;
  decltype(dnnl_stream_wait)* stream_wait;
  decltype(dnnl_memory_desc_init_by_strides)* memory_desc_init;
  decltype(dnnl_memory_create)* memory_create;
  decltype(dnnl_memory_destroy)* memory_destroy;
  decltype(dnnl_memory_set_data_handle)* memory_set_data;
  decltype(dnnl_primitive_attr_create)* attr_create;
  decltype(dnnl_primitive_attr_destroy)* attr_destroy;
  decltype(dnnl_primitive_attr_set_output_scales)* attr_set_scales;
  decltype(dnnl_matmul_desc_init)* matmul_desc_init;
  decltype(dnnl_softmax_forward_desc_init)* softmax_desc_init;
  decltype(dnnl_primitive_desc_create)* primitive_desc_create;
  decltype(dnnl_primitive_desc_destroy)* primitive_desc_destroy;
  decltype(dnnl_primitive_create)* primitive_create;
  decltype(dnnl_primitive_destroy)* primitive_destroy;
  decltype(dnnl_primitive_execute)* primitive_execute;

  bool FindAll(const SharedLibrary& library) {
    return library.Find("dnnl_engine_create", &engine_create) &&
           library.Find("dnnl_stream_create", &stream_create) &&
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

// A library with one engine and one stream, which live as long as the process.
struct Engine {
  Functions f;
  dnnl_engine_t engine = nullptr;
  dnnl_stream_t stream = nullptr;
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
    for (dnnl_primitive_t p : {score_product_, softmax_, value_product_}) {
      if (p != nullptr) engine_.f.primitive_destroy(p);
    }
    for (dnnl_memory_t m : {q_, k_, v_, s_, o_}) {
      if (m != nullptr) engine_.f.memory_destroy(m);
    }
  }

  Status Prepare() {
    const AttentionShape& s = problem_.shape;
    const dnnl_memory_desc_t q = Matrix(s.queries, s.dim, s.dim, 1);
    const dnnl_memory_desc_t k_transposed = Matrix(s.dim, s.keys, 1, s.dim);
    const dnnl_memory_desc_t scores = Matrix(s.queries, s.keys, s.keys, 1);
    const dnnl_memory_desc_t v = Matrix(s.keys, s.dim, s.dim, 1);
    const dnnl_memory_desc_t out = Matrix(s.queries, s.dim, s.dim, 1);

    dnnl_primitive_attr_t attr = nullptr;
    const float scale = ScaleOf(s);
    engine_.f.attr_create(&attr);
    engine_.f.attr_set_scales(attr, 1, 0, &scale);
    dnnl_matmul_desc_t product;
    engine_.f.matmul_desc_init(&product, &q, &k_transposed, nullptr, &scores);
    const Status first = Create(&product, attr, &score_product_);
    engine_.f.attr_destroy(attr);
    if (!first.ok()) return first;
    engine_.f.matmul_desc_init(&product, &scores, &v, nullptr, &out);
    if (Status status = Create(&product, nullptr, &value_product_); !status.ok()) return status;
    dnnl_softmax_desc_t softmax;
    engine_.f.softmax_desc_init(&softmax, dnnl_forward_inference, &scores, 1);
    if (Status status = Create(&softmax, nullptr, &softmax_); !status.ok()) return status;

    struct Place {
      dnnl_memory_t* memory;
      const dnnl_memory_desc_t* desc;
      void* data;  // null: Run says where
    };
    for (const Place& place :
         {Place{&q_, &q, nullptr}, Place{&k_, &k_transposed, nullptr}, Place{&v_, &v, nullptr},
          Place{&o_, &out, nullptr}, Place{&s_, &scores, scores_.data()}}) {
      if (Status status = ToStatus(
              engine_.f.memory_create(place.memory, place.desc, engine_.engine, place.data));
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
      if (Status status = Execute(score_product_,
                                  {{DNNL_ARG_SRC, q_}, {DNNL_ARG_WEIGHTS, k_}, {DNNL_ARG_DST, s_}});
          !status.ok()) {
        return status;
      }
      if (s.causal) Mask();
      if (Status status = Execute(softmax_, {{DNNL_ARG_SRC, s_}, {DNNL_ARG_DST, s_}});
          !status.ok()) {
        return status;
      }
      if (Status status = Execute(value_product_,
                                  {{DNNL_ARG_SRC, s_}, {DNNL_ARG_WEIGHTS, v_}, {DNNL_ARG_DST, o_}});
          !status.ok()) {
        return status;
      }
    }
    return Status();
  }

  std::vector<float> Output() const override { return out_; }

 private:
  static constexpr float kMasked = -std::numeric_limits<float>::infinity();

  dnnl_memory_desc_t Matrix(Index rows, Index columns, Index row_stride, Index column_stride) {
    dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_dims_t strides = {row_stride, column_stride};
    engine_.f.memory_desc_init(&desc, 2, dims, dnnl_f32, strides);
    return desc;
  }

  Status Create(const void* operation, dnnl_primitive_attr_t attr, dnnl_primitive_t* primitive) {
    dnnl_primitive_desc_t desc = nullptr;
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
  void Point(dnnl_memory_t memory, const float* data) {
    engine_.f.memory_set_data(memory, const_cast<float*>(data));
  }

  Status Execute(dnnl_primitive_t primitive, const std::vector<dnnl_exec_arg_t>& args) {
    const Status status = ToStatus(engine_.f.primitive_execute(
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
  dnnl_primitive_t score_product_ = nullptr, softmax_ = nullptr, value_product_ = nullptr;
  dnnl_memory_t q_ = nullptr, k_ = nullptr, v_ = nullptr, s_ = nullptr, o_ = nullptr;
};

void AddPrimitives(const SharedLibrary& library, PeerLibrary* peer) {
  const auto engine = std::make_shared<Engine>();
  if (!engine->f.FindAll(library) ||
      engine->f.engine_create(&engine->engine, dnnl_cpu, 0) != dnnl_success ||
      engine->f.stream_create(&engine->stream, engine->engine, dnnl_stream_default_flags) !=
          dnnl_success) {
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

#else

void AddPrimitives(const SharedLibrary&, PeerLibrary*) {}

#endif

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
