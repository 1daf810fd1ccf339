// SPDX-License-Identifier: Apache-2.0
// Gradients of one block of keys in arithmetic A: grad_k and grad_v, summed over all rows.
//
// Rounding points and Bound: docs/reference.md, "Gradients on rungs 0 and 1". Tiles of up to
//   kKeyBlock rows are taken in order; each adds its largest |q| and |grad_out| of a column times
//   the sum of the errors of its coefficients to the bound.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_REFERENCE_GRADIENT_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_REFERENCE_GRADIENT_COLUMNS_INL_H_
#undef ATTEST_REFERENCE_GRADIENT_COLUMNS_INL_H_
#else
#define ATTEST_REFERENCE_GRADIENT_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/gradient_block.h"
#include "reference/gradient_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class A, bool kExactProducts, class D>
class ColumnGradients {
  using V = hn::Vec<D>;
  using N = typename A::N;
  using Constants = typename A::Constants;
  using F = RungFunctions<A, D>;
  static constexpr bool kPairs = F::kPairs;
  static constexpr double kUnit = Constants::kUnit;

 public:
  ColumnGradients(const ColumnBlock& block, RungWorkspace& workspace)
      : block_(block),
        lanes_(block.lanes),
        k_dim_(static_cast<std::size_t>(block.k_dim)),
        v_dim_(static_cast<std::size_t>(block.v_dim)),
        sum_error_(Constants::SumError(static_cast<double>(block.rows), kKeyBlock)) {
    scores_ = workspace.Get(0, kKeyBlock * lanes_);
    products_ = workspace.Get(1, kKeyBlock * lanes_);
    weights_ = workspace.Get(2, kKeyBlock * lanes_);
    of_k_.values = workspace.Get(3, k_dim_ * lanes_);
    of_v_.values = workspace.Get(4, v_dim_ * lanes_);
    of_k_.bounds = workspace.Get(5, k_dim_ * lanes_);
    of_v_.bounds = workspace.Get(6, v_dim_ * lanes_);
  }

  std::uint32_t Run() {
    SelectColumns(block_.grad_k, k_dim_, &of_k_);
    SelectColumns(block_.grad_v, v_dim_, &of_v_);
    RowTile tile;
    [[maybe_unused]] Index rows = 0;
    while (block_.next(&tile)) {
      rows += static_cast<Index>(kKeyBlock);
      HWY_DASSERT(rows <= block_.rows);  // sum_error_ counts on it
      RowProducts(tile, block_.k, tile.q, k_dim_, block_.score_bound, scores_);
      RowProducts(tile, block_.v, tile.grad_out, v_dim_, block_.dp_bound, products_);
      Coefficients(tile);
      Accumulate(tile, products_, tile.q, score_errors_, &of_k_);
      Accumulate(tile, weights_, tile.grad_out, weight_errors_, &of_v_);
    }
    Store(Enclosed{1.0, 0.0, 0.0}, block_.grad_v, of_v_);
    Store(block_.scale, block_.grad_k, of_k_);
    return pending_;
  }

 private:
  template <class Function>
  HWY_INLINE void ForLanes(Function f) const {
    for (std::size_t lane = 0; lane < lanes_; lane += hn::Lanes(d_)) f(lane);
  }

  // The sums of one gradient, for those of its columns that some key wants.
  struct Sums {
    std::size_t width = 0;             // of the gradient
    std::vector<std::size_t> columns;  // ascending
    Plane values;                      // [columns, lanes]
    Plane bounds;                      // [columns, lanes], of the errors of values, in hi
    std::vector<double> selected;      // of one tile, where not all columns are wanted
    std::vector<double> maxima;
  };

  void SelectColumns(CertifiedValue* const* results, std::size_t width, Sums* sums) const {
    sums->width = width;
    for (std::size_t c = 0; c < width; ++c) {
      const bool wanted =
          std::any_of(results, results + block_.keys,
                      [&](const CertifiedValue* row) { return row != nullptr && !row[c].decided; });
      if (wanted) sums->columns.push_back(c);
    }
    for (double* array : {sums->values.hi, sums->values.lo, sums->bounds.hi}) {
      std::fill_n(array, sums->columns.size() * lanes_, 0.0);
    }
  }

  // out[r][lane] = <y_r, x_lane>.
  void RowProducts(const RowTile& tile, const double* x, const double* y, std::size_t width,
                   const double* bounds, const Plane& out) const {
    PanelTask task;
    task.x.hi = const_cast<double*>(x);
    task.lanes = lanes_;
    task.terms = width;
    task.block = kScoreBlock;
    task.y = y;
    task.y_term = 1;
    task.y_result = width;
    task.out = out;
    task.results = tile.rows;
    Products<A, kExactProducts>(d_, task, bounds);
  }

  // From scores and <grad_out, v> to dR (in products_) and p m (in weights_), with the sums of
  // their errors.
  void Coefficients(const RowTile& tile) {
    const N scale = F::Number(d_, block_.scale);
    const N cap = F::Number(d_, block_.softcap);
    const N inverse_kept = A::Div(F::Number(d_, 1.0), F::Number(d_, block_.kept));
    const bool gaussian = block_.gaussian_half_width > 0.0;
    const bool factors = gaussian || tile.keep != nullptr;
    ForLanes([&](std::size_t lane) {
      V score_error = hn::Zero(d_);
      V weight_error = hn::Zero(d_);
      for (std::size_t r = 0; r < tile.rows; ++r) {
        const std::size_t at = r * lanes_ + lane;
        const RowStatistics& row = tile.statistics[r];
        if (!row.valid) {
          A::Store(d_, A::Zero(d_), products_, at);
          A::Store(d_, A::Zero(d_), weights_, at);
          continue;
        }
        N s = A::Mul(A::Load(d_, scores_, at), scale);
        N complement = F::Number(d_, 1.0);
        if (block_.softcap > 0.0) {
          const auto th = F::Tanh(d_, A::Div(s, cap));
          s = A::Mul(cap, th.tanh);
          complement = th.complement;
        }
        if (tile.additive.hi != nullptr) s = F::AddAdditive(d_, s, tile.additive, at);
        const N x = A::SubDouble(s, hn::Set(d_, row.pivot));
        N p = A::Mul(A::Exp(d_, x), F::Number(d_, row.inverse_hi, row.inverse_lo));
        N dp = A::Load(d_, products_, at);
        if (tile.additive.hi != nullptr) {  // whatever an excluded key holds
          const auto excluded = F::IsExcluded(d_, tile.additive, at);
          p = A::Select(excluded, A::Zero(d_), p);
          dp = A::Select(excluded, A::Zero(d_), dp);
        }
        N weight = p;
        if (factors) {
          N factor = inverse_kept;
          if (gaussian) {
            const N distance =
                A::Sub(F::LoadDoubles(d_, block_.key + lane), F::Number(d_, tile.center[r]));
            factor = A::Mul(factor, F::Gaussian(d_, distance, block_.gaussian_half_width));
          }
          if (tile.keep != nullptr) {
            const auto keep = hn::Gt(hn::Load(d_, tile.keep + at), hn::Zero(d_));
            factor = A::Select(keep, factor, A::Zero(d_));
          }
          weight = A::Mul(p, factor);
          dp = A::Mul(dp, factor);
        }
        const N shift =
            A::Sub(F::Number(d_, row.grad_lse), F::Number(d_, row.delta_hi, row.delta_lo));
        const N size = A::Add(dp, shift);
        N dr = A::Mul(p, size);
        if (block_.softcap > 0.0) dr = A::Mul(dr, complement);
        A::Store(d_, dr, products_, at);
        A::Store(d_, weight, weights_, at);
        const V relative = hn::Set(d_, row.relative_error + 1.01 * sum_error_);
        const V error = hn::MulAdd(relative, hn::Abs(A::Hi(size)), hn::Set(d_, row.absolute_error));
        // An exponential that is taken as 0 may have been as much as kSmallestExp; excluded keys
        // have none.
        V smallest = hn::Set(d_, Constants::kSmallestExp);
        if (tile.additive.hi != nullptr) {
          const auto excluded = F::IsExcluded(d_, tile.additive, at);
          smallest = hn::IfThenElse(excluded, hn::Zero(d_), smallest);
        }
        const V magnitude = hn::MulAdd(hn::Set(d_, 1.1), hn::Abs(A::Hi(size)), error);
        score_error = hn::MulAdd(A::Hi(p), error, score_error);
        score_error = hn::MulAdd(smallest, magnitude, score_error);
        // Bounds may underflow, but not to 0 where a key takes part.
        const V something =
            hn::IfThenElseZero(hn::Gt(smallest, hn::Zero(d_)), hn::Set(d_, kSomething));
        score_error = hn::Add(score_error, something);
        weight_error = hn::Add(weight_error, something);
        const V weight_relative = hn::Set(d_, row.weight_error + 1.01 * sum_error_ + 2.0 * kUnit);
        weight_error = hn::MulAdd(A::Hi(weight), weight_relative, weight_error);
        weight_error = hn::MulAdd(smallest, hn::Set(d_, 1.1 / block_.kept.hi), weight_error);
      }
      hn::Store(score_error, d_, score_errors_ + lane);
      hn::Store(weight_error, d_, weight_errors_ + lane);
    });
  }
  // Adds, for each column c, the sum over rows of coefficient[r][lane] * y[r][c]; and its bound.
  void Accumulate(const RowTile& tile, const Plane& coefficients, const double* y,
                  const double* errors, Sums* sums) {
    const std::size_t count = sums->columns.size();
    if (count == 0) return;
    if (count < sums->width) {
      sums->selected.resize(tile.rows * count);
      for (std::size_t r = 0; r < tile.rows; ++r) {
        for (std::size_t c = 0; c < count; ++c) {
          sums->selected[r * count + c] = y[r * sums->width + sums->columns[c]];
        }
      }
      y = sums->selected.data();
    }
    PanelTask task;
    task.x = coefficients;
    task.lanes = lanes_;
    task.terms = tile.rows;
    task.block = kKeyBlock;
    task.y = y;
    task.y_term = count;
    task.y_result = 1;
    task.out = sums->values;
    task.results = count;
    task.add = true;
    Panel<A, A, false>(d_, task);
    ColumnMaxima(
        y, tile.rows, count, [&](std::size_t r) { return tile.statistics[r].valid; },
        &sums->maxima);
    for (std::size_t c = 0; c < count; ++c) {
      const double largest = sums->maxima[c];
      if (largest == 0.0) continue;
      ForLanes([&](std::size_t lane) {
        double* const bound = sums->bounds.hi + c * lanes_ + lane;
        const V error = hn::Load(d_, errors + lane);
        const V tiny = hn::IfThenElseZero(hn::Gt(error, hn::Zero(d_)), hn::Set(d_, kSomething));
        const V sum = hn::MulAdd(hn::Set(d_, largest), error, hn::Load(d_, bound));
        hn::Store(hn::Add(sum, tiny), d_, bound);
      });
    }
  }
  // Far below every other error, and far above where doubles end.
  static constexpr double kSomething = 0x1p-1060;

  void Store(const Enclosed& factor, CertifiedValue* const* results, const Sums& sums) {
    const Rung rung = kPairs ? Rung::kDoubleDouble : Rung::kDouble;
    const std::size_t count = sums.columns.size();
    const N scale = F::Number(d_, factor);
    const double scale_size = std::fabs(factor.hi);
    const double scale_error = F::ErrorOf(factor);
    const V tiny = hn::Set(d_, static_cast<double>(block_.rows) * 0x1p-1060);
    for (std::size_t at = 0; at < count * lanes_; at += hn::Lanes(d_)) {
      const N total = A::Load(d_, sums.values, at);
      const N value = A::Mul(total, scale);
      A::Store(d_, value, sums.values, at);
      const V bound = hn::Load(d_, sums.bounds.hi + at);
      V radius = hn::Mul(hn::Set(d_, 1.02 * scale_size), hn::Add(bound, tiny));
      radius = hn::MulAdd(hn::Set(d_, 1.01 * scale_error), hn::Abs(A::Hi(total)), radius);
      radius = hn::MulAdd(hn::Set(d_, 4.0 * kUnit), hn::Abs(A::Hi(value)), radius);
      radius = hn::Add(radius, hn::Set(d_, kSomething));  // the last product may underflow
      // A bound of 0: nothing but zeros.
      radius = hn::IfThenElse(hn::Eq(bound, hn::Zero(d_)), hn::Zero(d_), radius);
      hn::Store(radius, d_, sums.bounds.hi + at);
    }
    for (std::size_t i = 0; i < block_.keys; ++i) {
      if (results[i] == nullptr || count == 0) continue;
      const double* const hi = sums.values.hi + i;
      const double* const lo = kPairs ? sums.values.lo + i : nullptr;
      const double* const radius = sums.bounds.hi + i;
      bool all = true;
      if (count == sums.width) {
        all = SettleAll(hi, lo, radius, lanes_, count, block_.dtype, rung, results[i]);
      } else {
        for (std::size_t c = 0; c < count; ++c) {
          const std::size_t at = c * lanes_;
          const bool one = SettleAll(hi + at, lo == nullptr ? nullptr : lo + at, radius + at,
                                     lanes_, 1, block_.dtype, rung, results[i] + sums.columns[c]);
          all = all && one;
        }
      }
      if (!all) pending_ |= std::uint32_t{1} << i;
    }
  }

  const D d_{};
  const ColumnBlock& block_;
  const std::size_t lanes_;
  const std::size_t k_dim_;
  const std::size_t v_dim_;
  const double sum_error_;
  Plane scores_;    // [kKeyBlock, lanes]
  Plane products_;  // [kKeyBlock, lanes]: <grad_out, v>, then dR
  Plane weights_;   // [kKeyBlock, lanes]: p m
  Sums of_k_, of_v_;
  HWY_ALIGN double score_errors_[kMaxRowLanes];
  HWY_ALIGN double weight_errors_[kMaxRowLanes];
  std::uint32_t pending_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // ATTEST_REFERENCE_GRADIENT_COLUMNS_INL_H_
