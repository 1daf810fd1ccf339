// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <cstdlib>

#include "bench/peers/peer.h"

namespace attest {

std::vector<PeerLibrary> LoadPeers() {
  // Read when the libraries are loaded, or at the first call.
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  unsetenv("OPENBLAS_CORETYPE");
  unsetenv("OPENBLAS_L2_SIZE");
  // Peers that allocate in every call would otherwise pay for fresh pages each time.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  return {LoadEigen(), LoadOpenBlas(), LoadOneDnn(), LoadOnnxRuntime(), LoadGgml()};
}

}  // namespace attest
