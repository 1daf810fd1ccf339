// SPDX-License-Identifier: Apache-2.0
// Every constant of the SIMD rungs' error bounds (reference/rung_constants.h), attacked on every
// target with arguments chosen to do harm, against balls of at least 256 bits. Each test records
// its largest error over the bound.
#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/targets.h"
#include "properties/hard_doubles.h"
#include "reference/ball.h"
#include "reference/exp_table.h"
#include "reference/rounding.h"

#ifndef ATTEST_PROPERTIES_RUNG_ARITHMETIC_TEST_
#define ATTEST_PROPERTIES_RUNG_ARITHMETIC_TEST_
namespace attest {

enum class Operation {
  kAdd,
  kAddFp,  // of a, and b without its low part
  kMul,
  kMulFp,
  kDiv,
  kExp,
  kTanh,
  kComplement,    // 1 - tanh(a)^2
  kGaussian,      // key a, centre b
  kTwoSum,        // of a.hi and b.hi
  kProductError,  // of a.hi and b.hi
};
inline constexpr double kHalfWidth = 37.3;  // of kGaussian

}  // namespace attest
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "properties/rung_arithmetic_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "reference/panel-inl.h"
#include "reference/row_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

using Tag = hn::CappedTag<double, 8>;

// Operations that only double-doubles have.
template <class V>
DoubleDouble<V> PairsAlone(Operation operation, DoubleDouble<V> a, DoubleDouble<V> b) {
  const Tag d;
  if (operation == Operation::kAddFp) return AddFp(a, b.hi);
  if (operation == Operation::kMulFp) return MulFp(d, a, b.hi);
  if (operation == Operation::kTwoSum) return TwoSum(a.hi, b.hi);
  const V product = hn::Mul(a.hi, b.hi);
  return {product, ProductError(d, a.hi, b.hi, product)};
}
template <class V>
V PairsAlone(Operation /*operation*/, V a, V /*b*/) {
  return a;
}

template <class A>
typename A::N Evaluate(Operation operation, typename A::N a, typename A::N b) {
  using F = RungFunctions<A, Tag>;
  const Tag d;
  switch (operation) {
    case Operation::kAdd:
      return A::Add(a, b);
    case Operation::kMul:
      return A::Mul(a, b);
    case Operation::kDiv:
      return A::Div(a, b);
    case Operation::kExp:
      return A::Exp(d, a);
    case Operation::kTanh:
      return F::Tanh(d, a).tanh;
    case Operation::kComplement:
      return F::Tanh(d, a).complement;
    case Operation::kGaussian:
      return F::Gaussian(d, A::Sub(a, b), kHalfWidth);
    default:
      return PairsAlone(operation, a, b);
  }
}

// Elementwise on planes of a multiple of 8 numbers.
template <class A>
void ApplyIn(Operation operation, std::size_t size, Plane a, Plane b, Plane out) {
  const Tag d;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    A::Store(d, Evaluate<A>(operation, A::Load(d, a, i), A::Load(d, b, i)), out, i);
  }
}
void Apply(bool pairs, Operation operation, std::size_t size, Plane a, Plane b, Plane out) {
  if (pairs) {
    ApplyIn<DoubleDoubleArithmetic<Tag>>(operation, size, a, b, out);
  } else {
    ApplyIn<DoubleArithmetic<Tag>>(operation, size, a, b, out);
  }
}

// `operand_pairs`: the lane operand has low parts; then products are never taken for exact. With
// `bounds` (of the sums, by lane) the sums of double-doubles are biased.
void RunPanel(bool pairs, bool operand_pairs, bool exact, const double* bounds,
              const PanelTask& task) {
  using Double = DoubleArithmetic<Tag>;
  using Pairs = DoubleDoubleArithmetic<Tag>;
  const Tag d;
  if (!pairs) return Panel<Double, DoubleOperand<Tag>, false>(d, task);
  if (operand_pairs) return Panel<Pairs, Pairs, false>(d, task);
  if (bounds != nullptr) {
    return exact ? Products<Pairs, true>(d, task, bounds) : Products<Pairs, false>(d, task, bounds);
  }
  if (exact) return Panel<Pairs, DoubleOperand<Tag>, true>(d, task);
  return Panel<Pairs, DoubleOperand<Tag>, false>(d, task);
}
// The task without the types of a target.
void RunPanelTask(bool pairs, bool operand_pairs, bool exact, Plane x, const double* y,
                  std::size_t terms, std::size_t block, const double* bounds, Plane out) {
  PanelTask task;
  task.x = x;
  task.lanes = 8;
  task.terms = terms;
  task.block = block;
  task.y = y;
  task.y_term = 1;
  task.y_result = terms;
  task.out = out;
  task.results = 3;
  RunPanel(pairs, operand_pairs, exact, bounds, task);
}

bool HasFusedMulAdd() { return HWY_NATIVE_FMA != 0; }

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(Apply);
HWY_EXPORT(RunPanelTask);
HWY_EXPORT(HasFusedMulAdd);

constexpr long kBits = 256;
constexpr double kU = kRoundoff;
constexpr double kU2 = kRoundoff * kRoundoff;

// Double-doubles in aligned memory, padded with the last one to whole vectors of any target.
class Numbers {
 public:
  void Add(double hi, double lo = 0.0) {
    hi_.push_back(hi);
    lo_.push_back(lo);
  }
  std::size_t size() const { return hi_.size(); }
  double hi(std::size_t i) const { return hi_[i]; }
  double lo(std::size_t i) const { return lo_[i]; }
  Ball ball(std::size_t i) const { return Ball(hi_[i]) + Ball(lo_[i]); }

 private:
  std::vector<double> hi_, lo_;
};

class AlignedPlane {
 public:
  explicit AlignedPlane(std::size_t size)
      : hi_(hwy::AllocateAligned<double>(size)), lo_(hwy::AllocateAligned<double>(size)) {
    for (std::size_t i = 0; i < size; ++i) hi_[i] = lo_[i] = 0.0;
  }
  AlignedPlane(const Numbers& from, std::size_t size) : AlignedPlane(size) {
    for (std::size_t i = 0; i < size; ++i) {
      hi_[i] = from.hi(std::min(i, from.size() - 1));
      lo_[i] = from.lo(std::min(i, from.size() - 1));
    }
  }
  Plane plane() { return {hi_.get(), lo_.get()}; }

 private:
  hwy::AlignedFreeUniquePtr<double[]> hi_, lo_;
};

// The same operation on every target.
struct OnTarget {
  std::string_view target;
  bool fused = false;
  Numbers results;
};
std::vector<OnTarget> OnAllTargets(bool pairs, Operation operation, const Numbers& a,
                                   const Numbers& b) {
  std::vector<OnTarget> all;
  const std::size_t size = (a.size() + 7) / 8 * 8;
  AlignedPlane x(a, size);
  AlignedPlane y(b, size);
  AlignedPlane out(size);
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    HWY_DYNAMIC_DISPATCH(Apply)(pairs, operation, size, x.plane(), y.plane(), out.plane());
    all.push_back({target, HWY_DYNAMIC_DISPATCH(HasFusedMulAdd)(), {}});
    for (std::size_t i = 0; i < a.size(); ++i) {
      all.back().results.Add(out.plane().hi[i], pairs ? out.plane().lo[i] : 0.0);
    }
  }
  return all;
}

// The largest of errors over their bounds.
class Worst {
 public:
  void Add(const Ball& error, const Ball& bound, std::string_view target, double hi, double lo) {
    const double ratio = error.IsZero() ? 0.0 : (error / bound).MagnitudeBound();
    if (ratio <= ratio_) return;  // NaN goes on
    ratio_ = ratio;
    where_ = std::string(target) + " at " + Hex(hi) + " + " + Hex(lo);
  }
  // Fails where an error exceeds its bound.
  void Check(const std::string& name) const {
    ::testing::Test::RecordProperty(name, std::to_string(ratio_) + " of the bound, " + where_);
    std::printf("%s: %.4f of the bound, %s\n", name.c_str(), ratio_, where_.c_str());
    // The ratio is rounded up, and the bound of AddFp is attained.
    EXPECT_TRUE(ratio_ <= 1.0 + 0x1p-50) << name << ": " << ratio_ << " of the bound on " << where_;
  }

 private:
  static std::string Hex(double x) {
    char text[40];
    std::snprintf(text, sizeof text, "%a", x);
    return text;
  }

  double ratio_ = 0.0;
  std::string where_ = "nowhere";
};

void AddPair(HardDoubles* draws, double hi, Numbers* to) { to->Add(hi, draws->LowFor(hi)); }

// Arguments of an exponential from `lowest` to 1: anywhere, next to where the reduction changes
// (odd multiples of ln 2 / (2 * parts)), near 0, and the ends.
Numbers ExpArguments(double lowest, int parts, bool pairs) {
  HardDoubles draws(pairs ? "exp pairs" : "exp");
  Numbers x;
  const auto add = [&](double hi) {
    if (!(hi >= lowest) || !(hi <= 1.0)) return;
    if (pairs) {
      // At the lower end the whole argument must not be below.
      if (hi == lowest) return x.Add(hi);
      AddPair(&draws, hi, &x);
    } else {
      x.Add(hi);
    }
  };
  for (int i = 0; i < 9000; ++i) add(draws.Uniform(lowest, 1.0));
  for (int i = 0; i < 3000; ++i) add(draws.Uniform(-2.0, 1.0));
  for (int i = 0; i < 1500; ++i) add(draws.Wide(-80, -1));
  const double step = std::log(2.0) / (2.0 * parts);
  const auto steps = static_cast<std::uint64_t>(-lowest / step);
  for (int i = 0; i < 2500; ++i) {
    const auto multiple =
        i < 200 ? static_cast<double>(i) : static_cast<double>(draws.Below(steps));
    for (const int ulps : {-1, 0, 1}) add(UlpsFrom(-multiple * step, ulps));
    if (i < 2 * parts) add(UlpsFrom(multiple * step, static_cast<int>(draws.Below(3)) - 1));
  }
  for (int ulps = 0; ulps < 100; ++ulps) {
    add(UlpsFrom(lowest, ulps));
    add(UlpsFrom(1.0, -ulps));
  }
  for (const double end : {0.0, -0.0, 0x1p-1074, -0x1p-1074, 0x1p-1022}) add(end);
  return x;
}

template <class Constants>
void AttackExp(bool pairs, int parts) {
  const PrecisionScope precision(kBits);
  const Numbers x = ExpArguments(Constants::kExpLowest, parts, pairs);
  const auto all = OnAllTargets(pairs, Operation::kExp, x, x);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Ball exact = Exp(x.ball(i));
    for (const OnTarget& on : all) {
      worst.Add(on.results.ball(i) - exact, exact * Ball(Constants::kExp), on.target, x.hi(i),
                x.lo(i));
      if (x.hi(i) == 0.0 && x.lo(i) == 0.0) {
        EXPECT_EQ(on.results.hi(i), 1.0) << on.target;
        EXPECT_EQ(on.results.lo(i), 0.0) << on.target;
      }
    }
  }
  worst.Check(pairs ? "DoubleDoubleConstants_kExp" : "DoubleConstants_kExp");

  Numbers below;
  for (const double low :
       {UlpsFrom(Constants::kExpLowest, -1), -745.0, -760.0, -1e5, -0x1p60, -1e300, -HUGE_VAL}) {
    if (low < Constants::kExpLowest) below.Add(low);
  }
  for (const OnTarget& on : OnAllTargets(pairs, Operation::kExp, below, below)) {
    for (std::size_t i = 0; i < below.size(); ++i) {
      EXPECT_EQ(on.results.hi(i), 0.0) << on.target << " at " << below.hi(i);
      EXPECT_EQ(on.results.lo(i), 0.0) << on.target << " at " << below.hi(i);
    }
  }
  const Ball smallest = Exp(Ball(Constants::kExpLowest));
  EXPECT_GT((Ball(Constants::kSmallestExp) - smallest).Sign(), 0);
  EXPECT_GT((smallest - Ball(Constants::kSmallestExp / 2.0)).Sign(), 0);
}

TEST(RungArithmetic, ExpOfDoubles) { AttackExp<DoubleConstants>(false, 1); }
TEST(RungArithmetic, ExpOfDoubleDoubles) { AttackExp<DoubleDoubleConstants>(true, 256); }

TEST(RungArithmetic, ExpTableIsNearest) {
  const PrecisionScope precision(kBits);
  for (long k = 0; k < 256; ++k) {
    const Ball exact = Exp2(Ball(k) / Ball(256L));
    const auto at = static_cast<std::size_t>(2 * k);
    EXPECT_EQ(RoundedTo(exact, kFormatF64), kExpTable[at]) << k;
    const Ball rest = exact - Ball(kExpTable[at]);
    const double lo = rest.IsZero() ? 0.0 : RoundedTo(rest, kFormatF64).value_or(-1.0);
    EXPECT_EQ(lo, kExpTable[at + 1]) << k;
  }
}

// Pairs of operands: unrelated, nearly cancelling, of the same size, a low part against a high one.
void PairsOfOperands(const char* name, bool may_be_zero, Numbers* a, Numbers* b) {
  HardDoubles draws(name);
  for (int i = 0; i < 24000; ++i) {
    const double x = draws.Wide(-40, 40);
    AddPair(&draws, x, a);
    double y = draws.Wide(-40, 40);
    switch (draws.Below(6)) {
      case 0:
        y = -UlpsFrom(x, static_cast<int>(draws.Below(5)) - 2);
        break;
      case 1:
        y = std::copysign(std::ldexp(draws.Mantissa(), std::ilogb(x)), draws.Sign());
        break;
      case 2:
        y = draws.Sign() *
            std::ldexp(draws.Mantissa(), std::ilogb(x) - 53 + static_cast<int>(draws.Below(5)) - 2);
        break;
      case 3:
        y = draws.Sign() *
            std::ldexp(draws.Mantissa(), std::ilogb(x) - 106 + static_cast<int>(draws.Below(56)));
        break;
      default:
        break;
    }
    AddPair(&draws, y, b);
  }
  for (const double x : {1.0, -1.0, 1.0 + 2.0 * kU, 2.0 - 2.0 * kU, 1.5}) {
    for (const double y : {1.0, -1.0, 0.5, -0.5, -2.0 + 2.0 * kU, 0.0}) {
      if (y == 0.0 && !may_be_zero) continue;
      a->Add(x, 0.5 * kU);
      b->Add(y, y == 0.0 ? 0.0 : -0.25 * kU);
      a->Add(x);
      b->Add(y);
    }
  }
}

// `bound`, relative, in units of u^2; `unfused` where multiply-add is not fused.
void AttackPairs(const char* name, Operation operation, double bound, double unfused) {
  const PrecisionScope precision(512);
  const bool plain = operation == Operation::kAddFp || operation == Operation::kMulFp;
  Numbers a;
  Numbers b;
  PairsOfOperands(name, operation != Operation::kDiv, &a, &b);
  Worst worst;
  for (const OnTarget& on : OnAllTargets(true, operation, a, b)) {
    const Ball unit = Ball((on.fused ? bound : unfused) * kU2);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Ball x = a.ball(i);
      const Ball y = plain ? Ball(b.hi(i)) : b.ball(i);
      const bool sum = operation == Operation::kAdd || operation == Operation::kAddFp;
      const Ball exact = sum ? x + y : operation == Operation::kDiv ? x / y : x * y;
      const Ball error = on.results.ball(i) - exact;
      if (exact.IsZero()) {
        EXPECT_TRUE(error.IsZero()) << name << " on " << on.target;
        continue;
      }
      worst.Add(error, exact * unit, on.target, a.hi(i), b.hi(i));
      // The result is a double-double: the next operation counts on it.
      EXPECT_EQ(on.results.hi(i) + on.results.lo(i), on.results.hi(i)) << name;
    }
  }
  worst.Check(name);
  EXPECT_LE(std::max(bound, unfused) * kU2 * (1.0 + 0x1p-40), DoubleDoubleConstants::kUnit);
}

TEST(RungArithmetic, AddOfDoubleDoubles) {
  AttackPairs("Add", Operation::kAdd, 3.0 + 13.0 * kU, 3.0 + 13.0 * kU);
}
TEST(RungArithmetic, AddFpOfDoubleDoubles) { AttackPairs("AddFp", Operation::kAddFp, 2.0, 2.0); }
TEST(RungArithmetic, MulOfDoubleDoubles) { AttackPairs("Mul", Operation::kMul, 5.0, 8.0); }
TEST(RungArithmetic, MulFpOfDoubleDoubles) { AttackPairs("MulFp", Operation::kMulFp, 2.0, 3.0); }
TEST(RungArithmetic, DivOfDoubleDoubles) {
  AttackPairs("Div", Operation::kDiv, 15.0 + 56.0 * kU, 15.0 + 56.0 * kU);
}

TEST(RungArithmetic, TwoSumAndProductErrorAreExact) {
  const PrecisionScope precision(2400);
  Numbers a;
  Numbers b;
  PairsOfOperands("exact", true, &a, &b);
  HardDoubles draws("exact, wide");
  for (int i = 0; i < 4000; ++i) {
    const double x = draws.Wide(-480, 480);  // the error of the product is a normal number
    a.Add(x);
    b.Add(draws.Wide(-480, 480));
  }
  for (const Operation operation : {Operation::kTwoSum, Operation::kProductError}) {
    const bool sum = operation == Operation::kTwoSum;
    for (const OnTarget& on : OnAllTargets(true, operation, a, b)) {
      for (std::size_t i = 0; i < a.size(); ++i) {
        const Ball x(a.hi(i));
        const Ball y(b.hi(i));
        ASSERT_TRUE((on.results.ball(i) - (sum ? x + y : x * y)).IsZero())
            << on.target << ' ' << a.hi(i) << ' ' << b.hi(i);
        ASSERT_EQ(on.results.hi(i), sum ? a.hi(i) + b.hi(i) : a.hi(i) * b.hi(i)) << on.target;
      }
    }
  }
}

template <class Constants>
void AttackTanh(bool pairs) {
  const PrecisionScope precision(kBits);
  HardDoubles draws("tanh");
  Numbers x;
  for (int i = 0; i < 3000; ++i) AddPair(&draws, draws.Wide(-60, 2), &x);
  for (int i = 0; i < 3000; ++i) AddPair(&draws, draws.Uniform(-4.0, 4.0), &x);
  for (int i = 0; i < 1000; ++i) AddPair(&draws, draws.Uniform(-400.0, 400.0), &x);
  for (const double end : {0.0, 1e-300, 300.0, 354.0, 355.0, 1e10, 0x1p50, -0x1p50}) x.Add(end);
  const auto tanhs = OnAllTargets(pairs, Operation::kTanh, x, x);
  const auto complements = OnAllTargets(pairs, Operation::kComplement, x, x);
  const Ball bound(Constants::kExp + 4.0 * Constants::kUnit);                     // of BoundScores
  const Ball complement_bound(2.0 * (Constants::kExp + 9.0 * Constants::kUnit));  // of BoundRows
  Worst worst;
  Worst worst_complement;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Ball exact = Tanh(pairs ? x.ball(i) : Ball(x.hi(i)));
    const Ball complement = Ball(1.0) - exact * exact;
    for (std::size_t t = 0; t < tanhs.size(); ++t) {
      worst.Add(tanhs[t].results.ball(i) - exact, bound, tanhs[t].target, x.hi(i), x.lo(i));
      worst_complement.Add(complements[t].results.ball(i) - complement, complement_bound,
                           tanhs[t].target, x.hi(i), x.lo(i));
    }
  }
  worst.Check(pairs ? "DoubleDouble_tanh" : "Double_tanh");
  worst_complement.Check(pairs ? "DoubleDouble_complement" : "Double_complement");
}
TEST(RungArithmetic, TanhOfDoubles) { AttackTanh<DoubleConstants>(false); }
TEST(RungArithmetic, TanhOfDoubleDoubles) { AttackTanh<DoubleDoubleConstants>(true); }

template <class Constants>
void AttackGaussian(bool pairs) {
  const PrecisionScope precision(kBits);
  HardDoubles draws("gaussian");
  Numbers key;
  Numbers center;
  for (int i = 0; i < 6000; ++i) {
    const auto at = static_cast<double>(draws.Below(i % 2 == 0 ? 100 : 100000));
    key.Add(at);
    center.Add(i % 5 == 0 ? at - std::copysign(kHalfWidth, draws.Sign())
                          : at + draws.Uniform(-kHalfWidth, kHalfWidth));
  }
  Worst worst;
  const Ball bound(Constants::kExp + 16.0 * Constants::kUnit);
  const auto all = OnAllTargets(pairs, Operation::kGaussian, key, center);
  for (std::size_t i = 0; i < key.size(); ++i) {
    const Ball z = (key.ball(i) - center.ball(i)) / Ball(kHalfWidth);
    const Ball exact = Exp(Ball(-2.0) * z * z);
    for (const OnTarget& on : all) {
      worst.Add(on.results.ball(i) - exact, exact * bound, on.target, key.hi(i), center.hi(i));
    }
  }
  worst.Check(pairs ? "DoubleDouble_gaussian" : "Double_gaussian");
}
TEST(RungArithmetic, GaussianOfDoubles) { AttackGaussian<DoubleConstants>(false); }
TEST(RungArithmetic, GaussianOfDoubleDoubles) { AttackGaussian<DoubleDoubleConstants>(true); }

// Terms of a sum: of one size, of alternating sign and nearly cancelling, of far apart exponents,
// a large one before many that are half an ulp of it.
enum class Terms { kRandom, kAlternating, kWide, kAbsorbed };
constexpr int kTermKinds = 4;

double DrawTerm(Terms kind, std::size_t t, bool short_mantissa, HardDoubles* draws) {
  double value = draws->Sign() * draws->Mantissa();
  switch (kind) {
    case Terms::kRandom:
      break;
    case Terms::kAlternating:
      value = (t % 2 == 0 ? 1.0 : -1.0) * (1.0 + draws->Uniform(0.0, 0x1p-20));
      break;
    case Terms::kWide:
      value = draws->Wide(-40, 40);
      break;
    case Terms::kAbsorbed:
      value = t == 0 ? 1.0 : kU * draws->Uniform(0.99, 1.0);
      break;
  }
  return short_mantissa ? static_cast<double>(static_cast<float>(value)) : value;
}

template <class Constants>
void AttackSums(bool pairs, bool operand_pairs, bool exact, const char* name, bool biased = false) {
  const PrecisionScope precision(512);
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kResults = 3;
  constexpr std::size_t kBlock = 32;
  static_assert(kBlock == kScoreBlock && kBlock == kKeyBlock);
  HardDoubles draws(name);
  Worst worst;
  for (const std::size_t terms : std::vector<std::size_t>{1, 2, 3, 7, 31, 32, 33, 34, 63, 64, 65,
                                                          95, 96, 97, 128, 257, 1024, 1025}) {
    for (int kind = 0; kind < kTermKinds; ++kind) {
      Numbers x;
      for (std::size_t t = 0; t < terms; ++t) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          const double term = DrawTerm(static_cast<Terms>(kind), t, exact, &draws);
          if (operand_pairs) {
            AddPair(&draws, term, &x);
          } else {
            x.Add(term);
          }
        }
      }
      // The last result of absorbed terms has factors of 1, so that nothing is random.
      std::vector<double> y(kResults * terms);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const bool ones = kind == static_cast<int>(Terms::kAbsorbed) && i >= 2 * terms;
        y[i] = ones ? 1.0 : std::fabs(DrawTerm(Terms::kRandom, i, exact, &draws));
      }
      AlignedPlane operand(x, x.size());
      AlignedPlane out(kResults * kLanes);
      std::vector<Ball> sums;
      std::vector<Ball> magnitudes;
      for (std::size_t r = 0; r < kResults; ++r) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          Ball sum;
          Ball magnitude;
          for (std::size_t t = 0; t < terms; ++t) {
            const Ball number = x.ball(t * kLanes + lane);
            sum.AddProduct(number, y[r * terms + t]);
            magnitude.AddProduct(number.Sign() < 0 ? -number : number, std::fabs(y[r * terms + t]));
          }
          sums.push_back(sum);
          magnitudes.push_back(magnitude);
        }
      }
      // Of biased sums the error is relative to a bound of all sums of a lane.
      const Ball bound(biased ? BiasedSumError(static_cast<double>(terms))
                              : Constants::SumError(static_cast<double>(terms), kBlock));
      double bounds[kLanes] = {};
      for (std::size_t i = 0; i < magnitudes.size() && biased; ++i) {
        bounds[i % kLanes] = std::max(bounds[i % kLanes], magnitudes[i].MagnitudeBound());
      }
      for (std::size_t i = 0; i < magnitudes.size() && biased; ++i) {
        magnitudes[i] = Ball(bounds[i % kLanes]);
      }
      for (const std::string_view target : RunnableTargets()) {
        const auto scope = ScopedTarget::Force(target);
        HWY_DYNAMIC_DISPATCH(RunPanelTask)
        (pairs, operand_pairs, exact, operand.plane(), y.data(), terms, kBlock,
         biased ? bounds : nullptr, out.plane());
        for (std::size_t i = 0; i < sums.size(); ++i) {
          Ball sum(out.plane().hi[i]);
          if (pairs) sum += Ball(out.plane().lo[i]);
          worst.Add(sum - sums[i], magnitudes[i] * bound, target, static_cast<double>(terms), kind);
        }
      }
    }
  }
  worst.Check(name);
}
TEST(RungArithmetic, SumsOfDoubles) {
  AttackSums<DoubleConstants>(false, false, false, "Double_SumError");
}
TEST(RungArithmetic, SumsOfExactProductsInDouble) {
  AttackSums<DoubleConstants>(false, false, true, "Double_SumError_exact_products");
}
TEST(RungArithmetic, SumsOfDoubleDoubles) {
  AttackSums<DoubleDoubleConstants>(true, false, false, "DoubleDouble_SumError");
}
TEST(RungArithmetic, SumsOfExactProductsInDoubleDouble) {
  AttackSums<DoubleDoubleConstants>(true, false, true, "DoubleDouble_SumError_exact_products");
}
TEST(RungArithmetic, SumsWithDoubleDoubleOperands) {
  AttackSums<DoubleDoubleConstants>(true, true, false, "DoubleDouble_SumError_operand");
}

TEST(RungArithmetic, BiasedSums) {
  AttackSums<DoubleDoubleConstants>(true, false, false, "BiasedSumError", true);
}
TEST(RungArithmetic, BiasedSumsOfExactProducts) {
  AttackSums<DoubleDoubleConstants>(true, false, true, "BiasedSumError_exact_products", true);
}

}  // namespace
}  // namespace attest
#endif  // HWY_ONCE
