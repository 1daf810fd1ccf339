// SPDX-License-Identifier: Apache-2.0
// OpenBLAS's matrix products, loaded while the program runs.
#pragma once

#include <string>

#include "core/status.h"

namespace attest {

inline constexpr char kOpenBlasLibrary[] = "libopenblas.so.0";

// The functions of cblas.h and OpenBLAS's own, which are used here.
enum CblasOrder : int { kCblasRowMajor = 101 };
enum CblasTranspose : int { kCblasNoTranspose = 111, kCblasTranspose = 112 };
template <class T>
using CblasGemm = void(CblasOrder order, CblasTranspose transpose_a, CblasTranspose transpose_b,
                       int m, int n, int k, T alpha, const T* a, int a_stride, const T* b,
                       int b_stride, T beta, T* c, int c_stride);

struct OpenBlas {
  // NotFound says what is missing.
  static StatusOr<OpenBlas> Load();

  CblasGemm<float>* sgemm = nullptr;
  CblasGemm<double>* dgemm = nullptr;
  void (*set_threads)(int threads) = nullptr;
  std::string version;  // "OpenBLAS 0.3.21 ... SkylakeX ...": with the kernels it chose
  bool changed_fp_state = false;
};

}  // namespace attest
