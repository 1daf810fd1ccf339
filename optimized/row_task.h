// SPDX-License-Identifier: Apache-2.0
// One call of a row kernel: its arguments, what they say once for all, and the scratch of a thread.
// Private to optimized/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/attention.h"
#include "optimized/execution.h"
#include "optimized/row_scores.h"
#include "optimized/row_tile.h"

namespace attest {

template <class T>
struct RowTask {
  // `unit`: of optimized/row_scores.h.
  RowTask(const AttentionArgs& all_args, const AttentionOutputs& all_outputs, double unit,
          Carver& carver)
      : args(&all_args),
        outputs(&all_outputs),
        score(all_args, unit, carver),
        keys(all_args.k.shape[2]),
        v_step(Padded<T>(static_cast<std::size_t>(all_args.v.shape[3]))),
        blocks(CeilDivide(static_cast<std::size_t>(keys), kKeyBlock)),
        tiles(QueryTile::Count(all_args)) {}

  RowSource<T> KeysOf(const QueryTile& tile) const { return {args->k, tile.batch, tile.kv_head}; }
  RowSource<T> ValuesOf(const QueryTile& tile) const { return {args->v, tile.batch, tile.kv_head}; }

  const AttentionArgs* args;
  const AttentionOutputs* outputs;
  ScoreTask<T> score;
  Index keys;          // Tk
  std::size_t v_step;  // Dv, padded
  std::size_t blocks;  // of kKeyBlock keys
  std::size_t tiles;   // of kQueryRows rows
};

// What one thread writes on. Rows of scores have room for `row_keys` keys, a multiple of kKeyBlock.
template <class T>
struct RowScratch {
  RowScratch(const RowTask<T>& task, std::size_t row_keys, Carver& carver)
      : score_step(row_keys),
        raw(carver.Take<double>(task.score.q_dim)),
        scaled(carver.Take<T>(task.score.q_dim)),
        queries(carver.Take<T>(kQueryRows * Padded<T>(task.score.width))),
        hidden(carver.Take<T>(task.score.kind == ScoreKind::kAdditive ? task.score.width * kKeyGroup
                                                                      : 0)),
        keys(carver.Take<T>(kKeyGroup * Padded<T>(task.score.k_dim))),
        values(carver.Take<T>(kKeyGroup * task.v_step)),
        terms(carver.Take<T>(kKeyBlock)),
        weights(carver.Take<T>(kKeyBlock)),
        scores(carver.Take<T>(kQueryRows * row_keys)),
        allowed(carver.Take<std::uint8_t>(kQueryRows * row_keys)),
        block_out(carver.Take<T>(kQueryRows * task.v_step)),
        out(carver.Take<T>(kQueryRows * task.v_step)) {}

  std::size_t score_step;
  double* raw;            // a query
  T* scaled;              // a query
  T* queries;             // prepared
  T* hidden;              // additive: W_k k of a group of keys
  T* keys;                // a group, padded rows
  T* values;              // a group, padded rows
  T* terms;               // of a block: what is added to scores, or factors of weights
  T* weights;             // of a block
  T* scores;              // [kQueryRows, score_step], later weights
  std::uint8_t* allowed;  // [kQueryRows, score_step], where the rules select
  T* block_out;           // [kQueryRows, v_step]
  T* out;                 // [kQueryRows, v_step]
};

}  // namespace attest
