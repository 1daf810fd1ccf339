// SPDX-License-Identifier: Apache-2.0
// Softmax, log-softmax and log-sum-exp of one row.
//
// Computes: with shift and sum of optimized/softmax_sum-inl.h,
//     SoftmaxRow     y_j = exp(x_j - shift) / sum,
//     LogSoftmaxRow  y_j = (x_j - shift) - ln sum,
//     LogSumExpRow   lse = shift + ln sum, which the other two return as well.
//   SoftmaxRow keeps the exponentials of kUnshifted and kShifted in y where its elements have the
//   type of the arithmetic; otherwise it computes them again. Accurate of float elements is Fast in
//   double: the whole row with one rounding to float that counts.
// Shapes: rows of n contiguous elements, no alignment, any n; y may be x itself (in place), any
//   other overlap is not allowed.
// Rounding points: those of optimized/softmax_sum-inl.h; 1/sum and its product with the exponential
//   (Accurate: one division); each difference of LogSoftmaxRow (Accurate keeps what x_j - shift
//   loses); elements of another type than the arithmetic's once more. ln sum and lse are formed in
//   double from the sum; lse is rounded once to its type.
// Bound: docs/functions.md, "Softmax". With u of the arithmetic, R = max (m - x_j) over the j whose
//   weight is not below the range, B = ceil(n/64):
//     |y_j - exact| <= exact (e^H - 1) + 2 eta,  |lse - exact| <= H_sum + u (|exact| + H_sum).
// Measured: Softmax.StaysWithinItsBound of properties/softmax_test.cc; docs/functions.md has the
// table.

#include "optimized/softmax.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_SOFTMAX_INL_H_
#undef ATTEST_OPTIMIZED_SOFTMAX_INL_H_
#else
#define ATTEST_OPTIMIZED_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/log-inl.h"
#include "optimized/softmax_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// In double; -inf for a row without any weight.
template <class Policy, class T>
HWY_NOINLINE double LogSumExpOf(Policy policy, const RowSum<T>& row) {
  const hn::CappedTag<double, 1> d;
  const auto sum = static_cast<double>(row.sum);
  double log = hn::GetLane(Log(policy, d, hn::Set(d, sum)));
  if (kModeOf<Policy> == Mode::kAccurate && row.sum_low != T{0}) {
    log += static_cast<double>(row.sum_low) / sum;
  }
  const auto shift = static_cast<double>(row.shift);
  if (!row.binary) return shift + log;
  return shift * ExpConstants<double>::kLn2High + (shift * ExpConstants<double>::kLn2Low + log);
}

// exp(x_j - shift).
template <SoftmaxAlgorithm kAlgorithm, class Policy, class D>
HWY_INLINE hn::Vec<D> WeightOf(Policy policy, D d, hn::Vec<D> x, const RowSum<hn::TFromD<D>>& row) {
  const hn::Vec<D> shift = hn::Set(d, row.shift);
  if constexpr (kAlgorithm == SoftmaxAlgorithm::kUnshifted) return Exp(policy, d, x);
  if constexpr (kAlgorithm == SoftmaxAlgorithm::kTwoPass) {
    if (row.binary) {
      const Extended<D> e = ExtendedExp(policy, d, x);
      return ScaleDown(d, e.p, hn::Sub(e.n, shift));
    }
  }
  return ExpOfDifference(policy, d, x, shift);
}

// e / sum; 0 for a row without any weight.
template <class Policy, class D>
HWY_INLINE hn::Vec<D> Normalise(Policy /*policy*/, D d, hn::Vec<D> e, hn::TFromD<D> sum,
                                hn::TFromD<D> inverse) {
  if constexpr (kModeOf<Policy> == Mode::kAccurate) return hn::Div(e, hn::Set(d, sum));
  return hn::Mul(e, hn::Set(d, inverse));
}

// y = softmax(x); returns lse, as LogSoftmaxRow and LogSumExpRow do. The tag's type is that of the
// arithmetic. `next` may name the row that follows, whose cache lines are then fetched.
template <SoftmaxAlgorithm kAlgorithm, class Policy, class D, class Element>
HWY_INLINE double SoftmaxRow(Policy policy, D d, const Element* x, std::size_t n, Element* y,
                             NextRow next = NextRow()) {
  using T = hn::TFromD<D>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  constexpr bool kKept = std::is_same_v<Element, T> && (kAlgorithm == SoftmaxAlgorithm::kShifted ||
                                                        kAlgorithm == SoftmaxAlgorithm::kUnshifted);
  T* kept = nullptr;
  if constexpr (kKept) kept = y;
  const RowSum<T> row = SumOfRow<kAlgorithm>(policy, d, x, n, next, kept);
  const T sum = row.sum == T{0} ? T{1} : row.sum;  // then all weights are 0
  const T inverse = T{1} / sum;
  const Element* from = kKept ? y : x;
  const auto block = [&](const Element* in, Element* out) HWY_ATTR {
    for (std::size_t i = 0; i < kBlock; i += kLanes) {
      const hn::Vec<D> v = LoadElements(d, in + i);
      const hn::Vec<D> e = kKept ? v : WeightOf<kAlgorithm>(policy, d, v, row);
      StoreElements(d, Normalise(policy, d, e, sum, inverse), out + i);
    }
  };
  HWY_ALIGN Element staged[kBlock];
  for (std::size_t i = 0; i < n; i += kBlock) {
    const bool whole = n - i >= kBlock;
    block(StageElements(from + i, n - i, staged), whole ? y + i : staged);
    if (!whole) std::memcpy(y + i, staged, (n - i) * sizeof(Element));
  }
  return LogSumExpOf(policy, row);
}

// y = x - lse.
template <SoftmaxAlgorithm kAlgorithm, class Policy, class D, class Element>
HWY_INLINE double LogSoftmaxRow(Policy policy, D d, const Element* x, std::size_t n, Element* y,
                                NextRow next = NextRow()) {
  using T = hn::TFromD<D>;
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  const RowSum<T> row = SumOfRow<kAlgorithm>(policy, d, x, n, next, static_cast<T*>(nullptr));
  RowSum<T> unshifted = row;
  unshifted.shift = 0;
  double log_sum = LogSumExpOf(policy, unshifted);
  T first = row.shift;  // y = (x - first) - rest
  if (row.binary) {
    first = row.shift * ExpConstants<T>::kLn2High;  // exact
    const double missing = ExpConstants<double>::kLn2High - double{ExpConstants<T>::kLn2High} +
                           ExpConstants<double>::kLn2Low;
    log_sum += static_cast<double>(row.shift) * missing;
  }
  const bool empty = row.sum == T{0};
  const T rest = empty ? T{0} : static_cast<T>(log_sum);
  const auto block = [&](const Element* in, Element* out) HWY_ATTR {
    for (std::size_t i = 0; i < kBlock; i += kLanes) {
      const hn::Vec<D> v = LoadElements(d, in + i);
      hn::Vec<D> result;
      if constexpr (kModeOf<Policy> == Mode::kAccurate) {
        hn::Vec<D> lost;
        const hn::Vec<D> difference = TwoSum(v, hn::Set(d, -first), lost);
        hn::Vec<D> lost_too;
        const hn::Vec<D> total = TwoSum(difference, hn::Set(d, -rest), lost_too);
        const auto finite = hn::Gt(total, hn::Set(d, -std::numeric_limits<T>::max()));
        result = hn::Add(total, hn::IfThenElseZero(finite, hn::Add(lost, lost_too)));
      } else {
        result = hn::Sub(hn::Sub(v, hn::Set(d, first)), hn::Set(d, rest));
      }
      StoreElements(d, result, out + i);
    }
  };
  HWY_ALIGN Element staged[kBlock];
  for (std::size_t i = 0; i < n; i += kBlock) {
    const bool whole = n - i >= kBlock;
    block(StageElements(x + i, n - i, staged), whole ? y + i : staged);
    if (!whole) std::memcpy(y + i, staged, (n - i) * sizeof(Element));
  }
  return LogSumExpOf(policy, row);
}

template <SoftmaxAlgorithm kAlgorithm, class Policy, class D, class Element>
HWY_INLINE double LogSumExpRow(Policy policy, D d, const Element* x, std::size_t n,
                               NextRow next = NextRow()) {
  using T = hn::TFromD<D>;
  return LogSumExpOf(policy, SumOfRow<kAlgorithm>(policy, d, x, n, next, static_cast<T*>(nullptr)));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
