// SPDX-License-Identifier: Apache-2.0
#include "optimized/head_rules.h"

#include <algorithm>
#include <cmath>

#include "optimized/rows.h"

namespace attest {
namespace {

// Its part of an optional tensor; without data when there is none.
Input<2> PartOf(const std::optional<Input<4>>& tensor, Index batch, Index head) {
  return tensor ? OfHead(*tensor, batch, head) : Input<2>();
}

// The last axis of a tensor.
template <std::size_t Rank, class... Indices>
Input<1> RowOf(const Input<Rank>& tensor, Indices... index) {
  return {At(tensor, index...), tensor.dtype, {tensor.shape[Rank - 1]}, {tensor.strides[Rank - 1]}};
}

double Element(const Input<1>& row, Index i) { return ReadElement(row.dtype, At(row, i)); }

Index LengthOf(const std::optional<Input<1>>& lengths, Index batch, Index capacity) {
  return lengths ? static_cast<Index>(Element(*lengths, batch)) : capacity;
}

std::int32_t IntegerAt(const Input<1>& row, Index i) {
  return *static_cast<const std::int32_t*>(At(row, i));
}

// |j - center| <= half_width in exact arithmetic: where the rounded difference equals the half
// width, the rounding error of the difference decides (TwoSum of j and -center, Knuth).
bool WithinWindow(Index j, double center, double half_width) {
  const auto key = static_cast<double>(j);
  const double difference = key - center;
  if (std::fabs(difference) != half_width) return std::fabs(difference) < half_width;
  const double part = difference - key;
  const double error = (key - (difference - part)) + (-center - part);
  return difference >= 0.0 ? error <= 0.0 : error >= 0.0;
}

}  // namespace

HeadRules::HeadRules(const AttentionArgs& args, Index batch, Index head)
    : q_len_(args.q.shape[2]),
      kv_len_(args.k.shape[2]),
      valid_rows_(LengthOf(args.q_lengths, batch, q_len_)),
      valid_keys_(LengthOf(args.kv_lengths, batch, kv_len_)),
      diagonal_(args.causal == Causal::kTopLeft ? 0 : valid_keys_ - valid_rows_),
      causal_(args.causal != Causal::kNone),
      window_(args.window),
      mask_(PartOf(args.mask, batch, head)),
      bias_(PartOf(args.bias, batch, head)),
      keep_(PartOf(args.keep, batch, head)),
      documents_(args.q_documents.has_value()) {
  if (documents_) {
    q_documents_ = RowOf(*args.q_documents, batch);
    kv_documents_ = RowOf(*args.kv_documents, batch);
  }
  if (args.local) {
    local_center_ = RowOf(*args.local_center, batch, head);
    half_width_ = args.local->half_width;
    gaussian_ = args.local->gaussian;
  }
  if (args.alibi_slopes) slope_ = Element(*args.alibi_slopes, head);
  if (args.keep) kept_ = 1.0 / (1.0 - args.dropout_rate);
  if (args.sinks) sink_ = Element(*args.sinks, head);
}

double HeadRules::Center(Index i) const { return Element(local_center_, i); }

KeyRange HeadRules::RangeOf(Index i) const {
  if (i >= valid_rows_) return {};
  KeyRange range{0, valid_keys_};
  const Index diagonal = i + diagonal_;
  if (causal_) range.end = std::min(range.end, diagonal + 1);
  if (window_.left >= 0) range.begin = std::max(range.begin, diagonal - window_.left);
  if (window_.right >= 0) range.end = std::min(range.end, diagonal + window_.right + 1);
  if (half_width_ >= 0.0) {
    const double center = Center(i);
    if (!std::isfinite(center) || range.end <= range.begin) {
      // Infinitely far from every key, or NaN: no key is within the window, whatever its width is
      // (an infinite one is refused).
      return {};
    }
    // One key to either side of the rounded ends, then exactly.
    const auto clamped = [&](double key) {
      return static_cast<Index>(std::clamp(key, static_cast<double>(range.begin) - 1.0,
                                           static_cast<double>(range.end) + 1.0));
    };
    Index begin = std::max(range.begin, clamped(std::floor(center - half_width_) - 1.0));
    Index end = std::min(range.end, clamped(std::ceil(center + half_width_) + 2.0));
    while (begin < end && !WithinWindow(begin, center, half_width_)) ++begin;
    while (begin < end && !WithinWindow(end - 1, center, half_width_)) --end;
    range = {begin, end};
  }
  return range.begin < range.end ? range : KeyRange{};
}

KeyRange HeadRules::RangeOfRows(Index first, Index last) const {
  KeyRange all{std::numeric_limits<Index>::max(), 0};
  for (Index i = first; i < last; ++i) {
    const KeyRange range = RangeOf(i);
    if (range.end <= range.begin) continue;
    all.begin = std::min(all.begin, range.begin);
    all.end = std::max(all.end, range.end);
  }
  return all.begin < all.end ? all : KeyRange{};
}

bool HeadRules::Allowed(Index i, Index j) const {
  const KeyRange range = RangeOf(i);
  if (j < range.begin || j >= range.end) return false;
  if (mask_.data != nullptr && *static_cast<const std::uint8_t*>(At(mask_, i, j)) == 0)
    return false;
  if (documents_ && IntegerAt(q_documents_, i) != IntegerAt(kv_documents_, j)) return false;
  return bias_.data == nullptr ||
         ReadElement(bias_.dtype, At(bias_, i, j)) != -std::numeric_limits<double>::infinity();
}

bool HeadRules::AnyAllowed(Index i) const {
  const KeyRange range = RangeOf(i);
  if (!selects()) return range.begin < range.end;
  for (Index j = range.begin; j < range.end; ++j) {
    if (Allowed(i, j)) return true;
  }
  return false;
}

template <class T>
void HeadRules::FillTerms(Index i, Index first, std::size_t count, double unit, T* terms) const {
  constexpr T kExcluded = -std::numeric_limits<T>::infinity();
  constexpr T kLowest = std::numeric_limits<T>::lowest();
  const auto at = [&](Index j) { return static_cast<std::size_t>(j - first); };
  const KeyRange range = RangeOf(i);
  const auto size = static_cast<Index>(count);
  const Index begin = std::clamp(range.begin, first, first + size);
  const Index end = std::clamp(range.end, begin, first + size);
  std::fill(terms, terms + at(begin), kExcluded);
  std::fill(terms + at(end), terms + count, kExcluded);
  if (begin == end) return;

  const auto factor = static_cast<T>(unit);
  if (bias_.data != nullptr) {
    ReadRow(bias_.dtype, At(bias_, i, begin), bias_.strides[1],
            static_cast<std::size_t>(end - begin), terms + at(begin));
    for (Index j = begin; j < end; ++j) {
      T& term = terms[at(j)];
      const T scaled = term * factor;
      // NaN passes: it is not below the lowest number.
      term = term == kExcluded ? kExcluded : scaled < kLowest ? kLowest : scaled;
    }
  } else {
    std::fill(terms + at(begin), terms + at(end), T{0});
  }
  if (slope_ != 0.0) {
    const auto slope = static_cast<T>(slope_ * unit);
    const Index here = i + kv_len_ - q_len_;
    for (Index j = begin; j < end; ++j) {
      T& term = terms[at(j)];
      const T sum = term - slope * static_cast<T>(here > j ? here - j : j - here);
      term = term == kExcluded ? kExcluded : sum < kLowest ? kLowest : sum;
    }
  }
  if (mask_.data != nullptr) {
    for (Index j = begin; j < end; ++j) {
      if (*static_cast<const std::uint8_t*>(At(mask_, i, j)) == 0) terms[at(j)] = kExcluded;
    }
  }
  if (documents_) {
    const std::int32_t own = IntegerAt(q_documents_, i);
    for (Index j = begin; j < end; ++j) {
      if (IntegerAt(kv_documents_, j) != own) terms[at(j)] = kExcluded;
    }
  }
}

template <class T>
void HeadRules::FillFactors(Index i, Index first, std::size_t count, bool with_dropout,
                            T* factors) const {
  std::fill(factors, factors + count, T{1});
  if (gaussian_) {
    const double center = Center(i);
    const double sigma = 0.5 * half_width_;
    for (std::size_t t = 0; t < count; ++t) {
      const double distance = (static_cast<double>(first + static_cast<Index>(t)) - center) / sigma;
      factors[t] = static_cast<T>(std::exp(-0.5 * distance * distance));
    }
  }
  if (with_dropout && drops()) {
    const auto kept = static_cast<T>(kept_);
    for (std::size_t t = 0; t < count; ++t) {
      const bool keeps =
          *static_cast<const std::uint8_t*>(At(keep_, i, first + static_cast<Index>(t))) != 0;
      factors[t] = keeps ? factors[t] * kept : T{0};
    }
  }
}

template void HeadRules::FillTerms(Index, Index, std::size_t, double, float*) const;
template void HeadRules::FillTerms(Index, Index, std::size_t, double, double*) const;
template void HeadRules::FillFactors(Index, Index, std::size_t, bool, float*) const;
template void HeadRules::FillFactors(Index, Index, std::size_t, bool, double*) const;

}  // namespace attest
