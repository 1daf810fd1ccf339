// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/onednn.h"

#include <fmt/format.h>

namespace attest {

// Opaque: the library fills it in; structures of 696 to 2800 bytes in version 2.6.
struct alignas(16) DnnlDescription {
  unsigned char bytes[8192];
};

namespace {

enum Place : int { kSource = 1, kDestination = 17, kWeights = 33 };

constexpr int kCpu = 1;
constexpr int kInOrder = 1;
constexpr int kF32 = 3;
constexpr int kForwardInference = 96;

struct Version {
  int major, minor, patch;
};

// oneDNN writes only to what is a destination.
void* Data(const float* data) { return const_cast<float*>(data); }

DnnlDescription Matrix(const OneDnn& dnnl, Index rows, Index columns, Index row_stride,
                       Index column_stride) {
  DnnlDescription desc;
  const std::int64_t extents[] = {rows, columns};
  const std::int64_t strides[] = {row_stride, column_stride};
  dnnl.f.memory_desc_init(&desc, 2, extents, kF32, strides);
  return desc;
}

}  // namespace

bool DnnlFunctions::FindAll(const SharedLibrary& library) {
  return library.Find("dnnl_sgemm", &sgemm) && library.Find("dnnl_engine_create", &engine_create) &&
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

Status FromDnnl(int status) {
  return status == 0 ? Status() : Internal(fmt::format("oneDNN: status {}", status));
}

StatusOr<std::shared_ptr<OneDnn>> OneDnn::Load() {
  const StatusOr<SharedLibrary> library = SharedLibrary::Open(kOneDnnLibrary);
  if (!library.ok()) return library.status();
  auto dnnl = std::make_shared<OneDnn>();
  const Version* (*version)() = nullptr;
  if (!dnnl->f.FindAll(*library) || !library->Find("dnnl_version", &version)) {
    return NotFound(fmt::format("{}: not the functions of oneDNN", kOneDnnLibrary));
  }
  dnnl->version = fmt::format("{}.{}.{}", version()->major, version()->minor, version()->patch);
  dnnl->changed_fp_state = library->changed_fp_state();
  library->Find("omp_set_num_threads", &dnnl->set_threads);
  if (Status s = FromDnnl(dnnl->f.engine_create(&dnnl->engine, kCpu, 0)); !s.ok()) return s;
  if (Status s = FromDnnl(dnnl->f.stream_create(&dnnl->stream, dnnl->engine, kInOrder)); !s.ok()) {
    return s;
  }
  return dnnl;
}

OneDnn::~OneDnn() {
  if (stream != nullptr) f.stream_destroy(stream);
  if (engine != nullptr) f.engine_destroy(engine);
}

DnnlHead::~DnnlHead() {
  for (DnnlPrimitive* p : {score_product_, softmax_, value_product_}) {
    if (p != nullptr) dnnl_.f.primitive_destroy(p);
  }
  for (DnnlMemory* m : {q_, k_, v_, s_, o_}) {
    if (m != nullptr) dnnl_.f.memory_destroy(m);
  }
}

Status DnnlHead::Prepare(const Sizes& n) {
  scores_.resize(static_cast<std::size_t>(n.queries * n.keys));
  const DnnlDescription q = Matrix(dnnl_, n.queries, n.qk_dim, n.qk_dim, 1);
  const DnnlDescription k_transposed = Matrix(dnnl_, n.qk_dim, n.keys, 1, n.qk_dim);
  const DnnlDescription scores = Matrix(dnnl_, n.queries, n.keys, n.keys, 1);
  const DnnlDescription v = Matrix(dnnl_, n.keys, n.v_dim, n.v_dim, 1);
  const DnnlDescription out = Matrix(dnnl_, n.queries, n.v_dim, n.v_dim, 1);

  DnnlAttributes* attributes = nullptr;
  dnnl_.f.attr_create(&attributes);
  dnnl_.f.attr_set_scales(attributes, 1, 0, &n.scale);
  DnnlDescription operation;
  dnnl_.f.matmul_desc_init(&operation, &q, &k_transposed, nullptr, &scores);
  Status status = Create(&operation, attributes, &score_product_);
  dnnl_.f.attr_destroy(attributes);
  if (!status.ok()) return status;
  dnnl_.f.matmul_desc_init(&operation, &scores, &v, nullptr, &out);
  if (status = Create(&operation, nullptr, &value_product_); !status.ok()) return status;
  dnnl_.f.softmax_desc_init(&operation, kForwardInference, &scores, 1);
  if (status = Create(&operation, nullptr, &softmax_); !status.ok()) return status;

  struct Binding {
    DnnlMemory** memory;
    const DnnlDescription* desc;
    void* data;  // null: Run says where
  };
  for (const Binding& binding :
       {Binding{&q_, &q, nullptr}, Binding{&k_, &k_transposed, nullptr}, Binding{&v_, &v, nullptr},
        Binding{&o_, &out, nullptr}, Binding{&s_, &scores, scores_.data()}}) {
    status =
        FromDnnl(dnnl_.f.memory_create(binding.memory, binding.desc, dnnl_.engine, binding.data));
    if (!status.ok()) return status;
  }
  return Status();
}

Status DnnlHead::Run(const float* q, const float* k, const float* v, float* out,
                     const std::function<void(float* scores)>& change_scores) {
  dnnl_.f.memory_set_data(q_, Data(q));
  dnnl_.f.memory_set_data(k_, Data(k));
  dnnl_.f.memory_set_data(v_, Data(v));
  dnnl_.f.memory_set_data(o_, out);
  Status status = Execute(score_product_, {{kSource, q_}, {kWeights, k_}, {kDestination, s_}});
  if (!status.ok()) return status;
  if (change_scores) change_scores(scores_.data());
  status = Execute(softmax_, {{kSource, s_}, {kDestination, s_}});
  if (!status.ok()) return status;
  return Execute(value_product_, {{kSource, s_}, {kWeights, v_}, {kDestination, o_}});
}

Status DnnlHead::Create(const DnnlDescription* operation, DnnlAttributes* attributes,
                        DnnlPrimitive** primitive) {
  DnnlPrimitiveDescription* desc = nullptr;
  Status status =
      FromDnnl(dnnl_.f.primitive_desc_create(&desc, operation, attributes, dnnl_.engine, nullptr));
  if (!status.ok()) return status;
  status = FromDnnl(dnnl_.f.primitive_create(primitive, desc));
  dnnl_.f.primitive_desc_destroy(desc);
  return status;
}

Status DnnlHead::Execute(DnnlPrimitive* primitive, const std::vector<DnnlArgument>& arguments) {
  const Status status = FromDnnl(dnnl_.f.primitive_execute(
      primitive, dnnl_.stream, static_cast<int>(arguments.size()), arguments.data()));
  if (!status.ok()) return status;
  return FromDnnl(dnnl_.f.stream_wait(dnnl_.stream));
}

}  // namespace attest
