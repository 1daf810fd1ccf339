// SPDX-License-Identifier: Apache-2.0
#include "properties/reference_validation/midpoint_side.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attest {
namespace {

// Sums below this share of their terms' magnitudes are rounding errors: they are 0.
constexpr double kRoundingShare = 0x1p-300;

// A sum that knows whether it cancelled.
struct Sum {
  WitnessNumber value{0.0};
  WitnessNumber magnitude{0.0};

  void Add(const WitnessNumber& term) {
    value += term;
    magnitude += abs(term);
  }
  bool cancelled() const { return abs(value) <= WitnessNumber(kRoundingShare) * magnitude; }
};

WitnessNumber Expm1(const WitnessNumber& x) {
  WitnessNumber result;
  mpfr_expm1(result.backend().data(), x.backend().data(), MPFR_RNDN);
  return result;
}

}  // namespace

Side SignOfExponentialSum(const std::vector<ExponentialTerm>& terms) {
  std::vector<ExponentialTerm> groups;
  for (std::size_t from = 0, to = 0; from < terms.size(); from = to) {
    Sum sum;
    for (to = from; to < terms.size() && terms[to].exponent == terms[from].exponent; ++to) {
      sum.Add(terms[to].coefficient);
    }
    if (!sum.cancelled()) groups.push_back({terms[from].exponent, sum.value});
  }
  if (groups.empty()) return Side::kExactly;
  // sum of c e^d = sum of c + sum of c (e^d - 1), d <= 0 the distance to the largest exponent.
  Sum coefficients;
  Sum rest;
  for (const ExponentialTerm& group : groups) {
    coefficients.Add(group.coefficient);
    rest.Add(group.coefficient * Expm1(WitnessNumber(group.exponent - groups.front().exponent)));
  }
  Sum total = rest;
  if (!coefficients.cancelled()) {
    total.value += coefficients.value;
    total.magnitude += coefficients.magnitude;
  }
  if (total.cancelled()) return Side::kUnknown;
  return total.value > 0 ? Side::kAbove : Side::kBelow;
}

void MidpointSide::SelectRow(Index flat_head, Index row) {
  const Dimensions& s = textbook_.inputs().shape();
  if (flat_head != cached_head_) {
    head_ = textbook_.HeadWithoutSoftmax(flat_head / s.q_heads, flat_head % s.q_heads);
  } else if (row == cached_row_) {
    return;
  }
  cached_head_ = flat_head;
  cached_row_ = row;
  order_.clear();
  for (Index j = 0; j < s.kv_len; ++j) {
    if (head_.allowed(row, j)) order_.push_back(j);
  }
  std::sort(order_.begin(), order_.end(),
            [&](Index a, Index b) { return head_.scores(row, a) > head_.scores(row, b); });
}

Side MidpointSide::Of(const std::string& output, Index element, const WitnessNumber& r) {
  const TextbookInputs<WitnessNumber>& inputs = textbook_.inputs();
  const Dimensions& s = inputs.shape();
  const bool is_out = output == "out";
  const bool is_weight = output == "weights";
  if (!is_out && !is_weight && output != "lse") return Side::kUnknown;
  const Index columns = is_out ? s.v_dim : is_weight ? s.kv_len : 1;
  const Index column = element % columns;
  const Index row = element / columns % s.q_len;
  const Index flat_head = element / columns / s.q_len;
  SelectRow(flat_head, row);
  const double sink = inputs.Sink(flat_head % s.q_heads);
  if (order_.empty()) {  // the mean over all keys, or a value by rule
    if (inputs.contract().empty_row != EmptyRow::kUniform || std::isfinite(sink) ||
        output == "lse") {
      return Side::kUnknown;
    }
    std::vector<ExponentialTerm> mean;
    for (Index j = 0; j < s.kv_len; ++j) {
      const WitnessNumber value(is_out ? head_.v(j, column) : WitnessNumber(j == column ? 1 : 0));
      mean.push_back({WitnessNumber(0.0), WitnessNumber(value - r)});
    }
    return SignOfExponentialSum(mean);
  }

  const bool drops = inputs.Find("keep") != nullptr;
  const WitnessNumber kept(WitnessNumber(1.0) -
                           WitnessNumber(drops ? inputs.contract().dropout_rate : 0.0));
  const WitnessNumber target(is_out ? r * kept : r);
  std::vector<ExponentialTerm> terms;
  for (const Index j : order_) {
    WitnessNumber coefficient(1.0);
    if (is_out) {
      coefficient = head_.keep(row, j) * head_.gaussian(row, j) * head_.v(j, column) - target;
    } else if (is_weight) {
      coefficient = (j == column ? head_.gaussian(row, j) : WitnessNumber(0.0)) - target;
    }
    terms.push_back({head_.scores(row, j), std::move(coefficient)});
  }
  const auto insert = [&](ExponentialTerm term) {
    const auto after = std::upper_bound(
        terms.begin(), terms.end(), term,
        [](const ExponentialTerm& a, const ExponentialTerm& b) { return a.exponent > b.exponent; });
    terms.insert(after, std::move(term));
  };
  if (std::isfinite(sink)) {
    insert({WitnessNumber(sink), output == "lse" ? WitnessNumber(1.0) : WitnessNumber(-target)});
  }
  if (output == "lse") insert({r, WitnessNumber(-1.0)});
  return SignOfExponentialSum(terms);
}

}  // namespace attest
