// SPDX-License-Identifier: Apache-2.0
// Row softmax and its building blocks, for any float tag of at most kMaxLanes lanes.
//
// Computes: y_j = exp(x_j - m) / l, l = sum_j exp(x_j - m), lse = m + ln l, with m = max_j x_j.
//   SoftmaxShifted: one pass for m, one for the exponentials and l, one that scales.
//   SoftmaxOnline: one pass over blocks of 64 for m and l together, l being rescaled by
//   exp(m_old - m_new) whenever a block raises the maximum, then one that recomputes the
//   exponentials and scales.
// Shapes: rows of n contiguous floats, no alignment, any n; y may be x itself (in place), any
//   other overlap is not allowed.
// Rounding points: x_j - m, exp (optimized/exp-inl.h), each addition of l, 1/l, the product of the
//   two, all to float; online also exp(m_old - m_new) and its product with l. lse is formed in
//   double from the float l and rounded once.
//   Reduction tree of l: running sum i (0 <= i < 64) takes x_i, x_(i+64), ... in this order, then
//   halves are added, i with i + 32, i + 16, ..., i + 1. It is the same for every target, so that
//   the bits depend on fused or unfused MulAdd only.
// Bound: docs/bounds.md, profile f32. u = 2^-24, B = ceil(n/64), R = max (m - x_j) over the j with
//   m - x_j <= 104 (the others have weights below 2^-150):
//     |y_j - exact| <= exact (e^H - 1) + 2^-148,  H = 2 (R + 2) u + (B + 9) u,
//     plus (R + 3 B) u online;  |lse - exact| <= H + u (|exact| + H).
// Measured: Softmax.StaysWithinItsBound of properties/softmax_test.cc prints the largest
//   error/bound: y 0.456, lse 0.810 (shifted), y 0.453, lse 0.802 (online), on every target.

#include <cstring>

#include "optimized/block.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_SOFTMAX_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_SOFTMAX_BLOCK_INL_H_
#undef ATTEST_OPTIMIZED_SOFTMAX_BLOCK_INL_H_
#else
#define ATTEST_OPTIMIZED_SOFTMAX_BLOCK_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE float ExpOfScalar(D d, float x) {
  return hn::GetLane(Exp(Fast(), d, hn::Set(d, x)));
}

// Largest of 64 floats. NaNs are skipped or returned, as the target's Max has it: the exponential
// of the NaN itself makes everything that depends on it NaN.
template <class D>
HWY_INLINE float MaxOfBlock(D d, const float* HWY_RESTRICT x) {
  hn::Vec<D> max = hn::LoadU(d, x);
  for (std::size_t i = hn::Lanes(d); i < kBlock; i += hn::Lanes(d)) {
    max = hn::Max(max, hn::LoadU(d, x + i));
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// y[i] = exp(x[i] - shift) and sums[i] += y[i] for i < 64; y may be x.
template <class D>
HWY_INLINE void ExpBlock(D d, const float* x, float shift, float* y, float* HWY_RESTRICT sums) {
  const hn::Vec<D> s = hn::Set(d, shift);
  for (std::size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const hn::Vec<D> e = Exp(Fast(), d, hn::Sub(hn::LoadU(d, x + i), s));
    hn::StoreU(e, d, y + i);
    hn::Store(hn::Add(hn::Load(d, sums + i), e), d, sums + i);
  }
}

// y[i] = exp(x[i] - shift) * inverse for i < 64; y may be x.
template <class D>
HWY_INLINE void NormaliseBlock(D d, const float* x, float shift, float inverse, float* y) {
  const hn::Vec<D> s = hn::Set(d, shift);
  for (std::size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const hn::Vec<D> e = Exp(Fast(), d, hn::Sub(hn::LoadU(d, x + i), s));
    hn::StoreU(hn::Mul(e, hn::Set(d, inverse)), d, y + i);
  }
}

// x[i] *= factor for i < n; n is a multiple of the vector length.
template <class D>
HWY_INLINE void ScaleInPlace(D d, float factor, std::size_t n, float* HWY_RESTRICT x) {
  const hn::Vec<D> f = hn::Set(d, factor);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  }
}

// Sum of 64 floats by halving: i + 32, i + 16, ..., i + 1. Overwrites them.
HWY_INLINE float SumOfBlock(float* HWY_RESTRICT x) {
  for (std::size_t half = kBlock / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) x[i] += x[i + half];
  }
  return x[0];
}

// A whole block at x, or the last n < 64 floats copied to `staged` and filled up with -inf, whose
// exponential is 0.
HWY_INLINE const float* StageBlock(const float* x, std::size_t n, float* HWY_RESTRICT staged) {
  if (n >= kBlock) return x;
  std::memcpy(staged, x, n * sizeof(float));
  for (std::size_t i = n; i < kBlock; ++i) staged[i] = -std::numeric_limits<float>::infinity();
  return staged;
}

// 1/l, and 0 for a row without any weight.
HWY_INLINE float InverseOfSum(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }

// y = softmax(x); returns lse. n = 0 or all -inf: y = 0, -inf. A NaN or +inf in x: all NaN.
template <class D>
float SoftmaxShifted(D d, const float* x, std::size_t n, float* y) {
  HWY_ALIGN float staged[kBlock];
  HWY_ALIGN float sums[kBlock] = {};
  float max = -std::numeric_limits<float>::infinity();
  hn::Vec<D> lane_max = hn::Set(d, max);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    lane_max = hn::Max(lane_max, hn::LoadU(d, x + i));
  }
  if (i < n)
    lane_max = hn::Max(lane_max, hn::Set(d, MaxOfBlock(d, StageBlock(x + i, n - i, staged))));
  max = hn::GetLane(hn::MaxOfLanes(d, lane_max));

  const float shift = Shift(max);
  for (i = 0; i + kBlock <= n; i += kBlock) ExpBlock(d, x + i, shift, y + i, sums);
  const std::size_t whole = i;
  if (whole < n) ExpBlock(d, StageBlock(x + i, n - i, staged), shift, staged, sums);

  const float sum = SumOfBlock(sums);
  const float inverse = InverseOfSum(sum);
  ScaleInPlace(d, inverse, whole, y);
  if (whole < n) {
    ScaleInPlace(d, inverse, kBlock, staged);
    std::memcpy(y + whole, staged, (n - whole) * sizeof(float));
  }
  return LogSumExp(shift, sum);
}

// The maximum so far and 64 running sums of exp(x - Shift(max)).
struct RunningSoftmax {
  HWY_ALIGN float sums[kBlock] = {};
  float max = -std::numeric_limits<float>::infinity();
};

// y = exp(x - shift) for a block of 64 scores, after `state` has been brought to the new maximum;
// returns the factor that what was accumulated before has to be multiplied with (1 mostly).
template <class D>
HWY_INLINE float UpdateRunning(D d, const float* x, float* y, RunningSoftmax& state) {
  float factor = 1.0f;
  const float block_max = MaxOfBlock(d, x);
  if (block_max > state.max) {
    factor = ExpOfScalar(d, state.max - block_max);
    state.max = block_max;
    ScaleInPlace(d, factor, kBlock, state.sums);
  }
  ExpBlock(d, x, Shift(state.max), y, state.sums);
  return factor;
}

// As SoftmaxShifted.
template <class D>
float SoftmaxOnline(D d, const float* x, std::size_t n, float* y) {
  HWY_ALIGN float staged[kBlock];
  HWY_ALIGN float exps[kBlock];
  RunningSoftmax state;
  for (std::size_t i = 0; i < n; i += kBlock) {
    UpdateRunning(d, StageBlock(x + i, n - i, staged), exps, state);
  }

  const float shift = Shift(state.max);
  const float sum = SumOfBlock(state.sums);
  const float inverse = InverseOfSum(sum);
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) NormaliseBlock(d, x + i, shift, inverse, y + i);
  if (i < n) {
    NormaliseBlock(d, StageBlock(x + i, n - i, staged), shift, inverse, staged);
    std::memcpy(y + i, staged, (n - i) * sizeof(float));
  }
  return LogSumExp(shift, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
