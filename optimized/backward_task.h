// SPDX-License-Identifier: Apache-2.0
// One call of AttentionBackward as its kernels see it: sizes, staged tensors, what is asked for.
// Private to optimized/.
//
// A call is a sequence of steps (BackwardStep), each a loop over independent indices. All sums have
// an order that the sizes alone decide: neither threads nor SIMD targets change it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/contract.h"
#include "optimized/attention.h"
#include "optimized/execution.h"
#include "optimized/forward_task.h"
#include "optimized/head_rules.h"

namespace attest {

// Queries are taken in blocks, whatever the SIMD target: 64 are whole tiles on each. Keys:
// kKeyBlock.
inline constexpr std::size_t kQueryBlock = 64;
// A block of scores has a row of 64 queries for each key, 80 elements apart: a power of two would
// let the rows of the broadcast operand compete for the same sets of the cache.
inline constexpr std::size_t kBlockStep = 80;
inline constexpr std::size_t kBlockElements = kKeyBlock * kBlockStep;

enum class BackwardStep {
  kKeys,     // (b, g, key block): stages k and v
  kRows,     // (b, h, query block): stages q and grad_out; maximum, denominator and delta of rows
  kBlocks,   // (chain, part): the gradients of blocks of keys, and of the queries, part by part
  kQueries,  // (b, h, query block): sums the parts, writes grad_q
  kParameters,  // (parameter, 6 rows of it): writes grad_w, grad_w_q, grad_w_k
  kRest,        // one index: grad_b, grad_v_a, grad_sinks
  kBias,        // (row of the bias): writes grad_bias
};

// Sizes of a call. "Features" are what scores are made of: elements of k for `dot` and `general`
// (there of W^T q), hidden units for `additive`.
struct BackwardSizes {
  std::size_t batch = 0, q_heads = 0, kv_heads = 0, group = 0;
  std::size_t q_len = 0, kv_len = 0, q_dim = 0, k_dim = 0, v_dim = 0, features = 0;
  // Rounded up to whole vectors of 64 bytes.
  std::size_t q_step = 0, k_step = 0, v_step = 0, feature_step = 0;
  std::size_t query_blocks = 0;  // of a head
  std::size_t key_blocks = 0;    // of a key/value head
  std::size_t q_rows = 0;        // query_blocks * kQueryBlock
  // Part p of a head has key blocks p, p + parts, ...: more work for threads where heads are few.
  std::size_t parts = 1;
  // Key/value heads that add to the same elements of grad_bias are one chain, taken in order.
  std::size_t chains = 0;
  bool chain_of_batches = false, chain_of_heads = false;

  std::size_t heads() const { return batch * q_heads; }
  std::size_t stores() const { return batch * kv_heads; }
};

// Keys that the 64 rows of a query block have in common, and in all.
struct BlockRanges {
  KeyRange common;
  KeyRange all;
};

template <class T>
struct BackwardTask {
  Mode mode = Mode::kFast;
  AttentionArgs args;
  AttentionGradients gradients;
  BackwardSizes n;
  std::size_t threads = 1;

  double scale = 1.0;
  double feature_scale =
      1.0;  // what queries are multiplied with: scale log2(e), or scale / softcap
  bool parameters_finite = true;
  bool wants_queries = false;  // grad_q or a parameter's gradient that needs it
  bool wants_keys = false;
  std::size_t bias_shape[4] = {1, 1, 1, 1};  // of grad_bias

  // Parameters, zeros if not finite. Projections have rows of whole vectors.
  T* to_features = nullptr;        // general: W [Dq, Dk]; additive: W_q transposed, [Dq, A]
  T* from_features = nullptr;      // general: W transposed, [Dk, Dq]; additive: W_q, [A, Dq]
  T* key_to_features = nullptr;    // additive: W_k transposed, [Dk, A]
  T* key_from_features = nullptr;  // additive: W_k, [A, Dk]
  T* b = nullptr;                  // additive: [A]
  T* v_a = nullptr;                // additive: [A]
  T* scaled_v_a = nullptr;         // times feature_scale

  // Of a (b, g): Tk rows.
  T* keys = nullptr;                   // features, feature_step apart
  T* given_keys = nullptr;             // k, k_step apart; additive only, else `keys`
  T* values = nullptr;                 // v_step apart
  T* key_features = nullptr;           // gradient of the features; additive only
  std::uint8_t* bad_keys = nullptr;    // k or v of the key is not finite
  std::uint8_t* bad_blocks = nullptr;  // [key_blocks]: some key of the block is bad
  // Of a (b, h): q_rows rows, zeros beyond Tq.
  T* queries = nullptr;        // features, feature_step apart
  T* given_queries = nullptr;  // q, q_step apart; `queries` for dot
  T* query_blocks = nullptr;   // features times feature_scale, transposed: blocks of [features][64]
  T* grads = nullptr;          // grad_out, v_step apart
  T* grad_blocks = nullptr;    // the same, transposed: blocks of [Dv][64]
  T* shifts = nullptr;         // of the row's scores: m in units of log2(e); NaN: poisoned
  T* deltas = nullptr;         // delta - grad_lse
  KeyRange* ranges = nullptr;
  BlockRanges* block_ranges = nullptr;  // [query_blocks]
  T* sink_shares = nullptr;             // [query_blocks]: the block's part of grad_sinks
  T* query_sums = nullptr;  // [parts][b, h]: gradient of the features, feature_step apart

  T* bias_sums = nullptr;  // grad_bias, dense
  T* v_a_sums = nullptr;   // [chain, part][A][64]

  std::byte* scratch = nullptr;  // [threads][scratch_bytes]
  std::size_t scratch_bytes = 0;

  T* Scratch(std::size_t thread) const {
    return reinterpret_cast<T*>(scratch + thread * scratch_bytes);
  }
};

// A thread's scratch; which arrays are used when, the kernels say.
template <class T>
struct BackwardScratch {
  T* weights = nullptr;  // [key][kBlockStep], as are the next four
  T* grads = nullptr;    // dS
  T* terms = nullptr;
  T* factors = nullptr;
  T* slopes = nullptr;
  T* rows = nullptr;        // [64][largest row or key block]
  T* more_rows = nullptr;   // the same
  T* key_sums = nullptr;    // [key][feature_step]
  T* value_sums = nullptr;  // [key][v_step]

  BackwardScratch(const BackwardSizes& n, Carver carver);
  static std::size_t Bytes(const BackwardSizes& n);
};

// Sizes of `args`, which have been checked, for type T.
template <class T>
BackwardSizes SizesOf(const AttentionArgs& args, const AttentionGradients& gradients);

// Points the task's arrays into what `carver` hands out.
template <class T>
void CarveTask(Carver& carver, BackwardTask<T>* task);

// Reads scale and parameters into the task, whose arrays exist.
template <class T>
void LoadParameters(BackwardTask<T>* task);

std::size_t IndicesOf(const BackwardSizes& n, const AttentionGradients& gradients,
                      BackwardStep step);

// One index of a step, on the SIMD target that dispatch chooses.
void RunBackwardStep(const BackwardTask<float>& task, BackwardStep step, std::size_t index,
                     std::size_t thread);
void RunBackwardStep(const BackwardTask<double>& task, BackwardStep step, std::size_t index,
                     std::size_t thread);

}  // namespace attest
