// SPDX-License-Identifier: Apache-2.0
// Sums of products of a lane operand with a broadcast operand: the matrix products of the rungs.
//
// Computes: out[r][lane] (+)= sum over t < terms of x[t][lane] * y(t, r), r < results, where y(t,
// r)
//   is one double for all lanes.
//   BiasedPanel does the same for double-doubles at half the cost, where the sums are bounded.
// Shapes: x [terms, lanes] and out [results, lanes] planes; y[t * y_term + r * y_result].
// Rounding points: blocks of `block` terms are summed in order, then added to the total in order;
//   nothing depends on the target's vector length, on the tiling or on other lanes.
// Bound: Constants::SumError(terms, block) * sum |x y|.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_PANEL_INL_H_
#undef ATTEST_REFERENCE_PANEL_INL_H_
#else
#define ATTEST_REFERENCE_PANEL_INL_H_
#endif

#include <hwy/highway.h>

#include "reference/double_arithmetic-inl.h"
#include "reference/double_double-inl.h"
#include "reference/row_block.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a panel multiplies.
struct PanelTask {
  Plane x;
  std::size_t lanes = 0;
  std::size_t terms = 0;
  std::size_t block = 0;
  const double* y = nullptr;
  std::size_t y_term = 0;
  std::size_t y_result = 0;
  Plane out;
  std::size_t results = 0;
  bool add = false;  // to what `out` holds
};

// How a panel reads its lane operand: as doubles, or as the numbers of arithmetic A.
template <class D>
struct DoubleOperand {
  static HWY_INLINE hn::Vec<D> Load(D d, const Plane& plane, std::size_t at) {
    return hn::Load(d, plane.hi + at);
  }
};

// kResults results by kVectors vectors from result `r` and lane `lane` on.
template <class A, class X, bool kExactProducts, std::size_t kResults, std::size_t kVectors,
          class D>
HWY_INLINE void PanelTile(D d, const PanelTask& task, std::size_t r, std::size_t lane) {
  const std::size_t width = hn::Lanes(d);
  const double* y = task.y + r * task.y_result;
  bool add = task.add;
  for (std::size_t first = 0; first < task.terms; first += task.block, add = true) {
    const std::size_t last = HWY_MIN(task.terms, first + task.block);
    typename A::Accumulator sums[kResults][kVectors];
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kResults; ++i) {
      HWY_UNROLL(8)
      for (std::size_t n = 0; n < kVectors; ++n) sums[i][n] = A::NewAccumulator(d);
    }
    for (std::size_t t = first; t < last; ++t) {
      decltype(X::Load(d, task.x, 0)) x[kVectors];
      HWY_UNROLL(8)
      for (std::size_t n = 0; n < kVectors; ++n) {
        x[n] = X::Load(d, task.x, t * task.lanes + lane + n * width);
      }
      HWY_UNROLL(8)
      for (std::size_t i = 0; i < kResults; ++i) {
        const auto factor = hn::Set(d, y[t * task.y_term + i * task.y_result]);
        HWY_UNROLL(8)
        for (std::size_t n = 0; n < kVectors; ++n) {
          A::template MulAcc<kExactProducts>(x[n], factor, sums[i][n]);
        }
      }
    }
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kResults; ++i) {
      HWY_UNROLL(8)
      for (std::size_t n = 0; n < kVectors; ++n) {
        const std::size_t at = (r + i) * task.lanes + lane + n * width;
        auto sum = A::Sum(sums[i][n]);
        if (add) sum = A::Add(A::Load(d, task.out, at), sum);
        A::Store(d, sum, task.out, at);
      }
    }
  }
}

template <class A, class X, bool kExactProducts, std::size_t kResults, std::size_t kVectors,
          class D>
HWY_INLINE void PanelStrip(D d, const PanelTask& task, std::size_t lane) {
  std::size_t r = 0;
  for (; r + kResults <= task.results; r += kResults) {
    PanelTile<A, X, kExactProducts, kResults, kVectors>(d, task, r, lane);
  }
  for (; r + 2 <= task.results; r += 2) {
    PanelTile<A, X, kExactProducts, 2, kVectors>(d, task, r, lane);
  }
  for (; r < task.results; ++r) {
    PanelTile<A, X, kExactProducts, 1, kVectors>(d, task, r, lane);
  }
}

// Registers: 6 x 4 accumulators of the 32 of AVX-512, 6 x 2 of 16 elsewhere; a double-double one
// takes two.
template <class A, class X, bool kExactProducts, class D>
HWY_INLINE void Panel(D d, const PanelTask& task) {
  constexpr bool kPairs = sizeof(typename A::Accumulator) > sizeof(hn::Vec<D>);
  constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
  constexpr std::size_t kVectors = kPairs ? (kManyRegisters ? 2 : 1) : (kManyRegisters ? 4 : 2);
  constexpr std::size_t kResults = kPairs ? 4 : 6;
  const std::size_t width = hn::Lanes(d);
  std::size_t lane = 0;
  for (; lane + kVectors * width <= task.lanes; lane += kVectors * width) {
    PanelStrip<A, X, kExactProducts, kResults, kVectors>(d, task, lane);
  }
  for (; lane < task.lanes; lane += width) {
    PanelStrip<A, X, kExactProducts, kResults, 1>(d, task, lane);
  }
}

// out[r][lane] = sum of x y as a double-double, for sums that `bias`[lane] (BiasFor) suits; one
// block.
template <class A, bool kExactProducts, std::size_t kResults, std::size_t kVectors, class D>
HWY_INLINE void BiasedTile(D d, const PanelTask& task, const double* bias, std::size_t r,
                           std::size_t lane) {
  const std::size_t width = hn::Lanes(d);
  const double* y = task.y + r * task.y_result;
  hn::Vec<D> biases[kVectors];
  typename A::Accumulator sums[kResults][kVectors];
  HWY_UNROLL(8)
  for (std::size_t n = 0; n < kVectors; ++n) {
    biases[n] = hn::Load(d, bias + lane + n * width);
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kResults; ++i) sums[i][n] = {biases[n], hn::Zero(d)};
  }
  for (std::size_t t = 0; t < task.terms; ++t) {
    hn::Vec<D> x[kVectors];
    HWY_UNROLL(8)
    for (std::size_t n = 0; n < kVectors; ++n) {
      x[n] = hn::Load(d, task.x.hi + t * task.lanes + lane + n * width);
    }
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kResults; ++i) {
      const auto factor = hn::Set(d, y[t * task.y_term + i * task.y_result]);
      HWY_UNROLL(8)
      for (std::size_t n = 0; n < kVectors; ++n) {
        A::template BiasedMulAcc<kExactProducts>(x[n], factor, sums[i][n]);
      }
    }
  }
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < kResults; ++i) {
    HWY_UNROLL(8)
    for (std::size_t n = 0; n < kVectors; ++n) {
      A::Store(d, A::BiasedSum(sums[i][n], biases[n]), task.out,
               (r + i) * task.lanes + lane + n * width);
    }
  }
}

template <class A, bool kExactProducts, std::size_t kVectors, class D>
HWY_INLINE void BiasedStrip(D d, const PanelTask& task, const double* bias, std::size_t lane) {
  constexpr std::size_t kResults = HWY_TARGET <= HWY_AVX3 ? 6 : 3;
  std::size_t r = 0;
  for (; r + kResults <= task.results; r += kResults) {
    BiasedTile<A, kExactProducts, kResults, kVectors>(d, task, bias, r, lane);
  }
  for (; r < task.results; ++r) {
    BiasedTile<A, kExactProducts, 1, kVectors>(d, task, bias, r, lane);
  }
}

template <class A, bool kExactProducts, class D>
HWY_INLINE void BiasedPanel(D d, const PanelTask& task, const double* bias) {
  constexpr std::size_t kVectors = HWY_TARGET <= HWY_AVX3 ? 2 : 1;
  const std::size_t width = hn::Lanes(d);
  std::size_t lane = 0;
  for (; lane + kVectors * width <= task.lanes; lane += kVectors * width) {
    BiasedStrip<A, kExactProducts, kVectors>(d, task, bias, lane);
  }
  for (; lane < task.lanes; lane += width) {
    BiasedStrip<A, kExactProducts, 1>(d, task, bias, lane);
  }
}

// The products of a rung: double sums in blocks, or double-double biased sums where |sum| <=
// bounds[lane].
template <class A, bool kExactProducts, class D>
HWY_INLINE void Products(D d, const PanelTask& task, const double* bounds) {
  if constexpr (sizeof(typename A::N) > sizeof(hn::Vec<D>)) {
    HWY_ALIGN double bias[kMaxRowLanes];
    for (std::size_t i = 0; i < task.lanes; ++i) bias[i] = BiasFor(bounds[i]);
    BiasedPanel<A, kExactProducts>(d, task, bias);
  } else {
    (void)bounds;
    Panel<A, DoubleOperand<D>, kExactProducts>(d, task);
  }
}

// The error of Products of n terms, relative to its bounds.
template <class A>
double ProductsError(double n) {
  return A::kPairs ? BiasedSumError(n) : A::Constants::SumError(n, kScoreBlock);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_PANEL_INL_H_
