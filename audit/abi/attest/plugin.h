/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of Attest's plug-ins, version 1. C99; usable from C, C++, CUDA, Rust, ...
 *
 * A plug-in is a shared library that exports attest_plugin_run, and should export
 * attest_plugin_info. `attest audit --plugin LIBRARY.so` loads it into a process of its own and
 * calls it once for each case. docs/plugins.md has an example and the rules. */
#ifndef ATTEST_PLUGIN_H_
#define ATTEST_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Tensors are DLPack's DLTensor. Include <dlpack/dlpack.h> before this header to use its own
 * declarations; otherwise these, which have the same layout, are enough. */
#ifndef DLPACK_DLPACK_H_
#ifdef __cplusplus
extern "C" {
#endif
typedef struct {
  int32_t device_type; /* 1: the CPU */
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code; /* ATTEST_INT, ... */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;     /* in elements, never NULL here */
  uint64_t byte_offset; /* 0 */
} DLTensor;
#ifdef __cplusplus
}
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTEST_PLUGIN_VERSION 1

/* Seen from outside also where everything else is hidden (-fvisibility=hidden). */
#if defined(__GNUC__)
#define ATTEST_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define ATTEST_PLUGIN_EXPORT
#endif

/* Codes of DLDataType that occur: f64, f32, f16 are ATTEST_FLOAT of 64, 32, 16 bits, bf16 is
 * ATTEST_BFLOAT of 16, lengths and document ids are ATTEST_INT of 32, masks ATTEST_BOOL of 8. */
enum { ATTEST_INT = 0, ATTEST_FLOAT = 2, ATTEST_BFLOAT = 4, ATTEST_BOOL = 6 };

/* What attest_plugin_run returns. */
enum {
  ATTEST_OK = 0,
  ATTEST_UNSUPPORTED = 1, /* the plug-in does not offer what the contract asks for */
  ATTEST_ERROR = 2        /* it does, and failed */
};

/* A tensor under its name in the contract: "q", "k", "v", "mask", "out", "lse", "grad_q", ... */
typedef struct {
  const char* name;
  DLTensor tensor;
} AttestTensor;

/* One call. Everything in it belongs to the caller and is valid during the call only. */
typedef struct {
  uint32_t version;     /* ATTEST_PLUGIN_VERSION of the caller; later ones add fields at the end */
  const char* contract; /* JSON text with every field spelled out (docs/contract.md) */
  int32_t num_inputs;
  const AttestTensor* inputs; /* must not be written */
  /* Pre-allocated and full of junk: every output that the contract asks for, and `out` in any
   * case, so that nobody needs a place of their own. */
  int32_t num_outputs;
  const AttestTensor* outputs;
  int32_t threads; /* how many the plug-in may use */
  char* message;   /* room for one line that says why the result is not ATTEST_OK */
  size_t message_size;
} AttestCall;

/* JSON text: {"abi":1,"name":...,"version":...,"supports":{...},"arithmetic":{...}}; what is left
 * out is found out by trial (docs/plugins.md). The text must stay valid. */
ATTEST_PLUGIN_EXPORT const char* attest_plugin_info(void);

ATTEST_PLUGIN_EXPORT int attest_plugin_run(const AttestCall* call);

/* The tensor of that name, or NULL. */
static inline const DLTensor* AttestInput(const AttestCall* call, const char* name) {
  for (int32_t i = 0; i < call->num_inputs; ++i) {
    if (strcmp(call->inputs[i].name, name) == 0) return &call->inputs[i].tensor;
  }
  return NULL;
}
static inline const DLTensor* AttestOutput(const AttestCall* call, const char* name) {
  for (int32_t i = 0; i < call->num_outputs; ++i) {
    if (strcmp(call->outputs[i].name, name) == 0) return &call->outputs[i].tensor;
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTEST_PLUGIN_H_ */
