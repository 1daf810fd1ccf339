// SPDX-License-Identifier: Apache-2.0
// OpenBLAS: sgemm on blocks of queries.
#include "bench/peers/blocked_attention.h"
#include "bench/peers/shared_library.h"

namespace attest {
namespace {

// The functions of cblas.h and OpenBLAS's own, which are used here.
enum CblasOrder : int { kRowMajor = 101 };
enum CblasTranspose : int { kNoTranspose = 111, kTranspose = 112 };
using Sgemm = void(CblasOrder order, CblasTranspose transpose_a, CblasTranspose transpose_b, int m,
                   int n, int k, float alpha, const float* a, int a_stride, const float* b,
                   int b_stride, float beta, float* c, int c_stride);
using GetText = char*();
using SetThreads = void(int threads);

}  // namespace

PeerLibrary LoadOpenBlas() {
  PeerLibrary peer{.name = "OpenBLAS", .licence = "BSD-3-Clause"};
  const StatusOr<SharedLibrary> library = SharedLibrary::Open("libopenblas.so.0");
  if (!library.ok()) {
    peer.missing = library.status().message();
    return peer;
  }
  Sgemm* sgemm = nullptr;
  GetText* config = nullptr;
  SetThreads* set_threads = nullptr;
  if (!library->Find("cblas_sgemm", &sgemm) || !library->Find("openblas_get_config", &config) ||
      !library->Find("openblas_set_num_threads", &set_threads)) {
    peer.missing = "libopenblas.so.0: not the functions of OpenBLAS";
    return peer;
  }
  set_threads(1);
  peer.version = config();  // "OpenBLAS 0.3.21 ... SkylakeX ...": with the kernel it chose
  peer.changed_fp_state = library->changed_fp_state();
  peer.peers.push_back(BlockedAttention("openblas sgemm", [sgemm](const Product& p) {
    sgemm(kRowMajor, kNoTranspose, p.transpose_b ? kTranspose : kNoTranspose, static_cast<int>(p.m),
          static_cast<int>(p.n), static_cast<int>(p.k), p.alpha, p.a, static_cast<int>(p.a_stride),
          p.b, static_cast<int>(p.b_stride), 0.0f, p.c, static_cast<int>(p.c_stride));
    return Status();
  }));
  return peer;
}

}  // namespace attest
