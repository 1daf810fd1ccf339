// SPDX-License-Identifier: Apache-2.0
// Attention of few queries against many keys: the rows that share a key/value head go over its keys
// and values together, once.
//
// Computes: blocks of 192 keys, each with its maximum m_b, l_b = sum 2^(s - m_b) and o_b = sum
//   2^(s - m_b) v, merged in ascending order into m, l, o: m' = max(m, m_b), both parts times 2^(m
//   - m') and 2^(m_b - m'). A finite sink is one more block with l_b = 1, o_b = 0. out = o / l, lse
//   = ln 2 (m + log2 l), weights = 2^(s - m) / l from a second look at the scores.
// Shapes: those of AttentionArgs, any strides and alignment; 16-bit and strided k and v are widened
//   32 rows at a time. Scratch: for one thread that of 16 rows of 192 scores; with the keys cut
//   into parts, Dv + 2 numbers for each row and block.
// Rounding points: those of optimized/row_block-inl.h; m - m', its power of two, l_b 2^(.) and
//   o_b 2^(.), the MulAdd with l and o; 1/l and its product with o; lse in double and once.
//   Accumulation in float, for f64 and Accurate in double.
//   Reproducible: a row's bits depend on the row alone, not on threads, parts, or rows beside it.
// Bound: docs/bounds.md, profile f32 (f64 for f64).
// Measured: RowKernels.* of properties/row_kernels_test.cc.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "optimized/decode_task.h"
#include "optimized/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/row_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// The result of a row's blocks so far.
template <class T>
struct Running {
  T max = -std::numeric_limits<T>::infinity();
  T sum = 0;
};

template <class Policy, class D, class T = hn::TFromD<D>>
HWY_INLINE T PowerOfScalar(Policy policy, D d, T y) {
  return hn::GetLane(WeightOf(policy, d, hn::Set(d, y)));
}

// Takes a block's (block_max, block_sum, block_out) into a row's (running, out), `columns` padded.
template <class Policy, class D, class T = hn::TFromD<D>>
HWY_NOINLINE void Merge(Policy policy, D d, T block_max, T block_sum,
                        const T* HWY_RESTRICT block_out, std::size_t columns, Running<T>& running,
                        T* HWY_RESTRICT out) {
  const T max = block_max > running.max ? block_max : running.max;
  const hn::Vec<D> alpha = hn::Set(d, PowerOfScalar(policy, d, running.max - ShiftOf(max)));
  const hn::Vec<D> beta = hn::Set(d, PowerOfScalar(policy, d, block_max - ShiftOf(max)));
  running.max = max;
  running.sum = hn::GetLane(
      MulAdd(policy, d, hn::Set(d, running.sum), alpha, hn::Mul(hn::Set(d, block_sum), beta)));
  for (std::size_t c = 0; c < columns; c += hn::Lanes(d)) {
    const hn::Vec<D> added = hn::Mul(hn::Load(d, block_out + c), beta);
    hn::Store(MulAdd(policy, d, hn::Load(d, out + c), alpha, added), d, out + c);
  }
}

// Merges the sink, and writes out and lse of a row.
template <class Policy, class D, class T = hn::TFromD<D>>
void EndRow(Policy policy, D d, const RowTask<T>& task, Index batch, const QueryRow& row,
            Running<T> running, const T* zeros, T* out, RowEnd<T>& end) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const double sink = row.rules->sink();
  if (sink != kNone) {
    Merge(policy, d, static_cast<T>(sink * kLog2E), T{1}, zeros, task.v_step, running, out);
  }
  end = RowEnd<T>();
  if (running.sum == T{0}) {  // neither a sink nor a score above -inf
    if (!row.rules->AnyAllowed(row.i)) {
      WriteEmptyRow(*task.args, *task.outputs, batch, row);
      end.done = true;
      return;
    }
    running.sum = std::numeric_limits<T>::quiet_NaN();
  }
  end.max = ShiftOf(running.max);
  end.inverse = T{1} / running.sum;
  const double log2 =
      static_cast<double>(running.max) + std::log2(static_cast<double>(running.sum));
  FinishRow(*task.outputs, batch, row, end.inverse, log2 * kLn2, out);
}

// Blocks of one part of one tile.
template <class Policy, class D, class T = hn::TFromD<D>>
void DecodePart(Policy policy, D d, const DecodeTask<T>& task, std::size_t tile_index,
                std::size_t part, const RowScratch<T>& scratch) {
  const RowTask<T>& rows = task.rows;
  const QueryTile tile(*rows.args, tile_index);
  const RowSource<T> keys = rows.KeysOf(tile);
  const RowSource<T> values = rows.ValuesOf(tile);
  const bool merges = task.parts == 1;
  PrepareQueries(policy, d, rows, tile, scratch);
  Running<T> running[kQueryRows];
  std::fill(scratch.out, scratch.out + tile.count * rows.v_step, T{0});
  for (std::size_t b = task.FirstBlockOf(part); b < task.FirstBlockOf(part + 1); ++b) {
    const BlockSpan span = SpanOf(rows, tile, b);
    T max[kQueryRows], sum[kQueryRows];
    std::fill(scratch.block_out, scratch.block_out + tile.count * rows.v_step, T{0});
    if (span.empty()) {
      if (merges) continue;
      std::fill(max, max + kQueryRows, -std::numeric_limits<T>::infinity());
      std::fill(sum, sum + kQueryRows, T{0});
    } else {
      const Index first = span.start + static_cast<Index>(span.begin);
      ScoreBlock(policy, d, rows, tile, keys, span, NextRows<T>{&values, first}, scratch,
                 scratch.scores, scratch.allowed);
      SoftmaxBlock(policy, d, rows, tile, span, scratch, scratch.scores, max, sum);
      const Index after = span.start + static_cast<Index>(kKeyBlock);
      ValueBlock(policy, d, rows, tile, values, span, NextRows<T>{&keys, after}, scratch,
                 scratch.scores, scratch.allowed, scratch.block_out);
    }
    for (std::size_t r = 0; r < tile.count; ++r) {
      const T* const block_out = scratch.block_out + r * rows.v_step;
      if (merges) {
        Merge(policy, d, max[r], sum[r], block_out, rows.v_step, running[r],
              scratch.out + r * rows.v_step);
        continue;
      }
      const std::size_t at = task.RowAt(tile_index, r) * rows.blocks + b;
      task.block_max[at] = max[r];
      task.block_sum[at] = sum[r];
      std::copy(block_out, block_out + rows.v_step, task.block_out + at * rows.v_step);
    }
  }
  if (!merges) return;
  std::fill(scratch.block_out, scratch.block_out + rows.v_step, T{0});
  for (std::size_t r = 0; r < tile.count; ++r) {
    EndRow(policy, d, rows, tile.batch, tile.rows[r], running[r], scratch.block_out,
           scratch.out + r * rows.v_step, task.ends[task.RowAt(tile_index, r)]);
  }
}

// Merges the blocks of all parts of one tile.
template <class Policy, class D, class T = hn::TFromD<D>>
void MergeTile(Policy policy, D d, const DecodeTask<T>& task, std::size_t tile_index,
               const RowScratch<T>& scratch) {
  const RowTask<T>& rows = task.rows;
  const QueryTile tile(*rows.args, tile_index);
  for (std::size_t r = 0; r < tile.count; ++r) {
    Running<T> running;
    std::fill(scratch.out, scratch.out + rows.v_step, T{0});
    for (std::size_t b = 0; b < rows.blocks; ++b) {
      const std::size_t at = task.RowAt(tile_index, r) * rows.blocks + b;
      Merge(policy, d, task.block_max[at], task.block_sum[at], task.block_out + at * rows.v_step,
            rows.v_step, running, scratch.out);
    }
    std::fill(scratch.block_out, scratch.block_out + rows.v_step, T{0});
    EndRow(policy, d, rows, tile.batch, tile.rows[r], running, scratch.block_out, scratch.out,
           task.ends[task.RowAt(tile_index, r)]);
  }
}

// The weights of one row in one block, from its final scores, which are overwritten.
template <class Policy, class D, class T = hn::TFromD<D>>
void WeightsOfRow(Policy policy, D d, const RowTask<T>& task, Index batch, const QueryRow& row,
                  const BlockSpan& span, const RowEnd<T>& end, const std::uint8_t* allowed,
                  T* factors, T* HWY_RESTRICT scores) {
  ExponentiateRow(policy, d, span, end.max, scores);
  for (std::size_t j = span.begin; j < span.end; ++j) scores[j] *= end.inverse;
  if (row.rules->gaussian()) {
    ScaleRow(task, row, span, /*with_dropout=*/false, factors, scores);
  }
  WriteWeights(task, batch, row, span.start, allowed, scores);
}

// The weights of one part of one tile.
template <class Policy, class D, class T = hn::TFromD<D>>
void WeightsPart(Policy policy, D d, const DecodeTask<T>& task, std::size_t tile_index,
                 std::size_t part, const RowScratch<T>& scratch) {
  const RowTask<T>& rows = task.rows;
  const QueryTile tile(*rows.args, tile_index);
  const RowSource<T> keys = rows.KeysOf(tile);
  PrepareQueries(policy, d, rows, tile, scratch);
  for (std::size_t b = task.FirstBlockOf(part); b < task.FirstBlockOf(part + 1); ++b) {
    const BlockSpan span = SpanOf(rows, tile, b);
    const Index after = span.start + static_cast<Index>(kKeyBlock);
    ScoreBlock(policy, d, rows, tile, keys, span, NextRows<T>{&keys, after}, scratch,
               scratch.scores, scratch.allowed);
    for (std::size_t r = 0; r < tile.count; ++r) {
      const RowEnd<T>& end = task.ends[task.RowAt(tile_index, r)];
      if (end.done) continue;
      WeightsOfRow(policy, d, rows, tile.batch, tile.rows[r], span, end,
                   scratch.allowed + r * scratch.score_step, scratch.terms,
                   scratch.scores + r * scratch.score_step);
    }
  }
}

template <class Policy, class T>
void DecodeStepOf(Policy policy, DecodeStep step, const DecodeTask<T>& task, std::size_t item,
                  const RowScratch<T>& scratch) {
  const Tag<T> d;
  switch (step) {
    case DecodeStep::kBlocks:
      return DecodePart(policy, d, task, item / task.parts, item % task.parts, scratch);
    case DecodeStep::kMerge:
      return MergeTile(policy, d, task, item, scratch);
    case DecodeStep::kWeights:
      return WeightsPart(policy, d, task, item / task.parts, item % task.parts, scratch);
  }
}

void DecodeFastF32(DecodeStep step, const DecodeTask<float>& task, std::size_t item,
                   const RowScratch<float>& scratch) {
  DecodeStepOf(Fast(), step, task, item, scratch);
}
void DecodeFastF64(DecodeStep step, const DecodeTask<double>& task, std::size_t item,
                   const RowScratch<double>& scratch) {
  DecodeStepOf(Fast(), step, task, item, scratch);
}
void DecodeReproducibleF32(DecodeStep step, const DecodeTask<float>& task, std::size_t item,
                           const RowScratch<float>& scratch) {
  DecodeStepOf(Reproducible(), step, task, item, scratch);
}
void DecodeReproducibleF64(DecodeStep step, const DecodeTask<double>& task, std::size_t item,
                           const RowScratch<double>& scratch) {
  DecodeStepOf(Reproducible(), step, task, item, scratch);
}
void DecodeAccurate(DecodeStep step, const DecodeTask<double>& task, std::size_t item,
                    const RowScratch<double>& scratch) {
  DecodeStepOf(Accurate(), step, task, item, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(DecodeFastF32);
HWY_EXPORT(DecodeFastF64);
HWY_EXPORT(DecodeReproducibleF32);
HWY_EXPORT(DecodeReproducibleF64);
HWY_EXPORT(DecodeAccurate);

void RunItem(Fast, DecodeStep step, const DecodeTask<float>& task, std::size_t item,
             const RowScratch<float>& scratch) {
  HWY_DYNAMIC_DISPATCH(DecodeFastF32)(step, task, item, scratch);
}
void RunItem(Fast, DecodeStep step, const DecodeTask<double>& task, std::size_t item,
             const RowScratch<double>& scratch) {
  HWY_DYNAMIC_DISPATCH(DecodeFastF64)(step, task, item, scratch);
}
void RunItem(Reproducible, DecodeStep step, const DecodeTask<float>& task, std::size_t item,
             const RowScratch<float>& scratch) {
  HWY_DYNAMIC_DISPATCH(DecodeReproducibleF32)(step, task, item, scratch);
}
void RunItem(Reproducible, DecodeStep step, const DecodeTask<double>& task, std::size_t item,
             const RowScratch<double>& scratch) {
  HWY_DYNAMIC_DISPATCH(DecodeReproducibleF64)(step, task, item, scratch);
}
void RunItem(Accurate, DecodeStep step, const DecodeTask<double>& task, std::size_t item,
             const RowScratch<double>& scratch) {
  HWY_DYNAMIC_DISPATCH(DecodeAccurate)(step, task, item, scratch);
}

template <class T, class Policy>
void Decode(Policy policy, const AttentionArgs& args, const AttentionOutputs& outputs,
            Execution& execution, Index parts) {
  const std::size_t threads = execution.pool.threads();
  Carver task_size, scratch_size;
  const DecodeTask<T> measured(args, outputs, threads, parts, task_size);
  RowScratch<T>(measured.rows, kKeyBlock, scratch_size);
  std::byte* const memory =
      execution.workspace.Reserve(task_size.used() + threads * scratch_size.used());
  Carver carver(memory);
  DecodeTask<T> task(args, outputs, threads, parts, carver);
  task.rows.score.Read(args);

  const auto run = [&](DecodeStep step, std::size_t items) {
    execution.pool.Run(items, [&](std::size_t item, std::size_t thread) {
      Carver own(memory + task_size.used() + thread * scratch_size.used());
      RunItem(policy, step, task, item, RowScratch<T>(task.rows, kKeyBlock, own));
    });
  };
  run(DecodeStep::kBlocks, task.rows.tiles * task.parts);
  if (task.parts > 1) run(DecodeStep::kMerge, task.rows.tiles);
  if (outputs.weights) run(DecodeStep::kWeights, task.rows.tiles * task.parts);
}

}  // namespace

template <class Policy>
Status ForwardDecode(Policy policy, const AttentionArgs& args, const AttentionOutputs& outputs,
                     Execution& execution, Index parts) {
  if (args.q.shape[0] == 0 || args.q.shape[1] == 0 || args.q.shape[2] == 0) return Status();
  if (kModeOf<Policy> == Mode::kAccurate || args.q.dtype == DType::kF64) {
    Decode<double>(policy, args, outputs, execution, parts);
  } else if constexpr (kModeOf<Policy> != Mode::kAccurate) {
    Decode<float>(policy, args, outputs, execution, parts);
  }
  return Status();
}

template Status ForwardDecode(Fast, const AttentionArgs&, const AttentionOutputs&, Execution&,
                              Index);
template Status ForwardDecode(Reproducible, const AttentionArgs&, const AttentionOutputs&,
                              Execution&, Index);
template Status ForwardDecode(Accurate, const AttentionArgs&, const AttentionOutputs&, Execution&,
                              Index);

}  // namespace attest
#endif  // HWY_ONCE
