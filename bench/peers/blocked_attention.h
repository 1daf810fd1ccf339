// SPDX-License-Identifier: Apache-2.0
// Attention on any library's sgemm: the best that a program with a fast matrix product can do.
#pragma once

#include <functional>

#include "bench/peers/peer.h"

namespace attest {

// C [m, n] = alpha A B, row-major: A [m, k], B [k, n], or [n, k] where transposed.
struct Product {
  bool transpose_b;
  Index m, n, k;
  float alpha;
  const float* a;
  Index a_stride;
  const float* b;
  Index b_stride;
  float* c;
  Index c_stride;
};
using MultiplyFunction = std::function<Status(const Product& product)>;

// For each block of 128 queries: scores by one product (of the keys that the block sees), the
// exponentials of its rows in place, a second product with the values, and each row divided by its
// sum.
Peer BlockedAttention(const std::string& name, MultiplyFunction multiply);

}  // namespace attest
