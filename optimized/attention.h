// SPDX-License-Identifier: Apache-2.0
// Forward attention in float: softmax(scale q k^T + bias) v under masks, on one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "core/contract.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

enum class AttentionAlgorithm {
  kMaterialised,        // a whole row of scores, softmax with the row maximum, then times v
  kMaterialisedOnline,  // the same with the one-pass (online) softmax
  kTiled,               // blocks of keys with running maximum, sum and output; no row of scores
};

// Inputs. B, Hq, Hkv, Tq, Tk, Dk, Dv as in core/contract.h; head h reads key/value head
// floor(h / (Hq/Hkv)). Strides are arbitrary (0 broadcasts) except where stated.
struct AttentionArgs {
  View<const float, 4> q;  // [B, Hq, Tq, Dk], last axis of stride 1
  View<const float, 4> k;  // [B, Hkv, Tk, Dk], last axis of stride 1
  View<const float, 4> v;  // [B, Hkv, Tk, Dv], last axis of stride 1

  std::optional<View<const std::uint8_t, 4>> mask;  // [B, Hq, Tq, Tk], nonzero: takes part
  std::optional<View<const float, 4>> bias;         // [B, Hq, Tq, Tk], -inf: does not take part

  const std::int32_t* kv_lengths = nullptr;  // [B] or null (Tk everywhere)
  const std::int32_t* q_lengths = nullptr;   // [B] or null (Tq everywhere)

  Causal causal = Causal::kNone;
  EmptyRow empty_row = EmptyRow::kZero;
  std::optional<double> scale;  // empty: 1/sqrt(Dk)
};

// Outputs, of any strides (0 only on axes of length <= 1), not overlapping the inputs or each
// other. Every element is written.
struct AttentionOutputs {
  View<float, 4> out;                     // [B, Hq, Tq, Dv]
  std::optional<View<float, 3>> lse;      // [B, Hq, Tq], natural logarithm
  std::optional<View<float, 4>> weights;  // [B, Hq, Tq, Tk]
};

// Semantics of docs/contract.md (score `dot`):
// - A key that is not allowed (mask, bias = -inf, causal, beyond a length) contributes nothing and
//   has weight exactly 0, whatever its k and v hold.
// - A row without any allowed key, rows beyond q_lengths included, follows `empty_row`: out 0, NaN
//   or the mean of v over all Tk keys (0 for Tk = 0); lse -inf, NaN, -inf; weights 0, NaN, 1/Tk.
// - A NaN or +inf score makes out, lse and the allowed weights of its row NaN; so do allowed scores
//   that are all -inf. An allowed weight of 0 times a NaN or infinite v is NaN.
//
// Sizes of 0 are allowed except for Dk, Dv and, where Hq > 0, Hkv. InvalidArgument names the
// argument that is wrong; Unsupported: a scale that is not 0 and not a normal float. Range: scores
// and sums of exp(s - m) |v| must not exceed the largest float (for kTiled the sum is not yet
// divided by l, hence n max|v| < 2^128 is enough).
Status AttentionForward(AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs);

}  // namespace attest
