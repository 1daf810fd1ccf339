// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <cstdlib>

#include "bench/peers/peer.h"

namespace attest {
namespace {

// The kernels of OpenBLAS that suit this machine; null: as it chooses. Debian's OpenBLAS 0.3.21
// chooses SSE3 ones, eight times slower, on machines that are younger than it is.
const char* OpenBlasCore() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512bf16")) return "Cooperlake";
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

}  // namespace

std::vector<PeerLibrary> LoadPeers() {
  // Read when the libraries are loaded, or at the first call.
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  unsetenv("OPENBLAS_CORETYPE");
  unsetenv("OPENBLAS_L2_SIZE");
  if (const char* core = OpenBlasCore(); core != nullptr) setenv("OPENBLAS_CORETYPE", core, 1);
  // Peers that allocate in every call would otherwise pay for fresh pages each time.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  return {LoadEigen(), LoadOpenBlas(), LoadOneDnn(), LoadOnnxRuntime(), LoadGgml()};
}

}  // namespace attest
