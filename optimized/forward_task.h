// SPDX-License-Identifier: Apache-2.0
// One (batch, query head) as the tiled forward kernel sees it, and how its inputs are staged.
// Private to optimized/.
#pragma once

#include <cstddef>

#include "optimized/attention.h"
#include "optimized/head_rules.h"

namespace attest {

// Keys are taken in blocks of 192, counted from key 0, whatever the SIMD target: the order of every
// sum is that of the block. A multiple of tile-inl.h's kTileRows; 192 x 64 floats are 48 KB.
inline constexpr std::size_t kKeyBlock = 192;

// Values are packed in panels of 6 columns (tile-inl.h's kTileRows): panel p holds columns 6p to
// 6p + 5 of every key, [Tk][6]; the last one what is left, [Tk][Dv % 6]. The broadcast operand of
// the product is then contiguous; rows whose step is a power of two would compete for the same sets
// of the cache (measured: 77% of the peak instead of 98%).
inline constexpr std::size_t kPanelWidth = 6;

// A multiple of the lanes of a tile's vectors on every target.
inline constexpr std::size_t kProjectionStep = 64;

inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr double kLn2 = 0.69314718055994530942;

// S is the type of everything that is computed: float, or double for f64 and in mode Accurate.
template <class S>
struct HeadTask {
  HeadRules rules;
  Index q_len = 0;
  std::size_t kv_len = 0;
  std::size_t q_dim = 0;  // Dq
  std::size_t width = 0;  // of a row of keys: Dk, or A for additive scores
  std::size_t v_dim = 0;

  Input<2> q;           // [Tq, Dq], as given
  double factor = 1.0;  // of q (of v_a for additive): scale log2(e), or scale / softcap
  double cap = 0.0;     // softcap log2(e); 0: none

  ScoreKind score = ScoreKind::kDot;
  const S* w = nullptr;    // general: [Dq, Dk]
  const S* w_q = nullptr;  // additive: [A, Dq]
  const S* b = nullptr;    // additive: [A] or null
  const S* v_a = nullptr;  // additive: [A], times factor

  const S* keys = nullptr;  // key j: keys[j * key_step], width elements; additive: W_k k_j
  std::size_t key_step = 0;
  const S* panels = nullptr;  // of values
  Input<2> v;                 // [Tk, Dv], as given

  EmptyRow empty_row = EmptyRow::kZero;
  Output<2> out;      // [Tq, Dv]; null: not asked for
  Output<1> lse;      // [Tq], likewise
  Output<2> weights;  // [Tq, Tk], likewise
};

// What the kernels of one mode and type offer; chosen for the SIMD target on every
// call.
template <class S>
struct ForwardKernels {
  // Queries that one call of `rows` takes.
  std::size_t (*query_rows)();
  // Bytes of scratch that it needs.
  std::size_t (*scratch)(const HeadTask<S>& task);
  // Rows [first, first + query_rows()) of the task, as far as they exist.
  void (*rows)(const HeadTask<S>& task, Index first, std::byte* scratch);
  // Packs keys [first, first + count) of v [Tk, Dv] into panels; `row` has room for Dv elements.
  void (*pack)(const Input<2>& v, std::size_t first, std::size_t count, S* row, S* panels);
  // projected[j] = W_k k_j, [count, A], for rows of keys of Dk elements; w_k_t is W_k transposed,
  // [Dk, padded], with `padded` A rounded up to a multiple of kProjectionStep and zeros there.
  void (*project)(const S* keys, std::size_t key_step, std::size_t count, std::size_t k_dim,
                  const S* w_k_t, std::size_t width, std::size_t padded, S* projected);
};

// W is the precision of weights: float with double scores in mode Accurate for tensors other than
// f64, else S.
template <class ModePolicy, class S, class W>
const ForwardKernels<S>& KernelsOf();

}  // namespace attest
