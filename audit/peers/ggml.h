// SPDX-License-Identifier: Apache-2.0
// ggml, the tensor library of llama.cpp, through its C functions, loaded while the program runs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "audit/peers/shared_library.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// Where the libraries lie below node_modules (FindPeerFile).
inline constexpr char kGgmlFolder[] = "@node-llama-cpp/linux-x64/bins/linux-x64";

// Of ggml.h. Objects are only ever handled by pointer.
struct GgmlContext;
struct GgmlTensor;
struct GgmlGraph;
struct GgmlBackend;
struct GgmlInitParams {
  std::size_t memory_size;
  void* memory;
  bool no_alloc;
};
enum GgmlType : int { kGgmlF32 = 0, kGgmlF16 = 1, kGgmlBF16 = 30 };

// The functions used here, by their names without ggml_ or ggml_backend_.
struct GgmlFunctions {
  GgmlContext* (*init)(GgmlInitParams params);
  void (*free)(GgmlContext* context);
  GgmlTensor* (*new_tensor)(GgmlContext* context, GgmlType type, Index n0, Index n1, Index n2,
                            Index n3);
  void* (*get_data)(const GgmlTensor* tensor);
  GgmlTensor* (*flash_attention)(GgmlContext* context, GgmlTensor* q, GgmlTensor* k, GgmlTensor* v,
                                 GgmlTensor* mask, float scale, float max_bias, float softcap);
  void (*add_sinks)(GgmlTensor* attention, GgmlTensor* sinks);
  GgmlGraph* (*new_graph)(GgmlContext* context);
  void (*build_forward)(GgmlGraph* graph, GgmlTensor* tensor);
  const char* (*version)();
  GgmlBackend* (*cpu_init)();
  void (*backend_free)(GgmlBackend* backend);
  void (*set_threads)(GgmlBackend* backend, int threads);
  int (*compute)(GgmlBackend* backend, GgmlGraph* graph);

  bool FindAll(const SharedLibrary& base, const SharedLibrary& cpu);
};

// The library with one backend: the build for the instruction set that ggml itself rates highest
// on this machine.
struct Ggml {
  // NotFound says what is missing.
  static StatusOr<std::shared_ptr<Ggml>> Load();

  Ggml() = default;
  Ggml(const Ggml&) = delete;
  Ggml& operator=(const Ggml&) = delete;
  ~Ggml();

  GgmlFunctions f{};
  std::string version;  // "0.23.0, build zen4"
  bool changed_fp_state = false;
  GgmlBackend* backend = nullptr;
};

}  // namespace attest
