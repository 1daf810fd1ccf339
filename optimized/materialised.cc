// SPDX-License-Identifier: Apache-2.0
// Attention that holds whole rows of scores: scores, softmax, times v.
//
// Computes: p = softmax(s) over the allowed keys and the sink, by one of the algorithms of
//   optimized/softmax-inl.h; out = sum p v, lse. Keys that are not allowed have the score -inf, the
//   sink is one more score at the end of the row.
// Shapes: those of AttentionArgs, any strides and alignment. Scratch: for each thread 16 rows of
//   Tk + 1 scores.
// Rounding points: those of optimized/row_block-inl.h with the unit 1, of the softmax, each weight,
//   its product with the dropout and local factors, and one MulAdd of a weight and a value a key,
//   in ascending order of all keys from 0. Accumulation in float, for f64 and Accurate in double.
// Bound: docs/bounds.md, profile f32 (f64 for f64); none for the unshifted softmax beyond exp's
// range. Measured: RowKernels.* of properties/row_kernels_test.cc.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "optimized/row_kernels.h"
#include "optimized/row_task.h"
#include "optimized/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/materialised.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/row_block-inl.h"
#include "optimized/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// Softmax of a row in place; its log-sum-exp.
template <class Policy, class D, class T = hn::TFromD<D>>
double SoftmaxInPlace(Policy policy, D d, SoftmaxAlgorithm algorithm, T* row, std::size_t n) {
  switch (algorithm) {
    case SoftmaxAlgorithm::kUnshifted:
      return SoftmaxRow<SoftmaxAlgorithm::kUnshifted>(policy, d, row, n, row, NextRow());
    case SoftmaxAlgorithm::kShifted:
      return SoftmaxRow<SoftmaxAlgorithm::kShifted>(policy, d, row, n, row, NextRow());
    case SoftmaxAlgorithm::kOnline:
      return SoftmaxRow<SoftmaxAlgorithm::kOnline>(policy, d, row, n, row, NextRow());
    case SoftmaxAlgorithm::kTwoPass:
      return SoftmaxRow<SoftmaxAlgorithm::kTwoPass>(policy, d, row, n, row, NextRow());
  }
  return 0.0;
}

// All scores of a tile; -inf in blocks and groups that no row may look at.
template <class Policy, class D, class T = hn::TFromD<D>>
void ScoreRows(Policy policy, D d, const RowTask<T>& task, const QueryTile& tile,
               const RowScratch<T>& scratch) {
  const RowSource<T> keys = task.KeysOf(tile);
  PrepareQueries(policy, d, task, tile, scratch);
  std::fill(scratch.scores, scratch.scores + tile.count * scratch.score_step,
            -std::numeric_limits<T>::infinity());
  for (std::size_t b = 0; b < task.blocks; ++b) {
    const BlockSpan span = SpanOf(task, tile, b);
    const Index after = span.start + static_cast<Index>(kKeyBlock);
    ScoreBlock(policy, d, task, tile, keys, span, NextRows<T>{&keys, after}, scratch,
               scratch.scores + b * kKeyBlock, scratch.allowed + b * kKeyBlock);
  }
}

// The scores of a row become its weights, which are written if they are asked for, and then
// multiplied by the factors of the rules. False for an empty row, which is written here.
template <class Policy, class D, class T = hn::TFromD<D>>
bool WeighRow(Policy policy, D d, SoftmaxAlgorithm algorithm, const RowTask<T>& task, Index batch,
              const QueryRow& row, const std::uint8_t* allowed, const RowScratch<T>& scratch,
              T* weights, double* lse) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto keys = static_cast<std::size_t>(task.keys);
  const bool sinks = row.rules->sink() != -kInfinity;
  if (sinks) weights[keys] = static_cast<T>(row.rules->sink());
  *lse = SoftmaxInPlace(policy, d, algorithm, weights, keys + (sinks ? 1 : 0));
  if (*lse == -kInfinity) {
    if (!row.rules->AnyAllowed(row.i)) {
      WriteEmptyRow(*task.args, *task.outputs, batch, row);
      return false;
    }
    *lse = kNan;  // allowed scores, all of them -inf
    std::fill(weights, weights + keys, static_cast<T>(kNan));
  }
  for (std::size_t b = 0; b < task.blocks; ++b) {
    BlockSpan span;
    span.start = static_cast<Index>(b * kKeyBlock);
    span.end = SizeAt(task, span.start, kKeyBlock);
    T* const p = weights + b * kKeyBlock;
    if (task.outputs->weights) {
      std::copy(p, p + span.end, scratch.weights);
      if (row.rules->gaussian()) {
        ScaleRow(task, row, span, /*with_dropout=*/false, scratch.terms, scratch.weights);
      }
      WriteWeights(task, batch, row, span.start, allowed + b * kKeyBlock, scratch.weights);
    }
    if (row.rules->scales()) {
      ScaleRow(task, row, span, /*with_dropout=*/true, scratch.terms, p);
    }
  }
  return true;
}

template <class Policy, class T>
void MaterialisedTile(Policy policy, SoftmaxAlgorithm algorithm, const RowTask<T>& task,
                      std::size_t index, const RowScratch<T>& scratch) {
  const Tag<T> d;
  const QueryTile tile(*task.args, index);
  const RowSource<T> values = task.ValuesOf(tile);
  ScoreRows(policy, d, task, tile, scratch);
  double lse[kQueryRows];
  bool done[kQueryRows];
  for (std::size_t r = 0; r < tile.count; ++r) {
    const std::size_t at = r * scratch.score_step;
    done[r] = !WeighRow(policy, d, algorithm, task, tile.batch, tile.rows[r], scratch.allowed + at,
                        scratch, scratch.scores + at, &lse[r]);
  }
  std::fill(scratch.out, scratch.out + tile.count * task.v_step, T{0});
  for (std::size_t b = 0; b < task.blocks && task.outputs->out; ++b) {
    const BlockSpan span = SpanOf(task, tile, b);
    const Index after = span.start + static_cast<Index>(kKeyBlock);
    ValueBlock(policy, d, task, tile, values, span, NextRows<T>{&values, after}, scratch,
               scratch.scores + b * kKeyBlock, scratch.allowed + b * kKeyBlock, scratch.out);
  }
  for (std::size_t r = 0; r < tile.count; ++r) {
    if (!done[r]) {
      FinishRow(*task.outputs, tile.batch, tile.rows[r], T{1}, lse[r],
                scratch.out + r * task.v_step);
    }
  }
}

void MaterialisedFastF32(SoftmaxAlgorithm algorithm, const RowTask<float>& task, std::size_t tile,
                         const RowScratch<float>& scratch) {
  MaterialisedTile(Fast(), algorithm, task, tile, scratch);
}
void MaterialisedFastF64(SoftmaxAlgorithm algorithm, const RowTask<double>& task, std::size_t tile,
                         const RowScratch<double>& scratch) {
  MaterialisedTile(Fast(), algorithm, task, tile, scratch);
}
void MaterialisedReproducibleF32(SoftmaxAlgorithm algorithm, const RowTask<float>& task,
                                 std::size_t tile, const RowScratch<float>& scratch) {
  MaterialisedTile(Reproducible(), algorithm, task, tile, scratch);
}
void MaterialisedReproducibleF64(SoftmaxAlgorithm algorithm, const RowTask<double>& task,
                                 std::size_t tile, const RowScratch<double>& scratch) {
  MaterialisedTile(Reproducible(), algorithm, task, tile, scratch);
}
void MaterialisedAccurate(SoftmaxAlgorithm algorithm, const RowTask<double>& task, std::size_t tile,
                          const RowScratch<double>& scratch) {
  MaterialisedTile(Accurate(), algorithm, task, tile, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(MaterialisedFastF32);
HWY_EXPORT(MaterialisedFastF64);
HWY_EXPORT(MaterialisedReproducibleF32);
HWY_EXPORT(MaterialisedReproducibleF64);
HWY_EXPORT(MaterialisedAccurate);

void RunTile(Fast, SoftmaxAlgorithm algorithm, const RowTask<float>& task, std::size_t tile,
             const RowScratch<float>& scratch) {
  HWY_DYNAMIC_DISPATCH(MaterialisedFastF32)(algorithm, task, tile, scratch);
}
void RunTile(Fast, SoftmaxAlgorithm algorithm, const RowTask<double>& task, std::size_t tile,
             const RowScratch<double>& scratch) {
  HWY_DYNAMIC_DISPATCH(MaterialisedFastF64)(algorithm, task, tile, scratch);
}
void RunTile(Reproducible, SoftmaxAlgorithm algorithm, const RowTask<float>& task, std::size_t tile,
             const RowScratch<float>& scratch) {
  HWY_DYNAMIC_DISPATCH(MaterialisedReproducibleF32)(algorithm, task, tile, scratch);
}
void RunTile(Reproducible, SoftmaxAlgorithm algorithm, const RowTask<double>& task,
             std::size_t tile, const RowScratch<double>& scratch) {
  HWY_DYNAMIC_DISPATCH(MaterialisedReproducibleF64)(algorithm, task, tile, scratch);
}
void RunTile(Accurate, SoftmaxAlgorithm algorithm, const RowTask<double>& task, std::size_t tile,
             const RowScratch<double>& scratch) {
  HWY_DYNAMIC_DISPATCH(MaterialisedAccurate)(algorithm, task, tile, scratch);
}

template <class T, class Policy>
void Materialise(Policy policy, SoftmaxAlgorithm algorithm, const AttentionArgs& args,
                 const AttentionOutputs& outputs, Execution& execution) {
  const std::size_t threads = execution.pool.threads();
  Carver task_size, scratch_size;
  const RowTask<T> measured(args, outputs, 1.0, task_size);
  // Room for the sink.
  const std::size_t row_keys =
      CeilDivide(static_cast<std::size_t>(measured.keys) + 1, kKeyBlock) * kKeyBlock;
  RowScratch<T>(measured, row_keys, scratch_size);
  std::byte* const memory =
      execution.workspace.Reserve(task_size.used() + threads * scratch_size.used());
  Carver carver(memory);
  RowTask<T> task(args, outputs, 1.0, carver);
  task.score.Read(args);
  execution.pool.Run(task.tiles, [&](std::size_t tile, std::size_t thread) {
    Carver own(memory + task_size.used() + thread * scratch_size.used());
    RunTile(policy, algorithm, task, tile, RowScratch<T>(task, row_keys, own));
  });
}

std::optional<SoftmaxAlgorithm> SoftmaxOf(AttentionAlgorithm algorithm) {
  switch (algorithm) {
    case AttentionAlgorithm::kMaterialised:
      return SoftmaxAlgorithm::kShifted;
    case AttentionAlgorithm::kMaterialisedOnline:
      return SoftmaxAlgorithm::kOnline;
    case AttentionAlgorithm::kMaterialisedTwoPass:
      return SoftmaxAlgorithm::kTwoPass;
    case AttentionAlgorithm::kMaterialisedUnshifted:
      return SoftmaxAlgorithm::kUnshifted;
    case AttentionAlgorithm::kTiled:
    case AttentionAlgorithm::kDecode:
    case AttentionAlgorithm::kAutomatic:
      break;
  }
  return std::nullopt;
}

}  // namespace

template <class Policy>
Status ForwardMaterialised(Policy policy, AttentionAlgorithm algorithm, const AttentionArgs& args,
                           const AttentionOutputs& outputs, Execution& execution) {
  const std::optional<SoftmaxAlgorithm> softmax = SoftmaxOf(algorithm);
  if (!softmax) return Unsupported("attention: the algorithm holds no row of scores");
  if (args.q.shape[0] == 0 || args.q.shape[1] == 0 || args.q.shape[2] == 0) return Status();
  if (kModeOf<Policy> == Mode::kAccurate || args.q.dtype == DType::kF64) {
    Materialise<double>(policy, *softmax, args, outputs, execution);
  } else if constexpr (kModeOf<Policy> != Mode::kAccurate) {
    Materialise<float>(policy, *softmax, args, outputs, execution);
  }
  return Status();
}

template Status ForwardMaterialised(Fast, AttentionAlgorithm, const AttentionArgs&,
                                    const AttentionOutputs&, Execution&);
template Status ForwardMaterialised(Reproducible, AttentionAlgorithm, const AttentionArgs&,
                                    const AttentionOutputs&, Execution&);
template Status ForwardMaterialised(Accurate, AttentionAlgorithm, const AttentionArgs&,
                                    const AttentionOutputs&, Execution&);

}  // namespace attest
#endif  // HWY_ONCE
