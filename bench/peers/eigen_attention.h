// SPDX-License-Identifier: Apache-2.0
// One head of attention in Eigen, compiled once for each instruction set.
#pragma once

#include <cstdint>

namespace attest {

// Row-major and dense.
struct EigenAttentionArgs {
  std::int64_t queries, keys, dim;
  bool causal;
  float scale;
  const float* q;  // [queries, dim]
  const float* k;  // [keys, dim]
  const float* v;  // [keys, dim]
  float* scores;   // [queries, keys], overwritten
  float* out;      // [queries, dim]
};

using EigenAttentionFunction = void(const EigenAttentionArgs& args);

EigenAttentionFunction EigenAttentionBaseline;
EigenAttentionFunction EigenAttentionAvx2;
EigenAttentionFunction EigenAttentionAvx512;

}  // namespace attest
