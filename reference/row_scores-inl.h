// SPDX-License-Identifier: Apache-2.0
// Scores and weights of one block of rows in arithmetic A, with a proven bound of their errors.
//
// Computes: the scores of docs/contract.md, their pivot (the largest), the exponentials of the
//   differences to it, and their sum; row by lane.
// Rounding points and Bound: docs/reference.md, "Rungs 0 and 1"; E and Lambda are named as there.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_ROW_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_ROW_SCORES_INL_H_
#undef ATTEST_REFERENCE_ROW_SCORES_INL_H_
#else
#define ATTEST_REFERENCE_ROW_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/panel-inl.h"
#include "reference/row_block.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The functions of a number that rows and columns need.
template <class A, class D>
struct RungFunctions {
  using V = hn::Vec<D>;
  using N = typename A::N;
  static constexpr bool kPairs = sizeof(N) > sizeof(V);

  static HWY_INLINE N Number(D d, double hi, double lo = 0.0) {
    return A::Make(hn::Set(d, hi), hn::Set(d, lo));
  }
  static HWY_INLINE N Number(D d, const Enclosed& x) { return Number(d, x.hi, x.lo); }
  static HWY_INLINE N LoadDoubles(D d, const double* from) {
    return A::Make(hn::Load(d, from), hn::Zero(d));
  }
  static HWY_INLINE N Negative(D d, N x) { return A::Sub(A::Zero(d), x); }
  // Double-doubles keep the low part of a constant, doubles lose it.
  static double ErrorOf(const Enclosed& x) { return kPairs ? x.error : x.error + std::fabs(x.lo); }

  struct TanhPair {
    N tanh, complement;  // tanh(x), and 1 - tanh(x)^2
  };
  // With t = e^(-2|x|): tanh |x| = (1 - t) / (1 + t), 1 - tanh^2 = 4 t / (1 + t)^2.
  static HWY_INLINE TanhPair Tanh(D d, N x) {
    const auto negative = hn::Lt(A::Hi(x), hn::Zero(d));
    const N magnitude = A::Select(negative, Negative(d, x), x);
    const N t = A::Exp(d, Negative(d, A::Add(magnitude, magnitude)));
    const N one = Number(d, 1.0);
    const N below = A::Add(one, t);
    const N th = A::Div(A::Sub(one, t), below);
    return {A::Select(negative, Negative(d, th), th),
            A::Div(A::Mul(Number(d, 4.0), t), A::Mul(below, below))};
  }

  // exp(-2 (distance / half_width)^2) of local-p attention.
  static HWY_INLINE N Gaussian(D d, N distance, double half_width) {
    const N z = A::Div(distance, Number(d, half_width));
    return A::Exp(d, A::Mul(Number(d, -2.0), A::Mul(z, z)));
  }

  // Which lanes exclude the key at `at` of an additive plane.
  static HWY_INLINE hn::Mask<D> IsExcluded(D d, const Plane& additive, std::size_t at) {
    return hn::Eq(hn::Load(d, additive.hi + at), hn::Set(d, kExcluded));
  }

  // Score s plus element `at` of the additive plane. An excluded key has the score kExcluded
  // whatever its k holds: s may be larger than that, infinite or NaN.
  static HWY_INLINE N AddAdditive(D d, N s, const Plane& additive, std::size_t at) {
    const V lo = additive.lo == nullptr ? hn::Zero(d) : hn::Load(d, additive.lo + at);
    const N sum = A::Add(s, A::Make(hn::Load(d, additive.hi + at), lo));
    return A::Select(IsExcluded(d, additive, at), Number(d, kExcluded), sum);
  }
};

template <class A, bool kExactProducts, class D>
class RowScores {
 public:
  using V = hn::Vec<D>;
  using N = typename A::N;
  using Constants = typename A::Constants;
  using F = RungFunctions<A, D>;
  static constexpr bool kPairs = F::kPairs;
  static constexpr double kUnit = Constants::kUnit;

  // `with_gaussian`: whether weights are multiplied by the Gaussian where the block has one.
  RowScores(const HeadOperands& head, const RowBlock& block, RungWorkspace& workspace,
            bool with_gaussian)
      : head_(head),
        block_(block),
        with_gaussian_(with_gaussian && block.gaussian_half_width > 0.0),
        lanes_(block.lanes),
        keys_(static_cast<std::size_t>(block.last_key - block.first_key)),
        k_(head.k + block.first_key * head.k_dim),
        v_(head.v + block.first_key * head.v_dim) {
    weights_ = workspace.Get(kWeightsSlot, keys_ * lanes_);
    scaled_q_ = workspace.Get(kQuerySlot, static_cast<std::size_t>(head.k_dim) * lanes_);
  }

 protected:
  enum Slot : std::size_t { kWeightsSlot, kQuerySlot, kFirstFreeSlot };

  template <class Function>
  HWY_INLINE void ForLanes(Function f) const {
    for (std::size_t lane = 0; lane < lanes_; lane += hn::Lanes(d_)) f(lane);
  }
  // The largest of the head's `norms` over the keys that each row may see.
  void LargestSeen(const std::vector<double>& norms, double* largest_of) const {
    const double* norm = norms.data() + block_.first_key;
    if (block_.additive.hi == nullptr) {
      double largest = 0.0;
      for (std::size_t j = 0; j < keys_; ++j) largest = std::max(largest, norm[j]);
      std::fill(largest_of, largest_of + lanes_, largest);
    } else {
      ForLanes([&](std::size_t lane) {
        V largest = hn::Zero(d_);
        for (std::size_t j = 0; j < keys_; ++j) {
          const V additive = hn::Load(d_, block_.additive.hi + j * lanes_ + lane);
          const auto allowed = hn::Gt(additive, hn::Set(d_, kExcluded));
          largest = hn::Max(largest, hn::IfThenElseZero(allowed, hn::Set(d_, norm[j])));
        }
        hn::Store(largest, d_, largest_of + lane);
      });
    }
  }

  // E: bounds |computed - exact| of every allowed score minus the pivot; Lambda.
  void BoundScores() {
    HWY_ALIGN double k_max[kMaxRowLanes];
    LargestSeen(head_.k_norm, k_max);
    const double dims = static_cast<double>(head_.k_dim);
    const double sum_error = ProductsError<A>(dims);
    const double scale = std::fabs(block_.scale.hi) * (1.0 + 0x1p-50);
    const double cap = block_.softcap;
    const double keys_error = Constants::SumError(static_cast<double>(keys_), kKeyBlock);
    for (std::size_t i = 0; i < lanes_; ++i) {
      const double products = block_.q_norm[i] * k_max[i] * (1.0 + 0x1p-50);  // Cauchy-Schwarz
      product_bound_[i] = products;
      double error = scale * (1.001 * products * (sum_error + 2.0 * kUnit) +
                              dims * kUnderflow * (1.0 + k_max[i])) +
                     1.001 * products * F::ErrorOf(block_.scale);
      score_error_[i] = error;
      double size = scale * products * 1.001;
      if (cap > 0.0) {
        error += cap * (Constants::kExp + 6.0 * kUnit + Constants::kSmallestExp);
        size = std::min(size, cap * 1.001);
      }
      // Pivot and scores of keys that are not faint are no larger; see kFaint.
      size += size <= kFaintScore ? block_.near_magnitude[i] : block_.additive_magnitude[i];
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
    Products<A, kExactProducts>(d_, task, product_bound_);
  }

  // Scale, soft cap, bias and exclusion; the pivot of each lane.
  void FinishScores() {
    const N scale = F::Number(d_, block_.scale);
    const N cap = F::Number(d_, block_.softcap);
    const bool capped = block_.softcap > 0.0;
    const Plane& additive = block_.additive;
    const bool change = kPairs || capped || additive.hi != nullptr;
    if (!change) return Pivots();
    ForLanes([&](std::size_t lane) {
      V pivot = hn::Load(d_, block_.sink + lane);
      for (std::size_t j = 0; j < keys_; ++j) {
        const std::size_t at = j * lanes_ + lane;
        N s = A::Load(d_, weights_, at);
        if constexpr (kPairs) s = A::Mul(s, scale);
        if (capped) {
          const auto th = F::Tanh(d_, A::Div(s, cap));
          s = A::Mul(cap, th.tanh);
          if (complements_.hi != nullptr) A::Store(d_, th.complement, complements_, at);
        }
        if (additive.hi != nullptr) s = F::AddAdditive(d_, s, additive, at);
        A::Store(d_, s, weights_, at);
        pivot = hn::Max(pivot, A::Hi(s));
      }
      hn::Store(pivot, d_, pivot_ + lane);
    });
  }

  // The largest score of each lane, of scores that need no finishing.
  void Pivots() {
    std::copy_n(block_.sink, lanes_, pivot_);
    for (std::size_t j = 0; j < keys_; ++j) {
      ForLanes([&](std::size_t lane) {
        const V score = hn::Load(d_, weights_.hi + j * lanes_ + lane);
        hn::Store(hn::Max(hn::Load(d_, pivot_ + lane), score), d_, pivot_ + lane);
      });
    }
  }

  // e^(s - pivot); -0 where that is certainly below 2^-1095 (see StoreWeights).
  HWY_INLINE N Exponential(N s, V pivot) const {
    const N x = A::SubDouble(s, pivot);
    const N p = A::Exp(d_, x);
    if constexpr (!kPairs) return p;
    const auto vanishes = hn::Lt(A::Hi(x), hn::Set(d_, -760.0));
    return A::Select(vanishes, A::Make(hn::Set(d_, -0.0), hn::Zero(d_)), p);
  }

  // The weights of keys first .. last - 1 before normalisation (times the Gaussian); their sum, the
  // Gaussian left out, is added to the denominator.
  void Weigh(std::size_t first, std::size_t last) {
    constexpr std::size_t kVectors = kPairs ? 1 : 4;  // at once: memory is walked along
    const std::size_t width = hn::Lanes(d_);
    std::size_t lane = 0;
    for (; lane + kVectors * width <= lanes_; lane += kVectors * width) {
      WeighVectors<kVectors>(first, last, lane);
    }
    for (; lane < lanes_; lane += width) WeighVectors<1>(first, last, lane);
  }

  template <std::size_t kVectors>
  HWY_INLINE void WeighVectors(std::size_t first, std::size_t last, std::size_t lane) {
    const std::size_t width = hn::Lanes(d_);
    V pivots[kVectors];
    typename A::Accumulator sums[kVectors];
    HWY_UNROLL(4)
    for (std::size_t n = 0; n < kVectors; ++n) {
      pivots[n] = hn::Load(d_, pivot_ + lane + n * width);
      sums[n] = A::NewAccumulator(d_);
    }
    for (std::size_t j = first; j < last; ++j) {
      HWY_UNROLL(4)
      for (std::size_t n = 0; n < kVectors; ++n) {
        const std::size_t at = j * lanes_ + lane + n * width;
        N p = Exponential(A::Load(d_, weights_, at), pivots[n]);
        A::AddAcc(p, sums[n]);
        if (with_gaussian_) p = A::Mul(p, GaussianOf(lane + n * width, j));
        A::Store(d_, p, weights_, at);
      }
    }
    HWY_UNROLL(4)
    for (std::size_t n = 0; n < kVectors; ++n) {
      N total = A::Sum(sums[n]);
      const std::size_t at = lane + n * width;
      if (first > 0) total = A::Add(A::Load(d_, Denominator(), at), total);
      A::Store(d_, total, Denominator(), at);
    }
  }

  // The Gaussian of local-p attention of key j (counted from first_key).
  HWY_INLINE N GaussianOf(std::size_t lane, std::size_t j) const {
    const double key = static_cast<double>(block_.first_key) + static_cast<double>(j);
    const N center = F::LoadDoubles(d_, block_.gaussian_center + lane);
    return F::Gaussian(d_, A::Sub(F::Number(d_, key), center), block_.gaussian_half_width);
  }

  void AddSink() {
    ForLanes([&](std::size_t lane) {
      const N sink = F::LoadDoubles(d_, block_.sink + lane);
      const N p = Exponential(sink, hn::Load(d_, pivot_ + lane));
      A::Store(d_, A::Add(A::Load(d_, Denominator(), lane), p), Denominator(), lane);
    });
  }

  Plane Denominator() { return {denominator_hi_, denominator_lo_}; }
  Plane RowsOf(const Plane& plane, std::size_t first) const {
    return {plane.hi + first * lanes_, plane.lo + first * lanes_};
  }
  // Whether some row of the block may see key j (counted from first_key).
  bool IsSeen(std::size_t j) const {
    if (block_.additive.hi == nullptr) return true;
    const double* row = block_.additive.hi + j * lanes_;
    return std::any_of(row, row + block_.rows, [](double a) { return a != kExcluded; });
  }

  const D d_{};
  const HeadOperands& head_;
  const RowBlock& block_;
  const bool with_gaussian_;
  const std::size_t lanes_;
  const std::size_t keys_;
  const double* const k_;
  const double* const v_;
  Plane weights_;   // [keys, lanes]: scores, then weights before normalisation
  Plane scaled_q_;  // [k_dim, lanes]
  Plane
      complements_;  // [keys, lanes]: 1 - tanh^2 of capped scores, where a derived class wants them
  HWY_ALIGN double score_error_[kMaxRowLanes];  // of scores before the soft cap
  double product_bound_[kMaxRowLanes];          // of |<q, k_j>| for the keys that count
  HWY_ALIGN double lambda_[kMaxRowLanes];
  HWY_ALIGN double pivot_[kMaxRowLanes];
  HWY_ALIGN double denominator_hi_[kMaxRowLanes];
  HWY_ALIGN double denominator_lo_[kMaxRowLanes];
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_ROW_SCORES_INL_H_
