// SPDX-License-Identifier: Apache-2.0
// Products of small matrices, for training.
#pragma once

#include "core/tensor.h"

namespace attest {

// a[i, l] is at data[i * row + l * column]; a transposed matrix has the two exchanged.
template <class T>
struct Factor {
  const T* data = nullptr;
  Index row = 0;
  Index column = 1;
};

// c[m, n] += a[m, k] b[k, n]; b and c have rows of consecutive elements, b_row and c_row apart, and
// c overlaps neither. An element's bits depend on its row of a, its column of b and the SIMD target
// alone: its sum over l is taken in order, by fused multiply-adds where the target has them.
void AddProduct(Index m, Index n, Index k, const Factor<float>& a, const float* b, Index b_row,
                float* c, Index c_row);
void AddProduct(Index m, Index n, Index k, const Factor<double>& a, const double* b, Index b_row,
                double* c, Index c_row);

// The definition, for every other type.
template <class T>
void AddProduct(Index m, Index n, Index k, const Factor<T>& a, const T* b, Index b_row, T* c,
                Index c_row) {
  for (Index i = 0; i < m; ++i) {
    for (Index l = 0; l < k; ++l) {
      const T& factor = a.data[i * a.row + l * a.column];
      for (Index j = 0; j < n; ++j) c[i * c_row + j] += factor * b[l * b_row + j];
    }
  }
}

}  // namespace attest
