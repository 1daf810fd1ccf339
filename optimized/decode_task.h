// SPDX-License-Identifier: Apache-2.0
// One call of the decode kernel. Private to optimized/.
#pragma once

#include <algorithm>
#include <cstddef>

#include "optimized/row_task.h"

namespace attest {

// The loops of a call, in this order: over parts of tiles, tiles, parts of tiles.
enum class DecodeStep { kBlocks, kMerge, kWeights };

// What the second look at the scores, for the weights, needs of a row.
template <class T>
struct RowEnd {
  T max = 0;
  T inverse = 0;      // 1 / sum; NaN makes the allowed weights NaN
  bool done = false;  // an empty row: its weights are written
};

// Blocks of keys are cut into `parts` parts. With one part a tile's blocks are merged as they come;
// with more, every block's maximum, sum and product with v is kept and merged afterwards, in the
// same order and hence to the same bits.
template <class T>
struct DecodeTask {
  DecodeTask(const AttentionArgs& args, const AttentionOutputs& outputs, std::size_t threads,
             Index wanted_parts, Carver& carver);

  std::size_t FirstBlockOf(std::size_t part) const { return part * rows.blocks / parts; }
  std::size_t RowAt(std::size_t tile, std::size_t r) const { return tile * tile_rows + r; }

  RowTask<T> rows;
  std::size_t tile_rows;  // of the largest tile
  std::size_t parts;

  RowEnd<T>* ends;  // [tiles, tile_rows]
  // [tiles, tile_rows, blocks]; null for one part.
  T* block_max = nullptr;
  T* block_sum = nullptr;
  T* block_out = nullptr;  // [.., v_step]
};

template <class T>
DecodeTask<T>::DecodeTask(const AttentionArgs& args, const AttentionOutputs& outputs,
                          std::size_t threads, Index wanted_parts, Carver& carver)
    : rows(args, outputs, kLog2E, carver) {
  const auto group_rows =
      static_cast<std::size_t>(args.q.shape[1] / args.k.shape[1] * args.q.shape[2]);
  tile_rows = std::min(kQueryRows, group_rows);
  // Enough parts for every thread to have two or three; few, so that a pass over keys is long.
  parts = threads == 1 || rows.tiles >= 2 * threads ? 1 : CeilDivide(3 * threads, rows.tiles);
  if (wanted_parts > 0) parts = static_cast<std::size_t>(wanted_parts);
  parts = std::max<std::size_t>(std::min(parts, rows.blocks), 1);
  const std::size_t all_rows = rows.tiles * tile_rows;
  ends = carver.Take<RowEnd<T>>(all_rows);
  if (parts == 1) return;
  block_max = carver.Take<T>(all_rows * rows.blocks);
  block_sum = carver.Take<T>(all_rows * rows.blocks);
  block_out = carver.Take<T>(all_rows * rows.blocks * rows.v_step);
}

}  // namespace attest
