// SPDX-License-Identifier: Apache-2.0
// One block of rows in arithmetic A (double or double-double), with a proven bound of every result.
//
// Computes: scores, weights, denominator, output and LSE of docs/contract.md, row by lane.
// Rounding points and Bound: docs/reference.md, "Rungs 0 and 1"; E, Lambda and delta are named as
//   there.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_ROW_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_ROW_BLOCK_INL_H_
#undef ATTEST_REFERENCE_ROW_BLOCK_INL_H_
#else
#define ATTEST_REFERENCE_ROW_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "reference/panel-inl.h"
#include "reference/row_block.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class A, bool kExactProducts, class D>
class RowPass {
 public:
  using V = hn::Vec<D>;
  using N = typename A::N;
  using Constants = typename A::Constants;
  static constexpr bool kPairs = sizeof(N) > sizeof(V);
  static constexpr double kUnit = Constants::kUnit;

  RowPass(const HeadOperands& head, const RowBlock& block, RungWorkspace& workspace)
      : head_(head),
        block_(block),
        lanes_(block.lanes),
        keys_(static_cast<std::size_t>(block.last_key - block.first_key)),
        k_(head.k + block.first_key * head.k_dim),
        v_(head.v + block.first_key * head.v_dim),
        workspace_(workspace) {
    const auto k_dim = static_cast<std::size_t>(head.k_dim);
    const auto v_dim = static_cast<std::size_t>(head.v_dim);
    weights_ = workspace.Get(0, keys_ * lanes_);
    out_ = workspace.Get(1, v_dim * lanes_);
    scaled_q_ = workspace.Get(2, k_dim * lanes_);
    kept_ = workspace.Get(3, kKeyBlock * lanes_);
  }

  // The rows, as bits, that are left with an undecided element or without their conditions.
  std::uint32_t Run() {
    BoundScores();
    Scores();
    FinishScores();
    StoreExponents();
    SoftmaxAndOutput();
    StoreLogSumExp();
    StoreWeights();
    StoreOutput();
    StoreConditions();
    return pending_;
  }

 private:
  template <class F>
  HWY_INLINE void ForLanes(F f) const {
    for (std::size_t lane = 0; lane < lanes_; lane += hn::Lanes(d_)) f(lane);
  }
  HWY_INLINE N SetNumber(const Enclosed& x) const {
    return A::Make(hn::Set(d_, x.hi), hn::Set(d_, x.lo));
  }
  // Double-doubles keep the low part of a constant, doubles lose it.
  static double ErrorOf(const Enclosed& x) { return kPairs ? x.error : x.error + std::fabs(x.lo); }

  // E: bounds |computed - exact| of every allowed score minus the pivot; Lambda.
  void BoundScores() {
    HWY_ALIGN double k_max[kMaxRowLanes] = {};
    const double* norm = head_.k_norm.data() + block_.first_key;
    if (block_.additive.hi == nullptr) {
      double largest = 0.0;
      for (std::size_t j = 0; j < keys_; ++j) largest = std::max(largest, norm[j]);
      std::fill(k_max, k_max + lanes_, largest);
    } else {
      ForLanes([&](std::size_t lane) {
        V largest = hn::Zero(d_);
        for (std::size_t j = 0; j < keys_; ++j) {
          const V additive = hn::Load(d_, block_.additive.hi + j * lanes_ + lane);
          const auto allowed = hn::Gt(additive, hn::Set(d_, kExcluded));
          largest = hn::Max(largest, hn::IfThenElseZero(allowed, hn::Set(d_, norm[j])));
        }
        hn::Store(largest, d_, k_max + lane);
      });
    }
    const double dims = static_cast<double>(head_.k_dim);
    const double sum_error = Constants::SumError(dims, kScoreBlock);
    const double scale = std::fabs(block_.scale.hi) * (1.0 + 0x1p-50);
    const double cap = block_.softcap;
    const double keys_error = Constants::SumError(static_cast<double>(keys_), kKeyBlock);
    for (std::size_t i = 0; i < lanes_; ++i) {
      const double products = block_.q_norm[i] * k_max[i] * (1.0 + 0x1p-50);  // Cauchy-Schwarz
      double error = scale * (1.001 * products * (sum_error + 2.0 * kUnit) +
                              dims * kUnderflow * (1.0 + k_max[i])) +
                     1.001 * products * ErrorOf(block_.scale);
      double size = scale * products * 1.001;
      if (cap > 0.0) {
        error += cap * (Constants::kExp + 6.0 * kUnit + Constants::kSmallestExp);
        size = std::min(size, cap * 1.001);
      }
      size += block_.additive_magnitude[i];
      // Low parts of the additive plane are lost in double; one sum; then the pivot is subtracted
      // from a number of at most twice the size.
      error += size * (0x1p-99 + (kPairs ? 0.0 : kRoundoff) + 4.0 * kUnit);
      const bool valid = error < 1e-4 && size < kLargestSize;
      // The Gaussian's exponent is at most 2 and passes six roundings.
      const double gaussian =
          block_.gaussian_half_width > 0.0 ? Constants::kExp + 16.0 * kUnit : 0.0;
      lambda_[i] = valid ? 1.001 * (error + Constants::kExp + gaussian + keys_error + 8.0 * kUnit)
                         : HUGE_VAL;
    }
  }

  void Scores() {
    PanelTask task;
    task.x.hi = const_cast<double*>(block_.q);
    task.lanes = lanes_;
    task.terms = static_cast<std::size_t>(head_.k_dim);
    task.block = kScoreBlock;
    task.y = k_;
    task.y_term = 1;
    task.y_result = task.terms;
    task.out = weights_;
    task.results = keys_;
    if constexpr (!kPairs) {  // in double it costs nothing more to scale q instead of the scores
      const V scale = hn::Set(d_, block_.scale.hi);
      for (std::size_t i = 0; i < task.terms * lanes_; i += hn::Lanes(d_)) {
        hn::Store(hn::Mul(hn::Load(d_, block_.q + i), scale), d_, scaled_q_.hi + i);
      }
      task.x = scaled_q_;
    }
    Panel<A, DoubleOperand<D>, kExactProducts>(d_, task);
  }

  HWY_INLINE N CapScore(N s, N cap) const {
    const auto [th, complement] = TanhOf(A::Div(s, cap));
    (void)complement;
    return A::Mul(cap, th);
  }

  struct TanhPair {
    N tanh, complement;  // tanh(x), and 1 - tanh(x)^2
  };
  // With t = e^(-2|x|): tanh |x| = (1 - t) / (1 + t), 1 - tanh^2 = 4 t / (1 + t)^2.
  HWY_INLINE TanhPair TanhOf(N x) const {
    const auto negative = hn::Lt(A::Hi(x), hn::Zero(d_));
    const N minus = A::Sub(A::Zero(d_), x);
    const N magnitude = A::Select(negative, minus, x);
    const N t = A::Exp(d_, A::Sub(A::Zero(d_), A::Add(magnitude, magnitude)));
    const N one = A::Make(hn::Set(d_, 1.0), hn::Zero(d_));
    const N below = A::Add(one, t);
    const N th = A::Div(A::Sub(one, t), below);
    const N four_t = A::Mul(A::Make(hn::Set(d_, 4.0), hn::Zero(d_)), t);
    return {A::Select(negative, A::Sub(A::Zero(d_), th), th), A::Div(four_t, A::Mul(below, below))};
  }

  // Scale, soft cap, bias and exclusion; the pivot of each lane.
  void FinishScores() {
    const N scale = SetNumber(block_.scale);
    const N cap = A::Make(hn::Set(d_, block_.softcap), hn::Zero(d_));
    const bool capped = block_.softcap > 0.0;
    const Plane& additive = block_.additive;
    const bool change = kPairs || capped || additive.hi != nullptr;
    ForLanes([&](std::size_t lane) {
      V pivot = hn::Load(d_, block_.sink + lane);
      for (std::size_t j = 0; j < keys_; ++j) {
        const std::size_t at = j * lanes_ + lane;
        N s = A::Load(d_, weights_, at);
        if (change) {
          if constexpr (kPairs) s = A::Mul(s, scale);
          if (capped) s = CapScore(s, cap);
          if (additive.hi != nullptr) {
            const V low = additive.lo == nullptr ? hn::Zero(d_) : hn::Load(d_, additive.lo + at);
            s = A::Add(s, A::Make(hn::Load(d_, additive.hi + at), low));
          }
          A::Store(d_, s, weights_, at);
        }
        pivot = hn::Max(pivot, A::Hi(s));
      }
      hn::Store(pivot, d_, pivot_ + lane);
    });
  }

  // e^(s - pivot); -0 where that is certainly below 2^-1095 (see StoreWeights).
  HWY_INLINE N Exponential(N s, V pivot) const {
    const N x = A::Sub(s, A::Make(pivot, hn::Zero(d_)));
    const N p = A::Exp(d_, x);
    if constexpr (!kPairs) return p;
    const auto vanishes = hn::Lt(A::Hi(x), hn::Set(d_, -760.0));
    return A::Select(vanishes, A::Make(hn::Set(d_, -0.0), hn::Zero(d_)), p);
  }

  // exp(-2 ((j - p) / D)^2) of local-p attention.
  HWY_INLINE N Gaussian(std::size_t lane, std::size_t j) const {
    const double key = static_cast<double>(block_.first_key) + static_cast<double>(j);
    const N center = A::Make(hn::Load(d_, block_.gaussian_center + lane), hn::Zero(d_));
    const N distance = A::Sub(A::Make(hn::Set(d_, key), hn::Zero(d_)), center);
    const N z = A::Div(distance, A::Make(hn::Set(d_, block_.gaussian_half_width), hn::Zero(d_)));
    return A::Exp(d_, A::Mul(A::Make(hn::Set(d_, -2.0), hn::Zero(d_)), A::Mul(z, z)));
  }

  // Weights before normalisation (times the Gaussian), their sum, and the sums of kept weighted
  // values; key block by key block, so that what was just written is still near.
  void SoftmaxAndOutput() {
    const bool wants_out = std::any_of(block_.out, block_.out + block_.rows,
                                       [](const CertifiedValue* row) { return row != nullptr; });
    PanelTask task;
    task.lanes = lanes_;
    task.block = kKeyBlock;
    task.y_term = static_cast<std::size_t>(head_.v_dim);
    task.y_result = 1;
    task.out = out_;
    task.results = task.y_term;
    for (std::size_t first = 0; first < keys_; first += kKeyBlock) {
      const std::size_t last = std::min(keys_, first + kKeyBlock);
      ForLanes([&](std::size_t lane) {
        const V pivot = hn::Load(d_, pivot_ + lane);
        auto sum = A::NewAccumulator(d_);
        for (std::size_t j = first; j < last; ++j) {
          const std::size_t at = j * lanes_ + lane;
          N p = Exponential(A::Load(d_, weights_, at), pivot);
          A::AddAcc(p, sum);
          if (block_.gaussian_half_width > 0.0) p = A::Mul(p, Gaussian(lane, j));
          A::Store(d_, p, weights_, at);
        }
        N total = A::Sum(sum);
        if (first > 0) total = A::Add(A::Load(d_, Denominator(), lane), total);
        A::Store(d_, total, Denominator(), lane);
      });
      if (!wants_out) continue;
      task.x = block_.keep == nullptr ? RowsOf(weights_, first) : Kept(first, last);
      task.terms = last - first;
      task.y = v_ + first * task.y_term;
      task.add = first > 0;
      Panel<A, A, false>(d_, task);
    }
    ForLanes([&](std::size_t lane) {  // the sink
      const V pivot = hn::Load(d_, pivot_ + lane);
      const N sink = A::Make(hn::Load(d_, block_.sink + lane), hn::Zero(d_));
      const N total = A::Add(A::Load(d_, Denominator(), lane), Exponential(sink, pivot));
      A::Store(d_, total, Denominator(), lane);
    });
  }

  Plane RowsOf(const Plane& plane, std::size_t first) const {
    return {plane.hi + first * lanes_, plane.lo + first * lanes_};
  }

  // The weights of keys first .. last - 1 that dropout keeps, 0 for the others.
  Plane Kept(std::size_t first, std::size_t last) {
    const N none = A::Zero(d_);
    for (std::size_t i = 0; i < (last - first) * lanes_; i += hn::Lanes(d_)) {
      const auto keep = hn::Gt(hn::Load(d_, block_.keep + first * lanes_ + i), hn::Zero(d_));
      A::Store(d_, A::Select(keep, A::Load(d_, weights_, first * lanes_ + i), none), kept_, i);
    }
    return kept_;
  }

  Plane Denominator() { return {denominator_hi_, denominator_lo_}; }

  // Largest |v| of each column over the keys that some row of the block may see.
  std::vector<double> ValueBounds() const {
    if (block_.additive.hi == nullptr) return head_.v_max;
    const auto width = static_cast<std::size_t>(head_.v_dim);
    std::vector<double> bounds(width, 0.0);
    for (std::size_t j = 0; j < keys_; ++j) {
      const double* row = block_.additive.hi + j * lanes_;
      if (std::all_of(row, row + block_.rows, [](double a) { return a == kExcluded; })) continue;
      for (std::size_t c = 0; c < width; ++c) {
        bounds[c] = std::max(bounds[c], std::fabs(v_[j * width + c]));
      }
    }
    return bounds;
  }

  // Sum of |w v| over the keys, over the denominator: what V bounds, for one element.
  double Magnitude(std::size_t lane, std::size_t column) const {
    const auto width = static_cast<std::size_t>(head_.v_dim);
    double sum = 0.0;
    for (std::size_t j = 0; j < keys_; ++j) {
      const double keep = block_.keep == nullptr ? 1.0 : block_.keep[j * lanes_ + lane];
      sum += std::fabs(weights_.hi[j * lanes_ + lane] * v_[j * width + column]) * keep;
    }
    return 1.001 * sum / (denominator_hi_[lane] * block_.kept.hi);
  }

  void StoreOutput() {
    const auto width = static_cast<std::size_t>(head_.v_dim);
    const std::vector<double> bounds = ValueBounds();
    const N kept = SetNumber(block_.kept);
    const double n = static_cast<double>(keys_);
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    const bool quick = !kPairs && block_.out_dtype == DType::kF32;
    HWY_ALIGN double hi[kMaxRowLanes];
    HWY_ALIGN double lo[kMaxRowLanes];
    HWY_ALIGN double radius[kMaxRowLanes];
    for (std::size_t c = 0; c < width; ++c) {
      const double value_bound = bounds[c] / block_.kept.hi * (1.0 + 0x1p-50);
      const double tiny = 1.01 * n * Constants::kSmallestExp;
      ForLanes([&](std::size_t lane) {
        const N below = A::Mul(A::Load(d_, Denominator(), lane), kept);
        const N o = A::Div(A::Load(d_, out_, c * lanes_ + lane), below);
        const V size = hn::Abs(A::Hi(o));
        const V relative = hn::Mul(hn::Set(d_, 1.002), hn::Load(d_, lambda_ + lane));
        V bound =
            hn::Mul(hn::Add(relative, hn::Set(d_, tiny)), hn::Add(hn::Set(d_, value_bound), size));
        bound = hn::MulAdd(hn::Set(d_, 6.0 * kUnit), size, bound);
        bound = hn::Add(bound, hn::Set(d_, bounds[c] == 0.0 ? 0.0 : n * 0x1p-1060));
        hn::Store(A::Hi(o), d_, hi + lane);
        hn::Store(A::Lo(d_, o), d_, lo + lane);
        hn::Store(bound, d_, radius + lane);
      });
      for (std::size_t i = 0; i < block_.rows; ++i) {
        if (block_.out[i] == nullptr || block_.out[i][c].decided) continue;
        CertifiedValue& out = block_.out[i][c];
        out = quick ? SettleF32(hi[i], radius[i], rung)
                    : Settle(hi[i], lo[i], radius[i], block_.out_dtype, rung);
        if (!out.decided && std::isfinite(radius[i])) {
          // The magnitude proper instead of its bound, for this element alone.
          const double less = 1.002 * lambda_[i] * (value_bound - Magnitude(i, c));
          out = Settle(hi[i], lo[i], std::max(0.0, radius[i] - less) + 0x1p-52 * radius[i],
                       block_.out_dtype, rung);
        }
        if (!out.decided) MarkPending(i);
      }
    }
  }
  void MarkPending(std::size_t row) { pending_ |= std::uint32_t{1} << row; }

  // Whether weight p, before normalisation, is the mark that Exponential left.
  static bool Vanishes(double p) { return p == 0.0 && std::signbit(p); }

  void StoreWeights() {
    if (std::none_of(block_.weights, block_.weights + block_.rows,
                     [](const CertifiedValue* row) { return row != nullptr; })) {
      return;
    }
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    HWY_ALIGN double hi[kMaxRowLanes];
    HWY_ALIGN double lo[kMaxRowLanes];
    for (std::size_t j = 0; j < keys_; ++j) {
      ForLanes([&](std::size_t lane) {
        const N w =
            A::Div(A::Load(d_, weights_, j * lanes_ + lane), A::Load(d_, Denominator(), lane));
        hn::Store(A::Hi(w), d_, hi + lane);
        hn::Store(A::Lo(d_, w), d_, lo + lane);
      });
      for (std::size_t i = 0; i < block_.rows; ++i) {
        if (block_.weights[i] == nullptr) continue;
        CertifiedValue& weight = block_.weights[i][static_cast<std::size_t>(block_.first_key) + j];
        if (weight.decided) continue;
        if (Vanishes(weights_.hi[j * lanes_ + i]) && std::isfinite(lambda_[i])) {
          weight = {0.0, 0.0, 0.0, 0x1p-1074, rung, true};
          continue;
        }
        const double radius =
            2.01 * lambda_[i] * hi[i] + 6.0 * kUnit * hi[i] + 1.01 * Constants::kSmallestExp;
        weight = Settle(hi[i], lo[i], radius, block_.out_dtype, rung);
        if (!weight.decided) MarkPending(i);
      }
    }
  }

  // ln l = y + ln(l e^-y) for any y near it: with z = l e^-y - 1 tiny, ln(1 + z) = z - z^2 / 2.
  // In double-double on both rungs, since it is done once a row.
  void StoreLogSumExp() {
    HWY_ALIGN double y[kMaxRowLanes];
    for (std::size_t i = 0; i < lanes_; ++i) y[i] = std::log(denominator_hi_[i]);
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    ForLanes([&](std::size_t lane) {
      const V approximate = hn::Load(d_, y + lane);
      const N l = A::Load(d_, Denominator(), lane);
      const DoubleDouble<V> sum{A::Hi(l), A::Lo(d_, l)};
      const DoubleDouble<V> argument{hn::Neg(approximate), hn::Zero(d_)};
      auto z =
          AddFp(HWY_NAMESPACE::Mul(d_, sum, HWY_NAMESPACE::Exp(d_, argument)), hn::Set(d_, -1.0));
      const V half_square = hn::Mul(hn::Set(d_, -0.5), hn::Mul(z.hi, z.hi));
      auto lse = TwoSum(hn::Load(d_, pivot_ + lane), approximate);
      lse = HWY_NAMESPACE::Add(lse, AddFp(z, half_square));
      HWY_ALIGN double hi[kMaxRowLanes];
      HWY_ALIGN double lo[kMaxRowLanes];
      HWY_ALIGN double rest[kMaxRowLanes];
      hn::Store(lse.hi, d_, hi);
      hn::Store(lse.lo, d_, lo);
      hn::Store(z.hi, d_, rest);
      for (std::size_t i = lane; i < std::min(lane + hn::Lanes(d_), block_.rows); ++i) {
        if (block_.lse[i] == nullptr || block_.lse[i]->decided) continue;
        const std::size_t at = i - lane;
        const double cube = std::fabs(rest[at] * rest[at] * rest[at]);
        const double radius = 1.001 * lambda_[i] + 0x1p-99 + cube + 0x1p-100 * std::fabs(hi[at]) +
                              static_cast<double>(keys_) * Constants::kSmallestExp;
        *block_.lse[i] =
            Settle(hi[at], lo[at], rest[at] < 0x1p-40 ? radius : HUGE_VAL, block_.lse_dtype, rung);
        if (!block_.lse[i]->decided) MarkPending(i);
      }
    });
  }

  bool WantsConditions() const { return block_.weight_condition[0] != nullptr; }
  std::size_t HeadKey(std::size_t j) const {
    return static_cast<std::size_t>(block_.first_key) + j;
  }

  // Scores minus pivot, before the exponentials take their place.
  void StoreExponents() {
    if (!WantsConditions()) return;
    for (std::size_t j = 0; j < keys_; ++j) {
      for (std::size_t i = 0; i < block_.rows; ++i) {
        block_.log_weight_condition[i][HeadKey(j)] = weights_.hi[j * lanes_ + i] - pivot_[i];
      }
    }
  }

  // Weights, their logarithms, and |scale| sum |q k| rounded up.
  void StoreConditions() {
    if (!WantsConditions()) return;
    for (std::size_t i = 0; i < block_.rows; ++i) {
      if (!(lambda_[i] < kConditionAccuracy / 4.0)) MarkPending(i);
      const double log_denominator = std::log(denominator_hi_[i]);
      for (std::size_t j = 0; j < keys_; ++j) {
        const double w = weights_.hi[j * lanes_ + i] / denominator_hi_[i];
        block_.weight_condition[i][HeadKey(j)] = w;
        block_.log_weight_condition[i][HeadKey(j)] -= log_denominator;
      }
    }
    PanelTask task;
    task.lanes = lanes_;
    task.terms = static_cast<std::size_t>(head_.k_dim);
    task.block = kScoreBlock;
    task.y = head_.k_magnitude + block_.first_key * head_.k_dim;
    task.y_term = 1;
    task.y_result = task.terms;
    task.results = keys_;
    task.out = weights_;
    task.x = scaled_q_;
    for (std::size_t i = 0; i < task.terms * lanes_; i += hn::Lanes(d_)) {
      hn::Store(hn::Abs(hn::Load(d_, block_.q + i)), d_, scaled_q_.hi + i);
    }
    Panel<DoubleArithmetic<D>, DoubleOperand<D>, true>(d_, task);
    const double scale = std::fabs(block_.scale.hi) * (1.0 + 0x1p-40);
    for (std::size_t i = 0; i < block_.rows; ++i) {
      for (std::size_t j = 0; j < keys_; ++j) {
        block_.score_condition[i][HeadKey(j)] = weights_.hi[j * lanes_ + i] * scale;
      }
    }
  }

  const D d_;
  const HeadOperands& head_;
  const RowBlock& block_;
  const std::size_t lanes_;
  const std::size_t keys_;
  const double* const k_;
  const double* const v_;
  Plane weights_;   // [keys, lanes]: scores, then weights before normalisation
  Plane out_;       // [v_dim, lanes]
  Plane scaled_q_;  // [k_dim, lanes]
  Plane kept_;      // [kKeyBlock, lanes]
  RungWorkspace& workspace_;
  std::uint32_t pending_ = 0;
  HWY_ALIGN double lambda_[kMaxRowLanes];
  HWY_ALIGN double pivot_[kMaxRowLanes];
  HWY_ALIGN double denominator_hi_[kMaxRowLanes];
  HWY_ALIGN double denominator_lo_[kMaxRowLanes];
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_ROW_BLOCK_INL_H_
