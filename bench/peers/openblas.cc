// SPDX-License-Identifier: Apache-2.0
// OpenBLAS: sgemm on blocks of queries.
#include "audit/peers/openblas.h"

#include "bench/peers/blocked_attention.h"

namespace attest {

PeerLibrary LoadOpenBlas() {
  PeerLibrary peer{.name = "OpenBLAS", .licence = "BSD-3-Clause"};
  const StatusOr<OpenBlas> blas = OpenBlas::Load();
  if (!blas.ok()) {
    peer.missing = blas.status().message();
    return peer;
  }
  blas->set_threads(1);
  peer.version = blas->version;
  peer.changed_fp_state = blas->changed_fp_state;
  CblasGemm<float>* const sgemm = blas->sgemm;
  peer.peers.push_back(BlockedAttention("openblas sgemm", [sgemm](const Product& p) {
    sgemm(kCblasRowMajor, kCblasNoTranspose, p.transpose_b ? kCblasTranspose : kCblasNoTranspose,
          static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), p.alpha, p.a,
          static_cast<int>(p.a_stride), p.b, static_cast<int>(p.b_stride), 0.0f, p.c,
          static_cast<int>(p.c_stride));
    return Status();
  }));
  return peer;
}

}  // namespace attest
