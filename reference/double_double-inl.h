// SPDX-License-Identifier: Apache-2.0
// The numbers of rung 1: double-doubles in vectors, and what each operation may lose.
//
// A number is hi + lo, |lo| <= ulp(hi)/2. Algorithms and bounds are those of (Joldes, Muller,
// Popescu 2017) and (Muller, Rideau 2022); u = 2^-53:
//   Add      3 u^2 + 13 u^3   their AccurateDWPlusDW
//   AddFp    2 u^2            DWPlusFP
//   Mul      5 u^2            DWTimesDW3, with its low product
//   MulFp    2 u^2            DWTimesFP3
//   Div      15 u^2 + 56 u^3  DWDivDW2
// Without a fused multiply-add MulFp has 3 u^2 and Mul 8 u^2 (docs/reference.md).
// They hold where nothing overflows and no low part underflows; callers bound their operands.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
#undef ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
#else
#define ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
#endif

#include <hwy/highway.h>

#include "reference/exp_table.h"
#include "reference/rung_constants.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
struct DoubleDouble {
  V hi, lo;
};

// The exact sum of a and b as rounded sum and error (Knuth).
template <class V>
HWY_INLINE DoubleDouble<V> TwoSum(V a, V b) {
  const V sum = hn::Add(a, b);
  const V part = hn::Sub(sum, a);
  return {sum, hn::Add(hn::Sub(a, hn::Sub(sum, part)), hn::Sub(b, part))};
}

// The same where |a| >= |b| or a = 0 (Dekker).
template <class V>
HWY_INLINE DoubleDouble<V> FastTwoSum(V a, V b) {
  const V sum = hn::Add(a, b);
  return {sum, hn::Sub(b, hn::Sub(sum, a))};
}

// x * y - product exactly, for product = fl(x * y) (Dekker and Veltkamp without a fused
// multiply-add).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ProductError(D d, V x, V y, V product) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulSub(x, y, product);
#else
  const V splitter = hn::Set(d, 0x1.0000002p+27);  // 2^27 + 1
  const auto high = [&](V a) {
    const V c = hn::Mul(splitter, a);
    return hn::Sub(c, hn::Sub(c, a));
  };
  const V xh = high(x);
  const V xl = hn::Sub(x, xh);
  const V yh = high(y);
  const V yl = hn::Sub(y, yh);
  const V a = hn::Sub(hn::Mul(xh, yh), product);
  const V b = hn::Add(a, hn::Mul(xh, yl));
  const V c = hn::Add(b, hn::Mul(xl, yh));
  return hn::Add(c, hn::Mul(xl, yl));
#endif
}

template <class V>
HWY_INLINE DoubleDouble<V> AddFp(DoubleDouble<V> x, V y) {
  const auto s = TwoSum(x.hi, y);
  return FastTwoSum(s.hi, hn::Add(x.lo, s.lo));
}

template <class V>
HWY_INLINE DoubleDouble<V> Add(DoubleDouble<V> x, DoubleDouble<V> y) {
  const auto s = TwoSum(x.hi, y.hi);
  const auto t = TwoSum(x.lo, y.lo);
  const auto v = FastTwoSum(s.hi, hn::Add(s.lo, t.hi));
  return FastTwoSum(v.hi, hn::Add(t.lo, v.lo));
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> MulFp(D d, DoubleDouble<V> x, V y) {
  const V product = hn::Mul(x.hi, y);
  return FastTwoSum(product, hn::MulAdd(x.lo, y, ProductError(d, x.hi, y, product)));
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> Mul(D d, DoubleDouble<V> x, DoubleDouble<V> y) {
  const V product = hn::Mul(x.hi, y.hi);
  const V error = ProductError(d, x.hi, y.hi, product);
  V low = hn::Mul(x.lo, y.lo);
  low = hn::MulAdd(x.hi, y.lo, low);
  low = hn::MulAdd(x.lo, y.hi, low);
  return FastTwoSum(product, hn::Add(error, low));
}

template <class D, class V>
HWY_INLINE DoubleDouble<V> Div(D d, DoubleDouble<V> x, DoubleDouble<V> y) {
  const V quotient = hn::Div(x.hi, y.hi);
  const auto r = MulFp(d, y, quotient);
  const V rest = hn::Add(hn::Sub(x.hi, r.hi), hn::Sub(x.lo, r.lo));
  return FastTwoSum(quotient, hn::Div(rest, y.hi));
}

// constant + x for |x| < |constant| / 2; what is lost is below 2 u^2 |constant|. Not normalised:
// the low part may exceed half a last place of the high one by what x.lo adds.
template <class V>
HWY_INLINE DoubleDouble<V> AddToConstant(V constant, V constant_low, DoubleDouble<V> x) {
  const auto s = FastTwoSum(constant, x.hi);
  return {s.hi, hn::Add(s.lo, hn::Add(constant_low, x.lo))};
}

// e^x for DoubleDoubleConstants::kExpLowest <= x <= 1, and 0 below. With n = round(256 x / ln 2),
// r = x - n ln 2 / 256, |r| < 2^-9.5: the Taylor polynomial of degree 9 of r, the terms from r^5 on
// in double, times 2^(n/256) from a table. ln 2 / 256 is in three parts, of which two, of 33 bits
// at most, have exact products with n; the difference of x.hi and the first is exact (Sterbenz).
template <class D, class V>
HWY_INLINE DoubleDouble<V> Exp(D d, DoubleDouble<V> x) {
  using N = DoubleDouble<V>;
  const hn::RebindToSigned<D> di;
  const auto valid = hn::Ge(x.hi, hn::Set(d, DoubleDoubleConstants::kExpLowest));
  x.hi = hn::IfThenElseZero(valid, x.hi);
  x.lo = hn::IfThenElseZero(valid, x.lo);
  const V n = hn::Round(hn::Mul(x.hi, hn::Set(d, 0x1.71547652b82fep+8)));
  const V t1 = hn::Sub(x.hi, hn::Mul(n, hn::Set(d, 0x1.62e42ffp-9)));
  const N t2 = TwoSum(t1, hn::Mul(n, hn::Set(d, 0x1.718432a2p-43)));  // minus a negative part
  const N t3 = TwoSum(t2.hi, x.lo);
  const V rest = hn::Mul(n, hn::Set(d, 0x1.3c7673007e5edp-77));
  const N r{t3.hi, hn::Add(t3.lo, hn::Sub(t2.lo, rest))};

  V q = hn::Set(d, 1.0 / 362880.0);
  q = hn::MulAdd(q, r.hi, hn::Set(d, 1.0 / 40320.0));
  q = hn::MulAdd(q, r.hi, hn::Set(d, 1.0 / 5040.0));
  q = hn::MulAdd(q, r.hi, hn::Set(d, 1.0 / 720.0));
  q = hn::MulAdd(q, r.hi, hn::Set(d, 1.0 / 120.0));
  const V zero = hn::Zero(d);
  N t = AddToConstant(hn::Set(d, 0x1.5555555555555p-5), hn::Set(d, 0x1.5555555555555p-59),
                      N{hn::Mul(q, r.hi), zero});  // 1/24
  t = AddToConstant(hn::Set(d, 0x1.5555555555555p-3), hn::Set(d, 0x1.5555555555555p-57),
                    Mul(d, t, r));  // 1/6
  t = AddToConstant(hn::Set(d, 0.5), zero, Mul(d, t, r));
  t = AddToConstant(hn::Set(d, 1.0), zero, Mul(d, t, r));
  t = AddToConstant(hn::Set(d, 1.0), zero, Mul(d, t, r));

  const auto ni = hn::ConvertTo(di, n);
  const auto row = hn::ShiftLeft<1>(hn::And(ni, hn::Set(di, 255)));
  const N table{hn::GatherIndex(d, kExpTable, row), hn::GatherIndex(d, kExpTable + 1, row)};
  t = Mul(d, t, table);
  const auto exponent = hn::Add(hn::ShiftRight<8>(ni), hn::Set(di, 1023));
  const V scale = hn::BitCast(d, hn::ShiftLeft<52>(exponent));
  return {hn::IfThenElseZero(valid, hn::Mul(t.hi, scale)),
          hn::IfThenElseZero(valid, hn::Mul(t.lo, scale))};
}

template <class D>
struct DoubleDoubleArithmetic {
  using V = hn::Vec<D>;
  using N = DoubleDouble<V>;
  using Accumulator = DoubleDouble<V>;  // sum of the high parts, and of all errors
  static constexpr bool kPairs = true;
  using Constants = DoubleDoubleConstants;

  static HWY_INLINE N Load(D d, const Plane& plane, std::size_t at) {
    return {hn::Load(d, plane.hi + at), hn::Load(d, plane.lo + at)};
  }
  static HWY_INLINE void Store(D d, N x, const Plane& plane, std::size_t at) {
    hn::Store(x.hi, d, plane.hi + at);
    hn::Store(x.lo, d, plane.lo + at);
  }
  static HWY_INLINE N Make(V hi, V lo) { return {hi, lo}; }
  static HWY_INLINE V Hi(N x) { return x.hi; }
  static HWY_INLINE V Lo(D /*d*/, N x) { return x.lo; }
  static HWY_INLINE N Zero(D d) { return {hn::Zero(d), hn::Zero(d)}; }
  static HWY_INLINE N Add(N a, N b) { return HWY_NAMESPACE::Add(a, b); }
  static HWY_INLINE N Sub(N a, N b) {
    return HWY_NAMESPACE::Add(a, N{hn::Neg(b.hi), hn::Neg(b.lo)});
  }
  static HWY_INLINE N SubDouble(N a, V b) { return AddFp(a, hn::Neg(b)); }
  static HWY_INLINE N Mul(N a, N b) { return HWY_NAMESPACE::Mul(D(), a, b); }
  static HWY_INLINE N Div(N a, N b) { return HWY_NAMESPACE::Div(D(), a, b); }
  static HWY_INLINE N Select(hn::Mask<D> yes, N a, N b) {
    return {hn::IfThenElse(yes, a.hi, b.hi), hn::IfThenElse(yes, a.lo, b.lo)};
  }
  static HWY_INLINE N Exp(D d, N x) { return HWY_NAMESPACE::Exp(d, x); }

  static HWY_INLINE Accumulator NewAccumulator(D d) { return Zero(d); }
  // acc += x * y for a double x. With kExactProducts x * y has at most 53 bits.
  template <bool kExactProducts>
  static HWY_INLINE void MulAcc(V x, V y, Accumulator& acc) {
    const V product = hn::Mul(x, y);
    const auto s = TwoSum(acc.hi, product);
    acc.hi = s.hi;
    if constexpr (kExactProducts) {
      acc.lo = hn::Add(acc.lo, s.lo);
    } else {
      acc.lo = hn::Add(acc.lo, hn::Add(s.lo, ProductError(D(), x, y, product)));
    }
  }
  // The same for a double-double x.
  template <bool kExactProducts>
  static HWY_INLINE void MulAcc(N x, V y, Accumulator& acc) {
    const V product = hn::Mul(x.hi, y);
    const V low = hn::MulAdd(x.lo, y, ProductError(D(), x.hi, y, product));
    const auto s = TwoSum(acc.hi, product);
    acc.hi = s.hi;
    acc.lo = hn::Add(acc.lo, hn::Add(s.lo, low));
  }
  static HWY_INLINE void AddAcc(N x, Accumulator& acc) {
    const auto s = TwoSum(acc.hi, x.hi);
    acc.hi = s.hi;
    acc.lo = hn::Add(acc.lo, hn::Add(s.lo, x.lo));
  }
  static HWY_INLINE N Sum(Accumulator acc) { return TwoSum(acc.hi, acc.lo); }

  // A step of a biased sum (BiasFor in rung_constants.h): acc.hi is the bias plus the sum so far.
  template <bool kExactProducts>
  static HWY_INLINE void BiasedMulAcc(V x, V y, Accumulator& acc) {
#if HWY_NATIVE_FMA
    const V sum = hn::MulAdd(x, y, acc.hi);
    const V lost = hn::MulSub(x, y, hn::Sub(sum, acc.hi));
#else
    const V product = hn::Mul(x, y);
    const V sum = hn::Add(acc.hi, product);
    V lost = hn::Sub(product, hn::Sub(sum, acc.hi));
    if constexpr (!kExactProducts) lost = hn::Add(lost, ProductError(D(), x, y, product));
#endif
    acc.lo = hn::Add(acc.lo, lost);
    acc.hi = sum;
  }
  static HWY_INLINE N BiasedSum(Accumulator acc, V bias) {
    return TwoSum(hn::Sub(acc.hi, bias), acc.lo);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_DOUBLE_DOUBLE_INL_H_
