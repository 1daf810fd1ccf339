// SPDX-License-Identifier: Apache-2.0
// Gradients of one block of rows in arithmetic A: grad_q, grad_bias, and what columns need.
//
// Rounding points and Bound: docs/reference.md, "Gradients on rungs 0 and 1"; rho, eX and nu are
//   named as there.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_GRADIENT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_GRADIENT_ROWS_INL_H_
#undef ATTEST_REFERENCE_GRADIENT_ROWS_INL_H_
#else
#define ATTEST_REFERENCE_GRADIENT_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/gradient_block.h"
#include "reference/row_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The errors of gradients that rows and columns share, relative to the factor m.
template <class A>
struct FactorError {
  using Constants = typename A::Constants;
  // keep / (1 - rate) times the Gaussian: a division, two products, and the Gaussian's own error.
  static double Of(double gaussian_half_width) {
    return 6.0 * Constants::kUnit +
           (gaussian_half_width > 0.0 ? Constants::kExp + 16.0 * Constants::kUnit : 0.0);
  }
};

// Largest |x| of each column over `rows` rows of `width`, those for which `counts` is true.
template <class Counts>
void ColumnMaxima(const double* x, std::size_t rows, std::size_t width, Counts counts,
                  std::vector<double>* maxima) {
  maxima->assign(width, 0.0);
  for (std::size_t r = 0; r < rows; ++r) {
    if (!counts(r)) continue;
    for (std::size_t c = 0; c < width; ++c) {
      (*maxima)[c] = std::max((*maxima)[c], std::fabs(x[r * width + c]));
    }
  }
}

template <class A, bool kExactProducts, class D>
class RowGradients : private RowScores<A, kExactProducts, D> {
  using Base = RowScores<A, kExactProducts, D>;
  using Base::block_;
  using Base::complements_;
  using Base::d_;
  using Base::head_;
  using Base::k_;
  using Base::keys_;
  using Base::kPairs;
  using Base::kUnit;
  using Base::lambda_;
  using Base::lanes_;
  using Base::pivot_;
  using Base::score_error_;
  using Base::v_;
  using Base::weights_;
  using typename Base::Constants;
  using typename Base::F;
  using typename Base::N;
  using typename Base::V;

 public:
  RowGradients(const HeadOperands& head, const RowBlock& block, const GradientRows& gradients,
               RungWorkspace& workspace)
      : Base(head, block, workspace, false), gradients_(gradients) {
    products_ = workspace.Get(Base::kFirstFreeSlot, keys_ * lanes_);
    grad_q_ =
        workspace.Get(Base::kFirstFreeSlot + 1, static_cast<std::size_t>(head.k_dim) * lanes_);
    if (block.softcap > 0.0) {
      complements_ = workspace.Get(Base::kFirstFreeSlot + 2, keys_ * lanes_);
    }
    bounds_ =
        workspace.Get(Base::kFirstFreeSlot + 3, static_cast<std::size_t>(head.k_dim) * lanes_);
  }

  std::uint32_t Run() {
    this->BoundScores();
    this->Scores();
    this->FinishScores();
    for (std::size_t first = 0; first < keys_; first += kKeyBlock) {
      this->Weigh(first, std::min(keys_, first + kKeyBlock));
    }
    this->AddSink();
    BoundGradOutProducts();
    GradOutProducts();
    Delta();
    BoundRows();
    const bool wants_q = std::any_of(gradients_.grad_q, gradients_.grad_q + block_.rows,
                                     [](const CertifiedValue* row) { return row != nullptr; });
    const bool wants_bias = std::any_of(gradients_.grad_bias, gradients_.grad_bias + block_.rows,
                                        [](const CertifiedValue* row) { return row != nullptr; });
    if (wants_q || wants_bias) ScoreGradients(wants_q);
    if (wants_q) StoreGradQ();
    StoreStatistics();
    return pending_;
  }

 private:
  // Bounds |<grad_out_i, v_j>| over the keys that a row sees (Cauchy-Schwarz).
  void BoundGradOutProducts() {
    HWY_ALIGN double v_norm[kMaxRowLanes];
    this->LargestSeen(head_.v_norm, v_norm);
    for (std::size_t i = 0; i < lanes_; ++i) {
      dp_bound_[i] = gradients_.grad_out_norm[i] * v_norm[i] * (1.0 + 0x1p-40);
    }
  }

  // <grad_out_i, v_j>.
  void GradOutProducts() {
    PanelTask task;
    task.x.hi = const_cast<double*>(gradients_.grad_out);
    task.lanes = lanes_;
    task.terms = static_cast<std::size_t>(head_.v_dim);
    task.block = kScoreBlock;
    task.y = v_;
    task.y_term = 1;
    task.y_result = task.terms;
    task.out = products_;
    task.results = keys_;
    Products<A, kExactProducts>(d_, task, dp_bound_);
  }

  // The factor m of lane and key; 1 where there is neither dropout nor a Gaussian.
  HWY_INLINE N Factor(std::size_t lane, std::size_t j, N inverse_kept) const {
    N factor = inverse_kept;
    if (block_.gaussian_half_width > 0.0) {
      factor = A::Mul(factor, this->GaussianOf(lane, j));
    }
    if (block_.keep != nullptr) {
      const auto keep = hn::Gt(hn::Load(d_, block_.keep + j * lanes_ + lane), hn::Zero(d_));
      factor = A::Select(keep, factor, A::Zero(d_));
    }
    return factor;
  }

  // dP in place of the products; delta, and the sum of |p dP| that bounds its error.
  void Delta() {
    const bool factors = block_.keep != nullptr || block_.gaussian_half_width > 0.0;
    const bool excludes = block_.additive.hi != nullptr;
    const N one = F::Number(d_, 1.0);
    const N inverse_kept = A::Div(one, F::Number(d_, block_.kept));
    this->ForLanes([&](std::size_t lane) {
      N total = A::Zero(d_);
      V magnitude = hn::Zero(d_);
      for (std::size_t first = 0; first < keys_; first += kKeyBlock) {
        auto sum = A::NewAccumulator(d_);
        const std::size_t last = std::min(keys_, first + kKeyBlock);
        for (std::size_t j = first; j < last; ++j) {
          const std::size_t at = j * lanes_ + lane;
          N dp = A::Load(d_, products_, at);
          if (factors) dp = A::Mul(dp, Factor(lane, j, inverse_kept));
          if (excludes) {  // whatever an excluded key holds
            const auto excluded = F::IsExcluded(d_, block_.additive, at);
            dp = A::Select(excluded, A::Zero(d_), dp);
          }
          if (factors || excludes) A::Store(d_, dp, products_, at);
          const N term = A::Mul(A::Load(d_, weights_, at), dp);
          A::AddAcc(term, sum);
          magnitude = hn::Add(magnitude, hn::Abs(A::Hi(term)));
        }
        total = A::Add(total, A::Sum(sum));
      }
      const N inverse = A::Div(one, A::Load(d_, this->Denominator(), lane));
      A::Store(d_, inverse, Inverse(), lane);
      A::Store(d_, A::Mul(total, inverse), DeltaPlane(), lane);
      hn::Store(hn::Mul(magnitude, A::Hi(inverse)), d_, delta_magnitude_ + lane);
    });
  }

  // nu, rho and eX of each row.
  void BoundRows() {
    const bool factors = block_.keep != nullptr || block_.gaussian_half_width > 0.0;
    const double factor_error = factors ? FactorError<A>::Of(block_.gaussian_half_width) : 0.0;
    const double sum_error = Constants::SumError(static_cast<double>(keys_), kKeyBlock);
    const double dot_error = ProductsError<A>(static_cast<double>(head_.v_dim));
    for (std::size_t i = 0; i < lanes_; ++i) {
      const double weight = 2.01 * lambda_[i] + 4.0 * kUnit;
      const double largest_dp = dp_bound_[i] / block_.kept.hi * (1.0 + 0x1p-40);
      const double dp_error = 1.01 * largest_dp * (dot_error + factor_error + 2.0 * kUnit) +
                              static_cast<double>(head_.v_dim) * kUnderflow / block_.kept.hi;
      const double magnitude = 1.01 * delta_magnitude_[i] + 1.01 * dp_error;
      const double tiny = static_cast<double>(keys_) * Constants::kSmallestExp;
      const double delta_error =
          1.01 * magnitude * (weight + sum_error + 4.0 * kUnit) + dp_error + tiny * largest_dp;
      const double shift_error =
          4.0 * kUnit * (largest_dp + magnitude + std::fabs(gradients_.grad_lse[i]));
      double complement_error = 0.0;
      if (block_.softcap > 0.0) {
        complement_error =
            1.01 * score_error_[i] / block_.softcap + 2.0 * (Constants::kExp + 10.0 * kUnit);
      }
      nu_[i] = weight + factor_error;
      rho_[i] = 1.02 * (weight + 6.0 * kUnit + complement_error);
      shift_[i] = 1.02 * (dp_error + delta_error + shift_error);
    }
  }

  // dS and, where grad_q is wanted, its sums; block by block of keys.
  void ScoreGradients(bool wants_q) {
    const std::size_t width = static_cast<std::size_t>(head_.k_dim);
    const double sum_error = Constants::SumError(static_cast<double>(keys_), kKeyBlock);
    std::vector<double> maxima;
    std::fill_n(bounds_.hi, width * lanes_, 0.0);
    PanelTask task;
    task.lanes = lanes_;
    task.block = kKeyBlock;
    task.y_term = width;
    task.y_result = 1;
    task.out = grad_q_;
    task.results = width;
    for (std::size_t first = 0; first < keys_; first += kKeyBlock) {
      const std::size_t last = std::min(keys_, first + kKeyBlock);
      HWY_ALIGN double errors[kMaxRowLanes];
      this->ForLanes([&](std::size_t lane) {
        const N inverse = A::Load(d_, Inverse(), lane);
        const N shift =
            A::Sub(F::LoadDoubles(d_, gradients_.grad_lse + lane), A::Load(d_, DeltaPlane(), lane));
        const V relative = hn::Add(hn::Load(d_, rho_ + lane), hn::Set(d_, 1.01 * sum_error));
        const V absolute = hn::Load(d_, shift_ + lane);
        V error = hn::Zero(d_);
        for (std::size_t j = first; j < last; ++j) {
          const std::size_t at = j * lanes_ + lane;
          const N p = A::Mul(A::Load(d_, weights_, at), inverse);
          const N x = A::Add(A::Load(d_, products_, at), shift);
          N ds = A::Mul(p, x);
          const V size = hn::Abs(A::Hi(x));
          error = hn::MulAdd(A::Hi(p), hn::MulAdd(relative, size, absolute), error);
          A::Store(d_, ds, products_, at);
        }
        hn::Store(error, d_, errors + lane);
      });
      StoreGradBias(first, last);
      if (!wants_q) continue;
      if (complements_.hi != nullptr) ApplyComplements(first, last);
      task.x = this->RowsOf(products_, first);
      task.terms = last - first;
      task.y = k_ + first * width;
      task.add = first > 0;
      Panel<A, A, false>(d_, task);
      ColumnMaxima(
          k_ + first * width, last - first, width,
          [&](std::size_t j) { return this->IsSeen(first + j); }, &maxima);
      for (std::size_t c = 0; c < width; ++c) {
        this->ForLanes([&](std::size_t lane) {
          const V bound = hn::Load(d_, bounds_.hi + c * lanes_ + lane);
          hn::Store(hn::MulAdd(hn::Set(d_, maxima[c]), hn::Load(d_, errors + lane), bound), d_,
                    bounds_.hi + c * lanes_ + lane);
        });
      }
    }
  }

  void ApplyComplements(std::size_t first, std::size_t last) {
    for (std::size_t at = first * lanes_; at < last * lanes_; at += hn::Lanes(d_)) {
      A::Store(d_, A::Mul(A::Load(d_, products_, at), A::Load(d_, complements_, at)), products_,
               at);
    }
  }

  void StoreGradBias(std::size_t first, std::size_t last) {
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    for (std::size_t i = 0; i < block_.rows; ++i) {
      if (gradients_.grad_bias[i] == nullptr) continue;
      for (std::size_t j = first; j < last; ++j) {
        CertifiedValue& value =
            gradients_.grad_bias[i][static_cast<std::size_t>(block_.first_key) + j];
        if (value.decided) continue;
        const std::size_t at = j * lanes_ + i;
        const double ds = products_.hi[at];
        const double p = weights_.hi[at] * inverse_hi_[i];
        const double radius = 1.02 * (rho_[i] * std::fabs(ds) + shift_[i] * p) +
                              Constants::kSmallestExp * LargestShift(i);
        value = Settle(ds, kPairs ? products_.lo[at] : 0.0, radius, gradients_.bias_dtype, rung);
        if (!value.decided) MarkPending(i);
      }
    }
  }
  // Bounds |dP - delta + grad_lse|.
  double LargestShift(std::size_t i) const {
    return 2.0 * gradients_.grad_out_norm[i] * LargestValueNorm() / block_.kept.hi +
           std::fabs(gradients_.grad_lse[i]) + 1.0;
  }
  double LargestValueNorm() const {
    double largest = 0.0;
    for (std::size_t j = 0; j < keys_; ++j) {
      largest = std::max(largest, head_.v_norm[static_cast<std::size_t>(block_.first_key) + j]);
    }
    return largest;
  }

  void StoreGradQ() {
    const std::size_t width = static_cast<std::size_t>(head_.k_dim);
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    const N scale = F::Number(d_, block_.scale);
    const double scale_size = std::fabs(block_.scale.hi);
    const double scale_error = F::ErrorOf(block_.scale);
    const double n = static_cast<double>(keys_);
    HWY_ALIGN double largest_shift[kMaxRowLanes];
    for (std::size_t i = 0; i < lanes_; ++i) largest_shift[i] = LargestShift(i);
    for (std::size_t c = 0; c < width; ++c) {
      const double k_max = head_.k_max[c];
      this->ForLanes([&](std::size_t lane) {
        const std::size_t at = c * lanes_ + lane;
        const N total = A::Load(d_, grad_q_, at);
        const N value = A::Mul(total, scale);
        A::Store(d_, value, grad_q_, at);
        // What exponentials that are taken as 0 may have been, and products that underflow.
        V tiny = hn::Mul(hn::Set(d_, n * Constants::kSmallestExp * k_max),
                         hn::Load(d_, largest_shift + lane));
        tiny = hn::Add(tiny, hn::Set(d_, n * 0x1p-1060));
        V radius =
            hn::Mul(hn::Set(d_, 1.01 * scale_size), hn::Add(hn::Load(d_, bounds_.hi + at), tiny));
        radius = hn::MulAdd(hn::Set(d_, 1.01 * scale_error), hn::Abs(A::Hi(total)), radius);
        radius = hn::MulAdd(hn::Set(d_, 4.0 * kUnit), hn::Abs(A::Hi(value)), radius);
        radius = hn::Add(radius, hn::Set(d_, 0x1p-1060));  // the last product may underflow
        if (k_max == 0.0) radius = hn::Zero(d_);
        hn::Store(radius, d_, bounds_.hi + at);
      });
    }
    for (std::size_t i = 0; i < block_.rows; ++i) {
      if (gradients_.grad_q[i] == nullptr) continue;
      if (!SettleAll(grad_q_.hi + i, kPairs ? grad_q_.lo + i : nullptr, bounds_.hi + i, lanes_,
                     width, gradients_.dtype, rung, gradients_.grad_q[i])) {
        MarkPending(i);
      }
    }
  }

  void StoreStatistics() {
    HWY_ALIGN double hi[kMaxRowLanes];
    HWY_ALIGN double lo[kMaxRowLanes];
    this->ForLanes([&](std::size_t lane) {
      const N sink = F::LoadDoubles(d_, block_.sink + lane);
      const N p = A::Mul(this->Exponential(sink, hn::Load(d_, pivot_ + lane)),
                         A::Load(d_, Inverse(), lane));
      const N x =
          A::Sub(F::LoadDoubles(d_, gradients_.grad_lse + lane), A::Load(d_, DeltaPlane(), lane));
      const N value = A::Mul(p, x);
      hn::Store(A::Hi(value), d_, hi + lane);
      hn::Store(A::Lo(d_, value), d_, lo + lane);
      hn::Store(A::Hi(p), d_, sink_weight_ + lane);
    });
    for (std::size_t i = 0; i < block_.rows; ++i) {
      RowStatistics* out = gradients_.statistics[i];
      if (out == nullptr) continue;
      const bool sink = block_.sink[i] != kExcluded;
      *out = {.valid = true,
              .pivot = pivot_[i],
              .inverse_hi = inverse_hi_[i],
              .inverse_lo = kPairs ? inverse_lo_[i] : 0.0,
              .delta_hi = delta_hi_[i],
              .delta_lo = kPairs ? delta_lo_[i] : 0.0,
              .grad_lse = gradients_.grad_lse[i],
              .weight_error = nu_[i],
              .relative_error = rho_[i],
              .absolute_error = shift_[i],
              .sink_hi = sink ? hi[i] : 0.0,
              .sink_lo = sink && kPairs ? lo[i] : 0.0,
              .sink_radius = 0.0};
      if (sink) {
        out->sink_radius = 1.02 * (rho_[i] * std::fabs(hi[i]) + sink_weight_[i] * shift_[i]) +
                           Constants::kSmallestExp * (1.01 * delta_magnitude_[i] + shift_[i] +
                                                      std::fabs(gradients_.grad_lse[i]) + 1.0);
      }
    }
  }

  void MarkPending(std::size_t row) { pending_ |= std::uint32_t{1} << row; }
  Plane Inverse() { return {inverse_hi_, inverse_lo_}; }
  Plane DeltaPlane() { return {delta_hi_, delta_lo_}; }

  const GradientRows& gradients_;
  Plane products_;                 // [keys, lanes]: <grad_out, v>, then dP, then dS, then dR
  Plane grad_q_;                   // [k_dim, lanes], before the scale
  Plane bounds_;                   // [k_dim, lanes], of the error of grad_q_
  double dp_bound_[kMaxRowLanes];  // of |<grad_out_i, v_j>|
  HWY_ALIGN double inverse_hi_[kMaxRowLanes];
  HWY_ALIGN double inverse_lo_[kMaxRowLanes];
  HWY_ALIGN double delta_hi_[kMaxRowLanes];
  HWY_ALIGN double delta_lo_[kMaxRowLanes];
  HWY_ALIGN double delta_magnitude_[kMaxRowLanes];
  HWY_ALIGN double sink_weight_[kMaxRowLanes];
  HWY_ALIGN double nu_[kMaxRowLanes];
  HWY_ALIGN double rho_[kMaxRowLanes];
  HWY_ALIGN double shift_[kMaxRowLanes];  // eX
  std::uint32_t pending_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_GRADIENT_ROWS_INL_H_
