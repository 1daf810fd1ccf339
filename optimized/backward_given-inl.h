// SPDX-License-Identifier: Apache-2.0
// In place of the first pass of the backward kernel: what is to be known of a row, from the output
// and the LSE of a forward pass.
//
// Computes: shift = LSE log2(e), so that E = 2^(x - shift) of the second pass is the weight itself
//   and its denominator is 1; delta - grad_lse = sum_c out_c grad_out_c - grad_lse. Of the sink:
//   2^(sink log2(e) - shift) (grad_lse - delta).
// Shapes: 64 queries (optimized/backward_task.h).
// Rounding points: the shift once, from a product in double; a product and a sum for each element
//   of the output, 64 bytes of sums each of every so manieth element, then the sums in pairs.
// Bound: docs/bounds.md, "Gradients": weights of an LSE that was rounded, delta from the output.
// Measured: by the kernels that use it.
//
// Special rows. An LSE of -infinity is that of an empty row: the shift becomes +infinity, the
// weights 0. Poisoned as in backward_rows-inl.h is a row whose LSE is NaN or +infinity, or whose
// output is not finite.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_GIVEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_GIVEN_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_GIVEN_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_GIVEN_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum_c a[c] b[c] of rows of whole vectors of 64 bytes, zeros at their ends, in an order that no
// target changes.
template <class T>
HWY_INLINE T DotOfRows(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::size_t padded) {
  constexpr std::size_t kSums = 64 / sizeof(T);
  T sums[kSums] = {};
  for (std::size_t c = 0; c < padded; c += kSums) {
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = sums[i] + a[c + i] * b[c + i];
  }
  for (std::size_t width = kSums / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] = sums[i] + sums[i + width];
  }
  return sums[0];
}

// Index (b, h, query block) of the step.
template <class Policy, class T>
void GivenRowsOfBlock(Policy policy, const BackwardTask<T>& task, std::size_t index,
                      const BackwardScratch<T>& scratch) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const BackwardSizes& n = task.n;
  const BlockView<T> view = ViewOfQueries(task, index);
  const auto b = static_cast<Index>(view.head / n.q_heads);
  const auto h = static_cast<Index>(view.head % n.q_heads);
  RowInputs inputs[kQueryBlock];
  StageQueries(policy, task, view, scratch, inputs);

  const Input<4>& out = *task.gradients.out;
  const Input<3>& lse = *task.gradients.lse;
  const HeadSink sink(view.rules);
  const bool any_bad_key = HasBadKey(task, view);
  const std::size_t row = view.Row(n);
  T* const shifts = task.shifts + row;
  T* const deltas = task.deltas + row;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < kQueryBlock; ++r) {
    shifts[r] = std::numeric_limits<T>::infinity();
    deltas[r] = 0;
    if (r >= view.Rows(n)) continue;
    const auto i = static_cast<Index>(view.query + r);
    const double given = ReadElement(lse.dtype, At(lse, b, h, i));
    const KeyRange& range = task.ranges[row + r];
    T delta = 0;
    if (range.begin < range.end) {
      inputs[r].finite &=
          LoadFinite(out.dtype, At(out, b, h, i), out.strides[3], n.v_dim, n.v_step, scratch.rows);
      delta = DotOfRows(scratch.rows, task.grads + (row + r) * n.v_step, n.v_step);
    }
    if (sink.bad || !(given < kInfinity) || (!inputs[r].finite && view.rules.AnyAllowed(i)) ||
        (any_bad_key && TakesBadKey(task, view, i))) {
      shifts[r] = std::numeric_limits<T>::quiet_NaN();
    } else if (given != -kInfinity) {
      shifts[r] = static_cast<T>(given * kLog2E);
      deltas[r] = delta - static_cast<T>(inputs[r].grad_lse);
    }
  }

  T share = 0;  // of grad_sinks
  if (sink.exists || sink.bad) {
    HWY_ALIGN T weights[kQueryBlock];
    const auto scaled = hn::Set(d, static_cast<T>(sink.value * kLog2E));
    for (std::size_t q = 0; q < kQueryBlock; q += lanes) {
      hn::Store(WeightOf(policy, d, hn::Sub(scaled, hn::Load(d, shifts + q))), d, weights + q);
    }
    for (std::size_t r = 0; r < view.Rows(n); ++r) {
      share = share - (std::isnan(shifts[r]) ? shifts[r] : weights[r] * deltas[r]);
    }
  }
  task.sink_shares[index] = share;
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
