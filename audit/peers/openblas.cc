// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/openblas.h"

#include "audit/peers/shared_library.h"

namespace attest {

StatusOr<OpenBlas> OpenBlas::Load() {
  const StatusOr<SharedLibrary> library = SharedLibrary::Open(kOpenBlasLibrary);
  if (!library.ok()) return library.status();
  OpenBlas blas;
  char* (*config)() = nullptr;
  if (!library->Find("cblas_sgemm", &blas.sgemm) || !library->Find("cblas_dgemm", &blas.dgemm) ||
      !library->Find("openblas_get_config", &config) ||
      !library->Find("openblas_set_num_threads", &blas.set_threads)) {
    return NotFound(std::string(kOpenBlasLibrary) + ": not the functions of OpenBLAS");
  }
  blas.version = config();
  blas.changed_fp_state = library->changed_fp_state();
  return blas;
}

}  // namespace attest
