// SPDX-License-Identifier: Apache-2.0
// Output, LSE, weights and conditions of one block of rows in arithmetic A.
//
// Computes: docs/contract.md, row by lane. Rounding points and Bound: docs/reference.md, "Rungs 0
//   and 1"; delta is named as there.

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
#include <vector>

#include "reference/row_block.h"
#include "reference/row_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class A, bool kExactProducts, class D>
class RowOutputs : private RowScores<A, kExactProducts, D> {
  using Base = RowScores<A, kExactProducts, D>;
  using Base::block_;
  using Base::d_;
  using Base::denominator_hi_;
  using Base::head_;
  using Base::keys_;
  using Base::kPairs;
  using Base::kUnit;
  using Base::lambda_;
  using Base::lanes_;
  using Base::pivot_;
  using Base::scaled_q_;
  using Base::v_;
  using Base::weights_;
  using typename Base::Constants;
  using typename Base::F;
  using typename Base::N;
  using typename Base::V;

 public:
  RowOutputs(const HeadOperands& head, const RowBlock& block, RungWorkspace& workspace)
      : Base(head, block, workspace, true) {
    out_ = workspace.Get(Base::kFirstFreeSlot, static_cast<std::size_t>(head.v_dim) * lanes_);
    kept_ = workspace.Get(Base::kFirstFreeSlot + 1, kKeyBlock * lanes_);
    radii_ = workspace.Get(Base::kFirstFreeSlot + 2, static_cast<std::size_t>(head.v_dim) * lanes_);
  }

  // The rows, as bits, that are left with an undecided element or without their conditions.
  std::uint32_t Run() {
    this->BoundScores();
    this->Scores();
    this->FinishScores();
    StoreExponents();
    SoftmaxAndOutput();
    StoreLogSumExp();
    StoreWeights();
    StoreOutput();
    StoreConditions();
    return pending_;
  }

 private:
  // Weights, denominator and the sums of kept weighted values, key block by key block, so that what
  // was just written is still near.
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
      this->Weigh(first, last);
      if (!wants_out) continue;
      task.x = block_.keep == nullptr ? this->RowsOf(weights_, first) : Kept(first, last);
      task.terms = last - first;
      task.y = v_ + first * task.y_term;
      task.add = first > 0;
      Panel<A, A, false>(d_, task);
    }
    this->AddSink();
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

  // Largest |v| of each column over the keys that some row of the block may see.
  std::vector<double> ValueBounds() const {
    if (block_.additive.hi == nullptr) return head_.v_max;
    const auto width = static_cast<std::size_t>(head_.v_dim);
    std::vector<double> bounds(width, 0.0);
    for (std::size_t j = 0; j < keys_; ++j) {
      if (!this->IsSeen(j)) continue;
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
    const N kept = F::Number(d_, block_.kept);
    const double n = static_cast<double>(keys_);
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    for (std::size_t c = 0; c < width; ++c) {
      const double value_bound = ValueBound(bounds[c]);
      const double tiny = 1.01 * n * Constants::kSmallestExp;
      this->ForLanes([&](std::size_t lane) {
        const std::size_t at = c * lanes_ + lane;
        const N below = A::Mul(A::Load(d_, this->Denominator(), lane), kept);
        const N o = A::Div(A::Load(d_, out_, at), below);
        const V size = hn::Abs(A::Hi(o));
        const V relative = hn::Mul(hn::Set(d_, 1.002), hn::Load(d_, lambda_ + lane));
        V bound =
            hn::Mul(hn::Add(relative, hn::Set(d_, tiny)), hn::Add(hn::Set(d_, value_bound), size));
        bound = hn::MulAdd(hn::Set(d_, 6.0 * kUnit), size, bound);
        bound = hn::Add(bound, hn::Set(d_, bounds[c] == 0.0 ? 0.0 : n * 0x1p-1060));
        A::Store(d_, o, out_, at);
        hn::Store(bound, d_, radii_.hi + at);
      });
    }
    for (std::size_t i = 0; i < block_.rows; ++i) {
      CertifiedValue* const out = block_.out[i];
      if (out == nullptr || SettleAll(out_.hi + i, kPairs ? out_.lo + i : nullptr, radii_.hi + i,
                                      lanes_, width, block_.out_dtype, rung, out)) {
        continue;
      }
      for (std::size_t c = 0; c < width; ++c) {
        if (out[c].decided) continue;
        if (std::isfinite(out[c].radius)) {
          // The magnitude proper instead of its bound, for this element alone.
          const double less = 1.002 * lambda_[i] * (ValueBound(bounds[c]) - Magnitude(i, c));
          const double radius = std::max(0.0, out[c].radius - less) + 0x1p-52 * out[c].radius;
          out[c] = Settle(out[c].hi, out[c].lo, radius, block_.out_dtype, rung);
        }
        if (!out[c].decided) MarkPending(i);
      }
    }
  }
  double ValueBound(double largest) const { return largest / block_.kept.hi * (1.0 + 0x1p-50); }
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
      this->ForLanes([&](std::size_t lane) {
        const N w = A::Div(A::Load(d_, weights_, j * lanes_ + lane),
                           A::Load(d_, this->Denominator(), lane));
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
    this->ForLanes([&](std::size_t lane) {
      const V approximate = hn::Load(d_, y + lane);
      const N l = A::Load(d_, this->Denominator(), lane);
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
        const std::size_t at = j * lanes_ + i;
        // The pivot is a high part, so that low parts count where scores are large.
        block_.log_weight_condition[i][HeadKey(j)] =
            (weights_.hi[at] - pivot_[i]) + (kPairs ? weights_.lo[at] : 0.0);
      }
    }
  }

  double SmallWeight(std::size_t lane, std::size_t j, double log_weight) const {
    if (block_.gaussian_half_width > 0.0) {
      const double distance = static_cast<double>(HeadKey(j)) - block_.gaussian_center[lane];
      const double z = distance / block_.gaussian_half_width;
      log_weight -= 2.0 * z * z;
    }
    return std::exp(log_weight);
  }

  // Weights, their logarithms, and |scale| sum |q k| rounded up.
  void StoreConditions() {
    if (!WantsConditions()) return;
    for (std::size_t i = 0; i < block_.rows; ++i) {
      if (!(lambda_[i] < kConditionAccuracy / 4.0)) MarkPending(i);
      const double log_denominator = std::log(denominator_hi_[i]);
      for (std::size_t j = 0; j < keys_; ++j) {
        double& log_weight = block_.log_weight_condition[i][HeadKey(j)];
        log_weight -= log_denominator;
        const double w = weights_.hi[j * lanes_ + i] / denominator_hi_[i];
        // The rungs take smaller exponentials as 0 than a double does.
        block_.weight_condition[i][HeadKey(j)] = w != 0.0 ? w : SmallWeight(i, j, log_weight);
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

  Plane out_;    // [v_dim, lanes]: sums, then outputs
  Plane radii_;  // [v_dim, lanes], of out_, in hi
  Plane kept_;   // [kKeyBlock, lanes]
  std::uint32_t pending_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_ROW_BLOCK_INL_H_
