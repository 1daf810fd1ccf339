// SPDX-License-Identifier: Apache-2.0
// Scores of every kind as right_gradient.h's variants compute them, in arithmetic T (float,
// double).
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "properties/right_gradient.h"
#include "reference/row_plan.h"

namespace attest {

// Sums up in the order of a variant; the products may be subnormal like any other number.
template <class T>
class Summation {
 public:
  explicit Summation(BackwardVariant variant) : variant_(variant) {}

  T operator()(std::vector<T> terms) const {
    if (variant_ == BackwardVariant::kReversed) std::reverse(terms.begin(), terms.end());
    return Sum(terms, 0, terms.size());
  }

  template <class X, class Y>
  T Dot(const X& x, const Y& y) const {
    std::vector<T> terms;
    terms.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      terms.push_back(static_cast<T>(x[i]) * static_cast<T>(y[i]));
    }
    return (*this)(std::move(terms));
  }

 private:
  T Sum(const std::vector<T>& terms, std::size_t first, std::size_t last) const {
    if (variant_ == BackwardVariant::kPairwise && last - first > 2) {
      const std::size_t middle = first + (last - first) / 2;
      return Sum(terms, first, middle) + Sum(terms, middle, last);
    }
    T sum = 0;
    for (std::size_t i = first; i < last; ++i) sum += terms[i];
    return sum;
  }

  BackwardVariant variant_;
};

// One key of a row while it is computed.
template <class T>
struct RightKey {
  const KeyTerm* term = nullptr;
  T score = 0;
  T cap_tanh = 0;
  std::vector<T> hidden = {};  // tanh of an additive score's units
  T weight = 0;                // normalised
  T factor = 1;                // Gaussian and dropout
  T dr = 0;
};

template <class T>
class RightScores {
 protected:
  using Key = RightKey<T>;

  RightScores(BackwardVariant variant, const Case& problem, const CaseData& data)
      : variant_(variant),
        problem_(problem),
        contract_(problem.contract),
        s_(problem.contract.shape),
        data_(data),
        sum_(variant) {
    const std::string& profile = contract_.arithmetic.profile;
    if (profile.ends_with("-flash") || profile.ends_with("-math")) narrow_ = contract_.dtype;
    math_ = profile.ends_with("-math");
    scale_ = contract_.scale.rsqrt_dk ? T{1} / std::sqrt(static_cast<T>(s_.k_dim))
                                      : static_cast<T>(contract_.scale.value);
  }

  // A value as it is stored between steps of the -math profiles.
  T Stored(T value) const { return math_ ? Narrowed(value) : value; }
  T Narrowed(T value) const {
    return narrow_ == DType::kF64
               ? value
               : static_cast<T>(RoundToDType(static_cast<double>(value), narrow_));
  }

  T RawScore(const RowId& row, Key* key) const {
    const std::span<const double> q = data_.Query(row);
    const std::span<const double> k = data_.Key(row, key->term->key);
    if (contract_.score == ScoreKind::kDot) {
      if (variant_ != BackwardVariant::kReversed) return Stored(Stored(sum_.Dot(q, k)) * scale_);
      std::vector<T> scaled;
      for (const double x : q) scaled.push_back(Stored(static_cast<T>(x) * scale_));
      return Stored(sum_.Dot(scaled, k));
    }
    if (contract_.score == ScoreKind::kGeneral) {
      std::vector<T> projected;
      if (variant_ == BackwardVariant::kReversed) {
        for (std::size_t a = 0; a < q.size(); ++a) {
          std::vector<T> terms;
          terms.reserve(k.size());
          for (std::size_t b = 0; b < k.size(); ++b) {
            terms.push_back(static_cast<T>(data_.WColumn(static_cast<Index>(b))[a]) *
                            static_cast<T>(k[b]));
          }
          projected.push_back(Stored(sum_(terms)));
        }
        return Stored(Stored(sum_.Dot(projected, q)) * scale_);
      }
      for (std::size_t b = 0; b < k.size(); ++b) {
        projected.push_back(Stored(sum_.Dot(q, data_.WColumn(static_cast<Index>(b)))));
      }
      return Stored(Stored(sum_.Dot(projected, k)) * scale_);
    }
    for (Index a = 0; a < data_.additive_width(); ++a) {
      T argument = 0;
      if (variant_ == BackwardVariant::kFlat) {
        std::vector<T> terms{static_cast<T>(data_.AdditiveBias(a))};
        for (std::size_t i = 0; i < q.size(); ++i) {
          terms.push_back(static_cast<T>(data_.WqRow(a)[i]) * static_cast<T>(q[i]));
        }
        for (std::size_t i = 0; i < k.size(); ++i) {
          terms.push_back(static_cast<T>(data_.WkRow(a)[i]) * static_cast<T>(k[i]));
        }
        argument = Stored(sum_(terms));
      } else {
        argument =
            Stored(Stored(sum_.Dot(data_.WqRow(a), q)) + Stored(sum_.Dot(data_.WkRow(a), k)));
        argument = Stored(argument + static_cast<T>(data_.AdditiveBias(a)));
      }
      key->hidden.push_back(Stored(std::tanh(argument)));
    }
    return Stored(Stored(sum_.Dot(data_.va(), key->hidden)) * scale_);
  }

  void Score(const RowId& row, Key* key) const {
    T score = RawScore(row, key);
    if (contract_.softcap > 0.0) {
      const T cap = static_cast<T>(contract_.softcap);
      key->cap_tanh = Stored(std::tanh(Stored(score / cap)));
      score = Stored(cap * key->cap_tanh);
    }
    score = Stored(score + static_cast<T>(key->term->bias));
    if (data_.has_alibi()) {
      const std::optional<double> given = data_.GivenSlope(row.head);
      const double slope = given ? *given : std::exp2(DefaultAlibiExponent(row.head, s_.q_heads));
      score = Stored(score - static_cast<T>(slope) * static_cast<T>(key->term->distance));
    }
    key->score = score;
  }

  const BackwardVariant variant_;
  const Case& problem_;
  const Contract& contract_;
  const Dimensions& s_;
  const CaseData& data_;
  const Summation<T> sum_;
  T scale_ = 1;

 private:
  DType narrow_ = DType::kF64;  // of operands; f64: not rounded
  bool math_ = false;
};

}  // namespace attest
