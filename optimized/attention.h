// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU: the whole contract, forward and backward, in three modes.
#pragma once

#include <cstdint>
#include <optional>

#include "core/contract.h"
#include "core/status.h"
#include "optimized/execution.h"
#include "optimized/mode.h"
#include "optimized/tensor_ref.h"

namespace attest {

enum class AttentionAlgorithm {
  kMaterialised,           // a whole row of scores, softmax by the row maximum, then times v
  kMaterialisedOnline,     // the same with the one-pass (online) softmax
  kMaterialisedTwoPass,    // the same with the two-pass softmax, which needs no maximum
  kMaterialisedUnshifted,  // the same with exp(s) as it is: overflows from s = 88.7 on; a specimen
  kTiled,                  // blocks of queries and keys with an online softmax; no row of scores
  kDecode,                 // a few queries against many keys: row by row, keys split over threads
  kAutomatic,              // kDecode for up to kDecodeRows queries of a key/value head, else kTiled
};

// Rows (queries x heads that share a key/value head) up to which kAutomatic takes kDecode.
inline constexpr Index kDecodeRows = 8;

// Inputs. B, Hq, Hkv, Tq, Tk, Dq, Dk, Dv as in core/contract.h; head h reads key/value head
// floor(h / (Hq/Hkv)), in place. Element types: q, k, v and the parameters of the score have one,
// `dtype`, out of f64, f32, bf16, f16; bias, slopes, sinks and centers have it or the wide type
// (f32; f64 for f64). Strides are arbitrary, 0 (broadcast) and negative ones included.
struct AttentionArgs {
  Input<4> q;  // [B, Hq, Tq, Dq]
  Input<4> k;  // [B, Hkv, Tk, Dk]
  Input<4> v;  // [B, Hkv, Tk, Dv]

  ScoreKind score = ScoreKind::kDot;
  std::optional<double> scale;  // empty: 1/sqrt(Dk) for dot, 1 for the others
  double softcap = 0.0;         // 0: none
  std::optional<Input<2>> w;    // general: [Dq, Dk]
  std::optional<Input<2>> w_q;  // additive: [A, Dq]
  std::optional<Input<2>> w_k;  // additive: [A, Dk]
  std::optional<Input<1>> b;    // additive: [A], may be missing
  std::optional<Input<1>> v_a;  // additive: [A]

  std::optional<Input<4>> mask;          // BOOL [B, Hq, Tq, Tk], nonzero: takes part
  std::optional<Input<4>> bias;          // [B, Hq, Tq, Tk], -inf: does not take part
  std::optional<Input<1>> alibi_slopes;  // [Hq]
  std::optional<Input<1>> sinks;         // [Hq], -inf: none
  std::optional<Input<4>> keep;          // BOOL [B, Hq, Tq, Tk], of dropout
  double dropout_rate = 0.0;             // only with `keep`
  std::optional<Input<1>> kv_lengths;    // I32 [B]
  std::optional<Input<1>> q_lengths;     // I32 [B]
  std::optional<Input<2>> q_documents;   // I32 [B, Tq]; only together with kv_documents
  std::optional<Input<2>> kv_documents;  // I32 [B, Tk]
  std::optional<Input<3>> local_center;  // [B, Hq, Tq]; only together with `local`
  std::optional<LocalWindow> local;

  Causal causal = Causal::kNone;
  Window window;
  EmptyRow empty_row = EmptyRow::kZero;
};

// Outputs, of any strides (0 only on axes of length <= 1), not overlapping the inputs or each
// other. Every element is written. `out` and `weights` may be of any floating type (rounded once
// from the accumulation type), `lse` of the wide type.
struct AttentionOutputs {
  std::optional<Output<4>> out;      // [B, Hq, Tq, Dv]
  std::optional<Output<3>> lse;      // [B, Hq, Tq], natural logarithm
  std::optional<Output<4>> weights;  // [B, Hq, Tq, Tk]
};

// Semantics of docs/contract.md:
// - A key that is not allowed (mask, bias = -inf, causal, window, documents, lengths) contributes
//   nothing and has weight exactly 0, whatever its k and v hold.
// - A row without any allowed key, rows beyond q_lengths included, follows `empty_row`: out 0, NaN
//   or the mean of v over all Tk keys (0 for Tk = 0); lse -inf, NaN, -inf; weights 0, NaN, 1/Tk.
//   With a sink it is 0 under every policy, and lse is the sink.
// - A NaN or +inf score makes out, lse and the allowed weights of its row NaN; so do allowed scores
//   that are all -inf, unless there is a sink. An allowed weight of 0 times a NaN or infinite v is
//   NaN.
//
// Accumulation is in f32 (f64 for f64). Sizes of 0 are allowed except for Dq, Dk, Dv and, where Hq
// > 0, Hkv. InvalidArgument names the argument that is wrong. Range: scores times log2(e) and sums
// of exp(s - m) |v| over 192 keys must not exceed the largest number of the accumulation type.
template <class ModePolicy>
Status AttentionForward(ModePolicy, AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs, Execution& execution);

// The same with the mode chosen while running.
Status AttentionForward(Mode mode, AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs, Execution& execution);

// Gradients of L = sum grad_out * out + sum grad_lse * lse with respect to whatever is asked for.
struct AttentionGradients {
  std::optional<Input<4>> grad_out;  // [B, Hq, Tq, Dv], of dtype
  std::optional<Input<3>> grad_lse;  // [B, Hq, Tq], of dtype or the wide type

  // What AttentionForward gave for the same arguments: both or neither. With them nothing but the
  // weights is computed again, p = 2^(s - lse log2(e)), and delta = sum out grad_out; that is two
  // products less of seven. The errors of the lse and the out, as rounded, enter: docs/bounds.md.
  std::optional<Input<4>> out;  // [B, Hq, Tq, Dv], of any floating type
  std::optional<Input<3>> lse;  // [B, Hq, Tq], of the wide type

  std::optional<Output<4>> grad_q, grad_k, grad_v;  // shapes of q, k, v
  // The shape that the bias has before broadcasting: axes of length 1 are summed over.
  std::optional<Output<4>> grad_bias;
  std::optional<Output<1>> grad_sinks;
  std::optional<Output<2>> grad_w, grad_w_q, grad_w_k;
  std::optional<Output<1>> grad_b, grad_v_a;
};

// Recomputes the weights block by block from the rows' LSE (given, or else computed here first);
// deterministic: the bits do not depend on the number of threads. Gradients of empty rows are 0.
// A given lse of -inf is that of an empty row; NaN or +inf, or an out that is not finite, makes the
// row as if its scores were NaN.
template <class ModePolicy>
Status AttentionBackward(ModePolicy, const AttentionArgs& args, const AttentionGradients& gradients,
                         Execution& execution);
Status AttentionBackward(Mode mode, const AttentionArgs& args, const AttentionGradients& gradients,
                         Execution& execution);

}  // namespace attest
