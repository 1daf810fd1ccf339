// SPDX-License-Identifier: Apache-2.0
// The sum of the exponentials of a row, by each algorithm: the first half of every softmax.
//
// Computes: shift and sum with sum_j exp(x_j) = sum e^shift (kTwoPass: sum 2^shift).
//   kUnshifted: shift = 0. kShifted: the maximum of the row. kOnline: the maximum so far, block
//   after block of 64; the sums are multiplied by exp(m_old - m_new) when a block raises it.
//   kTwoPass: exp(x_j) = p 2^n with 0.7 < p < 1.42 for each element, sums of p under the largest n
//   so far; a row whose maximum is so large or so small that n ln 2 is not exact is done as
//   kShifted. A maximum of -inf counts as 0, so that exp(-inf - shift) is 0 and not NaN.
// Shapes: rows of n contiguous elements, no alignment, any n.
// Rounding points: those of the exponential and of x_j - shift (Accurate keeps what it loses), with
//   Fast and Reproducible of float also the product with log2 e; each addition (Accurate: none that
//   counts, TwoSum keeps what it loses); online the factor and its product with the sums.
//   Reduction tree: running sum i (0 <= i < 64) takes elements i, i + 64, ... in this order, then
//   halves are added, i with i + 32, i + 16, ..., i + 1: the same for every target.
// Bound: docs/functions.md, "Softmax": relative error of the sum below e^H_sum - 1.
// Measured: properties/softmax_test.cc, through the functions of optimized/softmax-inl.h.
#include <hwy/cache_control.h>

#include <cmath>
#include <cstring>

#include "optimized/block.h"
#include "optimized/softmax.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_SOFTMAX_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_SOFTMAX_SUM_INL_H_
#undef ATTEST_OPTIMIZED_SOFTMAX_SUM_INL_H_
#else
#define ATTEST_OPTIMIZED_SOFTMAX_SUM_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/element-inl.h"
#include "optimized/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum_j exp(x_j) = (sum + sum_low) e^shift, or 2^shift where `binary`.
template <class T>
struct RowSum {
  T shift = 0;
  T sum = 0;
  T sum_low = 0;
  bool binary = false;
};

// Rows to come, whose cache lines are fetched while this one is computed; may be null.
struct NextRow {
  const void* x = nullptr;
  const void* y = nullptr;
};

// a + b = sum + error exactly (Knuth).
template <class V>
HWY_INLINE V TwoSum(V a, V b, V& error) {
  const V sum = hn::Add(a, b);
  const V b_part = hn::Sub(sum, a);
  error = hn::Add(hn::Sub(a, hn::Sub(sum, b_part)), hn::Sub(b, b_part));
  return sum;
}

// exp(x - shift) for x <= shift.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> ExpOfDifference(Policy policy, D d, hn::Vec<D> x, hn::Vec<D> shift) {
  using T = hn::TFromD<D>;
  if constexpr (kModeOf<Policy> == Mode::kAccurate) {
    hn::Vec<D> low;
    const hn::Vec<D> high = TwoSum(x, hn::Neg(shift), low);
    const auto matters = hn::Gt(high, hn::Set(d, ExpConstants<T>::kLowest));
    return Exp(policy, d, high, hn::IfThenElseZero(matters, low));
  } else if constexpr (std::is_same_v<T, float>) {
    const hn::Vec<D> difference = hn::Sub(x, shift);
    return Exp2(policy, d, hn::Mul(difference, hn::Set(d, ExpConstants<float>::kLog2E)));
  } else {
    return Exp(policy, d, hn::Sub(x, shift));
  }
}

// exp(x) = p 2^n, 0.7 < p < 1.42.
template <class D>
struct Extended {
  hn::Vec<D> p;
  hn::Vec<D> n;
  hn::Vec<D> shifted;  // n as ScaleInHalves takes it
};

// Where n ln 2 is exact: arguments between -kReach and kReach, and rows whose maximum lies between
// kLowestMax and kReach, so that all below -kReach have weight 0.
template <class T>
struct ExtendedRange;
template <>
struct ExtendedRange<float> {
  static constexpr float kReach = 350.0f;
  static constexpr float kLowestMax = -240.0f;
};
template <>
struct ExtendedRange<double> {
  static constexpr double kReach = 2800.0;
  static constexpr double kLowestMax = -2000.0;
};

template <class Policy, class D>
HWY_INLINE Extended<D> ExtendedExp(Policy policy, D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  x = ClampBelow(d, hn::Set(d, -ExtendedRange<T>::kReach), x);
  const ReducedArgument<D> r = ReduceByLn2(d, x);
  const hn::Vec<D> one = hn::Set(d, T{1});
  const hn::Vec<D> y = hn::Add(one, r.high);
  const hn::Vec<D> low =
      hn::Add(hn::Sub(r.high, hn::Sub(y, one)), ExpTail(policy, d, r.high, r.low));
  return {hn::Add(y, low), r.n, r.shifted};
}

// x 2^n for an integer n <= 0; gradual underflow.
template <class D>
HWY_INLINE hn::Vec<D> ScaleDown(D d, hn::Vec<D> x, hn::Vec<D> n) {
#if ATTEST_HAS_SCALE_INSTRUCTIONS
  return Scale(d, x, n);
#else
  using T = hn::TFromD<D>;
  const hn::Vec<D> least = hn::Set(d, sizeof(T) == sizeof(float) ? T{-200} : T{-1200});
  return ScaleInHalves(d, x, hn::Add(ClampBelow(d, least, n), hn::Set(d, FloatBits<T>::kShifter)));
#endif
}

// 64 running sums; `low` is used by Accurate alone.
template <class D>
struct RunningSums {
  static constexpr std::size_t kVectors = kBlock / hn::MaxLanes(D());
  hn::Vec<D> high[kVectors];
  hn::Vec<D> low[kVectors];
};

template <class D>
HWY_INLINE void SetZero(D d, RunningSums<D>& sums) {
  for (std::size_t u = 0; u < RunningSums<D>::kVectors; ++u)
    sums.high[u] = sums.low[u] = hn::Zero(d);
}

template <class Policy, class V>
HWY_INLINE void AddTo(Policy /*policy*/, V e, V& high, V& low) {
  if constexpr (kModeOf<Policy> == Mode::kAccurate) {
    V error;
    high = TwoSum(high, e, error);
    low = hn::Add(low, error);
  } else {
    high = hn::Add(high, e);
  }
}

// The tree over the 64 running sums. Overwrites them.
template <class Policy, class D>
HWY_INLINE void AddHalves(Policy policy, D d, RunningSums<D>& sums, RowSum<hn::TFromD<D>>& row) {
  using T = hn::TFromD<D>;
  constexpr bool kAccurate = kModeOf<Policy> == Mode::kAccurate;
  for (std::size_t half = RunningSums<D>::kVectors / 2; half > 0; half /= 2) {
    for (std::size_t u = 0; u < half; ++u) {
      AddTo(policy, sums.high[u + half], sums.high[u], sums.low[u]);
      if (kAccurate) sums.low[u] = hn::Add(sums.low[u], sums.low[u + half]);
    }
  }
  const hn::CappedTag<T, 1> d1;
  HWY_ALIGN T high[hn::MaxLanes(d)];
  HWY_ALIGN T low[hn::MaxLanes(d)];
  hn::Store(sums.high[0], d, high);
  hn::Store(sums.low[0], d, low);
  for (std::size_t half = hn::Lanes(d) / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      auto h = hn::Set(d1, high[i]), l = hn::Set(d1, low[i]);
      AddTo(policy, hn::Set(d1, high[i + half]), h, l);
      high[i] = hn::GetLane(h);
      if (kAccurate) low[i] = hn::GetLane(l) + low[i + half];
    }
  }
  row.sum = high[0];
  if (!kAccurate) return;
  row.sum = high[0] + low[0];
  row.sum_low = std::isfinite(row.sum) ? low[0] - (row.sum - high[0]) : T{0};
}

// A whole block at x, or the last n < 64 elements copied to `staged` and filled up with -inf, whose
// exponential is 0.
template <class Element>
HWY_INLINE const Element* StageElements(const Element* x, std::size_t n,
                                        Element* HWY_RESTRICT staged) {
  if (n >= kBlock) return x;
  std::memcpy(staged, x, n * sizeof(Element));
  for (std::size_t i = n; i < kBlock; ++i) staged[i] = MinusInfinity<Element>();
  return staged;
}

// Largest of 64 elements in each lane. NaNs are skipped or returned, as the target's Max has it:
// the exponential of the NaN itself makes everything that depends on it NaN.
template <class D, class Element>
HWY_INLINE hn::Vec<D> MaxOfElements(D d, const Element* x, hn::Vec<D> max) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  hn::Vec<D> other = LoadElements(d, x);
  for (std::size_t i = kLanes; i < kBlock; i += 2 * kLanes) {
    max = hn::Max(max, LoadElements(d, x + i));
    if (i + kLanes < kBlock) other = hn::Max(other, LoadElements(d, x + i + kLanes));
  }
  return hn::Max(max, other);
}

template <class D, class Element>
HWY_INLINE hn::TFromD<D> MaxOfRow(D d, const Element* x, std::size_t n) {
  using T = hn::TFromD<D>;
  HWY_ALIGN Element staged[kBlock];
  hn::Vec<D> max = hn::Set(d, MinusInfinity<T>());
  for (std::size_t i = 0; i < n; i += kBlock) {
    max = MaxOfElements(d, StageElements(x + i, n - i, staged), max);
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

template <class Element>
HWY_INLINE void FetchBlock(const void* row, std::size_t i) {
  if (row == nullptr) return;
  const char* from = static_cast<const char*>(row) + i * sizeof(Element);
  for (std::size_t byte = 0; byte < kBlock * sizeof(Element); byte += 64) {
    hwy::Prefetch(from + byte);
  }
}

// exp(x_i - shift) of 64 elements: added to the sums, and kept in y.
template <SoftmaxAlgorithm kAlgorithm, class Policy, class D, class Element>
HWY_INLINE void AddExps(Policy policy, D d, const Element* x, hn::Vec<D> shift,
                        RunningSums<D>& sums, hn::TFromD<D>* y) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  for (std::size_t u = 0; u < RunningSums<D>::kVectors; ++u) {
    const hn::Vec<D> v = LoadElements(d, x + u * kLanes);
    const hn::Vec<D> e = kAlgorithm == SoftmaxAlgorithm::kUnshifted
                             ? Exp(policy, d, v)
                             : ExpOfDifference(policy, d, v, shift);
    hn::StoreU(e, d, y + u * kLanes);
    AddTo(policy, e, sums.high[u], sums.low[u]);
  }
}

// kUnshifted and kShifted. The exponentials are kept in y[0, n) unless that is null.
template <SoftmaxAlgorithm kAlgorithm, class Policy, class D, class Element>
HWY_NOINLINE RowSum<hn::TFromD<D>> SumShifted(Policy policy, D d, const Element* x, std::size_t n,
                                              NextRow next, hn::TFromD<D>* y) {
  using T = hn::TFromD<D>;
  HWY_ALIGN Element staged[kBlock];
  HWY_ALIGN T kept[kBlock];
  RowSum<T> row;
  if (kAlgorithm != SoftmaxAlgorithm::kUnshifted) {
    const T max = MaxOfRow(d, x, n);
    row.shift = max == MinusInfinity<T>() ? T{0} : max;
  }
  const hn::Vec<D> shift = hn::Set(d, row.shift);
  RunningSums<D> sums;
  SetZero(d, sums);
  for (std::size_t i = 0; i < n; i += kBlock) {
    FetchBlock<Element>(next.x, i);
    FetchBlock<Element>(next.y, i);
    const bool whole = n - i >= kBlock;
    T* to = whole && y != nullptr ? y + i : kept;
    AddExps<kAlgorithm>(policy, d, StageElements(x + i, n - i, staged), shift, sums, to);
    if (!whole && y != nullptr) std::memcpy(y + i, kept, (n - i) * sizeof(T));
  }
  AddHalves(policy, d, sums, row);
  return row;
}

template <class Policy, class D, class Element>
HWY_NOINLINE RowSum<hn::TFromD<D>> SumOnline(Policy policy, D d, const Element* x, std::size_t n,
                                             NextRow next) {
  using T = hn::TFromD<D>;
  HWY_ALIGN Element staged[kBlock];
  HWY_ALIGN T unused[kBlock];
  RunningSums<D> sums;
  SetZero(d, sums);
  T max = MinusInfinity<T>();
  RowSum<T> row;
  for (std::size_t i = 0; i < n; i += kBlock) {
    FetchBlock<Element>(next.x, i);
    FetchBlock<Element>(next.y, i);
    const Element* block = StageElements(x + i, n - i, staged);
    const T block_max = hn::GetLane(hn::MaxOfLanes(d, MaxOfElements(d, block, hn::Set(d, max))));
    if (block_max > max) {
      const hn::Vec<D> factor = ExpOfDifference(policy, d, hn::Set(d, max), hn::Set(d, block_max));
      for (std::size_t u = 0; u < RunningSums<D>::kVectors; ++u) {
        sums.high[u] = hn::Mul(sums.high[u], factor);
        sums.low[u] = hn::Mul(sums.low[u], factor);
      }
      max = block_max;
    }
    row.shift = max == MinusInfinity<T>() ? T{0} : max;
    AddExps<SoftmaxAlgorithm::kOnline>(policy, d, block, hn::Set(d, row.shift), sums, unused);
  }
  AddHalves(policy, d, sums, row);
  return row;
}

template <class Policy, class D, class Element>
HWY_NOINLINE RowSum<hn::TFromD<D>> SumTwoPass(Policy policy, D d, const Element* x, std::size_t n,
                                              NextRow next) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr std::size_t kVectors = RunningSums<D>::kVectors;
  HWY_ALIGN Element staged[kBlock];
  RunningSums<D> sums;
  SetZero(d, sums);
  V exponents[kVectors];
  for (V& exponent : exponents) exponent = hn::Set(d, T{-8192});
  V lane_max = hn::Set(d, MinusInfinity<T>());
  for (std::size_t i = 0; i < n; i += kBlock) {
    FetchBlock<Element>(next.x, i);
    FetchBlock<Element>(next.y, i);
    const Element* block = StageElements(x + i, n - i, staged);
    for (std::size_t u = 0; u < kVectors; ++u) {
      const V v = LoadElements(d, block + u * kLanes);
      lane_max = hn::Max(lane_max, v);
      const Extended<D> e = ExtendedExp(policy, d, v);
      const V largest = hn::Max(exponents[u], e.n);
      const V down = hn::Sub(exponents[u], largest);
      sums.high[u] = ScaleDown(d, sums.high[u], down);
      if (kModeOf<Policy> == Mode::kAccurate) sums.low[u] = ScaleDown(d, sums.low[u], down);
      AddTo(policy, ScaleDown(d, e.p, hn::Sub(e.n, largest)), sums.high[u], sums.low[u]);
      exponents[u] = largest;
    }
  }
  RowSum<T> row;
  const T max = hn::GetLane(hn::MaxOfLanes(d, lane_max));
  if (!(max >= ExtendedRange<T>::kLowestMax && max <= ExtendedRange<T>::kReach)) {
    return SumShifted<SoftmaxAlgorithm::kShifted>(policy, d, x, n, NextRow(),
                                                  static_cast<T*>(nullptr));
  }
  V largest = exponents[0];
  for (const V exponent : exponents) largest = hn::Max(largest, exponent);
  row.binary = true;
  row.shift = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (std::size_t u = 0; u < kVectors; ++u) {
    const V down = hn::Sub(exponents[u], hn::Set(d, row.shift));
    sums.high[u] = ScaleDown(d, sums.high[u], down);
    sums.low[u] = ScaleDown(d, sums.low[u], down);
  }
  AddHalves(policy, d, sums, row);
  return row;
}

// Only kUnshifted and kShifted keep exponentials in y; the others ignore it.
template <SoftmaxAlgorithm kAlgorithm, class Policy, class D, class Element>
HWY_INLINE RowSum<hn::TFromD<D>> SumOfRow(Policy policy, D d, const Element* x, std::size_t n,
                                          NextRow next, hn::TFromD<D>* y) {
  if constexpr (kAlgorithm == SoftmaxAlgorithm::kOnline) {
    return SumOnline(policy, d, x, n, next);
  } else if constexpr (kAlgorithm == SoftmaxAlgorithm::kTwoPass) {
    return SumTwoPass(policy, d, x, n, next);
  } else {
    return SumShifted<kAlgorithm>(policy, d, x, n, next, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
