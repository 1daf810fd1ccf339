// SPDX-License-Identifier: Apache-2.0
// oneDNN 2 through its C functions, loaded while the program runs: products and softmax of a head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "audit/peers/shared_library.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

inline constexpr char kOneDnnLibrary[] = "libdnnl.so.2";

// Objects of dnnl.h, which are only ever handled by pointer.
struct DnnlEngine;
struct DnnlStream;
struct DnnlMemory;
struct DnnlAttributes;
struct DnnlPrimitiveDescription;
struct DnnlPrimitive;
struct DnnlDescription;  // of a matrix or an operation

struct DnnlArgument {
  int place;
  DnnlMemory* memory;
};

using DnnlSgemm = int(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n,
                      std::int64_t k, float alpha, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_stride, float beta, float* c,
                      std::int64_t c_stride);

// The functions used here, by their names without dnnl_; each returns a status, 0 for success.
struct DnnlFunctions {
  DnnlSgemm* sgemm;
  int (*engine_create)(DnnlEngine** engine, int kind, std::size_t index);
  int (*engine_destroy)(DnnlEngine* engine);
  int (*stream_create)(DnnlStream** stream, DnnlEngine* engine, unsigned flags);
  int (*stream_destroy)(DnnlStream* stream);
  int (*stream_wait)(DnnlStream* stream);
  int (*memory_desc_init)(DnnlDescription* desc, int rank, const std::int64_t* extents, int type,
                          const std::int64_t* strides);
  int (*memory_create)(DnnlMemory** memory, const DnnlDescription* desc, DnnlEngine* engine,
                       void* data);
  int (*memory_destroy)(DnnlMemory* memory);
  int (*memory_set_data)(DnnlMemory* memory, void* data);
  int (*attr_create)(DnnlAttributes** attributes);
  int (*attr_destroy)(DnnlAttributes* attributes);
  int (*attr_set_scales)(DnnlAttributes* attributes, std::int64_t count, int mask,
                         const float* scales);
  int (*matmul_desc_init)(DnnlDescription* operation, const DnnlDescription* a,
                          const DnnlDescription* b, const DnnlDescription* bias,
                          const DnnlDescription* c);
  int (*softmax_desc_init)(DnnlDescription* operation, int kind, const DnnlDescription* data,
                           int axis);
  int (*primitive_desc_create)(DnnlPrimitiveDescription** desc, const DnnlDescription* operation,
                               const DnnlAttributes* attributes, DnnlEngine* engine,
                               const DnnlPrimitiveDescription* hint);
  int (*primitive_desc_destroy)(DnnlPrimitiveDescription* desc);
  int (*primitive_create)(DnnlPrimitive** primitive, const DnnlPrimitiveDescription* desc);
  int (*primitive_destroy)(DnnlPrimitive* primitive);
  int (*primitive_execute)(const DnnlPrimitive* primitive, DnnlStream* stream, int count,
                           const DnnlArgument* arguments);

  bool FindAll(const SharedLibrary& library);
};

// The library with one engine and one stream.
struct OneDnn {
  // NotFound says what is missing.
  static StatusOr<std::shared_ptr<OneDnn>> Load();

  OneDnn() = default;
  OneDnn(const OneDnn&) = delete;
  OneDnn& operator=(const OneDnn&) = delete;
  ~OneDnn();

  DnnlFunctions f{};
  // Of the OpenMP library that it uses, where it does.
  void (*set_threads)(int threads) = nullptr;
  std::string version;  // "2.6.3"
  bool changed_fp_state = false;
  DnnlEngine* engine = nullptr;
  DnnlStream* stream = nullptr;
};

// A status of dnnl.h as ours.
Status FromDnnl(int status);

// Attention of one head in f32 by three primitives: q [queries, qk_dim] times k [keys, qk_dim]
// transposed and scaled, softmax of the rows, times v [keys, v_dim].
class DnnlHead {
 public:
  struct Sizes {
    Index queries, keys, qk_dim, v_dim;
    float scale;
  };
  // `dnnl` must outlive the object.
  explicit DnnlHead(const OneDnn& dnnl) : dnnl_(dnnl) {}
  DnnlHead(const DnnlHead&) = delete;
  DnnlHead& operator=(const DnnlHead&) = delete;
  ~DnnlHead();

  Status Prepare(const Sizes& sizes);

  // Dense arrays. `change_scores`, where there is one, is called with the scores [queries, keys]
  // before the softmax.
  Status Run(const float* q, const float* k, const float* v, float* out,
             const std::function<void(float* scores)>& change_scores);

 private:
  Status Create(const DnnlDescription* operation, DnnlAttributes* attributes,
                DnnlPrimitive** primitive);
  Status Execute(DnnlPrimitive* primitive, const std::vector<DnnlArgument>& arguments);

  const OneDnn& dnnl_;
  std::vector<float> scores_;
  DnnlPrimitive* score_product_ = nullptr;
  DnnlPrimitive* softmax_ = nullptr;
  DnnlPrimitive* value_product_ = nullptr;
  DnnlMemory* q_ = nullptr;
  DnnlMemory* k_ = nullptr;
  DnnlMemory* v_ = nullptr;
  DnnlMemory* s_ = nullptr;  // scores
  DnnlMemory* o_ = nullptr;
};

}  // namespace attest
