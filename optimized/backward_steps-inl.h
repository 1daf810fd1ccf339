// SPDX-License-Identifier: Apache-2.0
// The steps of the backward kernel (optimized/backward_task.h), chosen by mode.
//
// Computes, Shapes, Rounding points, Bound: optimized/backward_rows-inl.h (first pass), or
//   backward_given-inl.h in its place; backward_keys-inl.h (second pass), backward_sums-inl.h (what
//   is summed over both).
// Measured: `attest bench attention` for speed.

#include <algorithm>
#include <cstddef>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_STEPS_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_STEPS_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_STEPS_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_given-inl.h"
#include "optimized/backward_keys-inl.h"
#include "optimized/backward_rows-inl.h"
#include "optimized/backward_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
// The key/value heads of a chain, one after the other.
template <class Policy, class T>
void BlocksOfChain(Policy policy, const BackwardTask<T>& task, std::size_t index,
                   const BackwardScratch<T>& scratch) {
  const BackwardSizes& n = task.n;
  const std::size_t chain = index / n.parts;
  const std::size_t part = index % n.parts;
  if (task.v_a_sums != nullptr) {
    T* const sums = task.v_a_sums + index * n.features * kQueryBlock;
    std::fill(sums, sums + n.features * kQueryBlock, T{0});
  }
  for (std::size_t store = 0; store < n.stores(); ++store) {
    const std::size_t b = n.chain_of_batches ? 0 : store / n.kv_heads;
    const std::size_t g = n.chain_of_heads ? 0 : store % n.kv_heads;
    if (b * (n.chain_of_heads ? 1 : n.kv_heads) + g != chain) continue;
    KeysOfStore(policy, task, store, part, index, scratch);
  }
}

template <class Policy, class T>
void RunStep(Policy policy, const BackwardTask<T>& task, BackwardStep step, std::size_t index,
             std::size_t thread) {
  const BackwardScratch<T> scratch(task.n,
                                   Carver(reinterpret_cast<std::byte*>(task.Scratch(thread))));
  switch (step) {
    case BackwardStep::kKeys:
      return StageKeys(policy, task, index / task.n.key_blocks, index % task.n.key_blocks);
    case BackwardStep::kRows:
      return task.gradients.lse ? GivenRowsOfBlock(policy, task, index, scratch)
                                : RowsOfBlock(policy, task, index, scratch);
    case BackwardStep::kBlocks:
      return BlocksOfChain(policy, task, index, scratch);
    case BackwardStep::kQueries:
      return WriteQueries(policy, task, index, scratch);
    case BackwardStep::kParameters:
      return WriteParameters(policy, task, index, scratch);
    case BackwardStep::kRest:
      return WriteVectors(task);
    case BackwardStep::kBias:
      return WriteBias(task, index);
  }
}

// Accurate differs from Fast in its type, double, alone.
template <class T>
void RunStepOfMode(const BackwardTask<T>& task, BackwardStep step, std::size_t index,
                   std::size_t thread) {
  if (task.mode == Mode::kReproducible) {
    RunStep(Reproducible(), task, step, index, thread);
  } else {
    RunStep(Fast(), task, step, index, thread);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
