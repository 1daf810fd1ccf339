// SPDX-License-Identifier: Apache-2.0
#include "reference/row_inputs.h"

#include <algorithm>
#include <cmath>

#include "reference/rounding.h"

namespace attest {
namespace {

constexpr long kConstantBits = 256;  // precision of scale and slopes before they are rounded

Enclosed ToEnclosed(const Ball& ball) {
  const CentreRadius centre = ToCentreRadius(ball);
  return {centre.hi, centre.lo, centre.radius};
}

}  // namespace

Rung FirstRung(const CertifyOptions& options, const Contract& contract, DType dtype) {
  if (options.digits > 0 || contract.score != ScoreKind::kDot) return Rung::kBall;
  return std::max(options.first_rung, dtype == DType::kF64 ? Rung::kDoubleDouble : Rung::kDouble);
}

Enclosed KeptFraction(const CaseData& data) {
  // The rounding error of the difference of 1 and a smaller number is a double.
  const double rate = data.dropout_rate();
  return {1.0 - rate, (1.0 - (1.0 - rate)) - rate, 0.0};
}

bool Allows(const RowBlock& block, std::size_t lane, Index key) {
  if (key < block.first_key || key >= block.last_key) return false;
  const auto at = static_cast<std::size_t>(key - block.first_key) * block.lanes + lane;
  return block.additive.hi == nullptr || block.additive.hi[at] != kExcluded;
}

double NormBound(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  // Covers the roundings of the sum and products that underflow.
  return std::sqrt(sum) * (1.0 + (static_cast<double>(values.size()) + 4.0) * kRoundoff) +
         static_cast<double>(values.size()) * 0x1p-536;
}

bool AllFinite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

bool IsBeyondRungs(double sink) {
  return std::isnan(sink) || sink == HUGE_VAL || (std::isfinite(sink) && sink <= kExcluded);
}

RowInputs::RowInputs(const CaseData& data, bool conditions) : data_(data) {
  const Contract& contract = data.contract();
  const Dimensions& s = contract.shape;
  Ball::SetPrecision(kConstantBits);
  scale_ = contract.scale.rsqrt_dk ? ToEnclosed(Ball(1.0) / Sqrt(Ball(static_cast<long>(s.k_dim))))
                                   : Enclosed{contract.scale.value, 0.0, 0.0};
  for (Index h = 0; h < s.q_heads; ++h) {
    slopes_.emplace_back();
    if (!data.has_alibi()) continue;
    const std::optional<double> given = data.GivenSlope(h);
    slopes_.back() = given ? Enclosed{*given, 0.0, 0.0}
                           : ToEnclosed(Exp2(Ball(DefaultAlibiExponent(h, s.q_heads))));
  }
  const auto k_dim = static_cast<std::size_t>(s.k_dim);
  const auto v_dim = static_cast<std::size_t>(s.v_dim);
  const auto keys = static_cast<std::size_t>(s.kv_len);
  heads_.resize(static_cast<std::size_t>(s.batch * s.kv_heads));
  for (Index b = 0; b < s.batch; ++b) {
    for (Index g = 0; g < s.kv_heads; ++g) {
      OneHead& head = heads_[static_cast<std::size_t>(b * s.kv_heads + g)];
      HeadOperands& operands = head.operands;
      operands.keys = s.kv_len;
      operands.k_dim = s.k_dim;
      operands.v_dim = s.v_dim;
      operands.exact_products = contract.dtype != DType::kF64;
      operands.k_max.assign(k_dim, 0.0);
      operands.v_max.assign(v_dim, 0.0);
      if (keys == 0) continue;
      const RowId any{b, g * (s.q_heads / s.kv_heads), 0};
      operands.k = data.Key(any, 0).data();
      operands.v = data.Value(any, 0).data();
      head.special.resize(keys);
      for (std::size_t j = 0; j < keys; ++j) {
        head.special[j] = !AllFinite({operands.k + j * k_dim, k_dim}) ||
                          !AllFinite({operands.v + j * v_dim, v_dim});
        head.has_special = head.has_special || head.special[j];
      }
      if (head.has_special) {
        const auto finite = [](const double* values, std::size_t size) {
          std::vector<double> copy(values, values + size);
          for (double& value : copy) value = std::isfinite(value) ? value : 0.0;
          return copy;
        };
        head.finite_k = finite(operands.k, keys * k_dim);
        head.finite_v = finite(operands.v, keys * v_dim);
        operands.k = head.finite_k.data();
        operands.v = head.finite_v.data();
      }
      operands.k_norm.reserve(keys);
      operands.v_norm.reserve(keys);
      for (std::size_t j = 0; j < keys; ++j) {
        operands.k_norm.push_back(NormBound({operands.k + j * k_dim, k_dim}));
        operands.v_norm.push_back(NormBound({operands.v + j * v_dim, v_dim}));
        for (std::size_t c = 0; c < k_dim; ++c) {
          operands.k_max[c] = std::max(operands.k_max[c], std::fabs(operands.k[j * k_dim + c]));
        }
        for (std::size_t c = 0; c < v_dim; ++c) {
          operands.v_max[c] = std::max(operands.v_max[c], std::fabs(operands.v[j * v_dim + c]));
        }
      }
      if (conditions) {
        head.k_magnitude.assign(operands.k, operands.k + keys * k_dim);
        for (double& value : head.k_magnitude) value = std::fabs(value);
        operands.k_magnitude = head.k_magnitude.data();
      }
    }
  }
}

std::size_t RowInputs::HeadOf(const RowId& row) const {
  const Dimensions& s = data_.contract().shape;
  return static_cast<std::size_t>(row.batch * s.kv_heads + row.head / (s.q_heads / s.kv_heads));
}

bool RowInputs::IsSpecial(const RowId& row, Index key) const {
  return heads_[HeadOf(row)].special[static_cast<std::size_t>(key)];
}

Additive AdditiveAt(const RowInputs& inputs, const RowId& row, Index key) {
  const Dimensions& s = inputs.data().contract().shape;
  const double bias = inputs.data().BiasAt(row, key);
  const Enclosed& slope = inputs.Slope(row);
  // bias - slope * distance: the slope's high part times the distance is a product and its error,
  // what is rounded below is some 2^-104 of it.
  const auto distance = static_cast<double>(std::abs(row.query + s.kv_len - s.q_len - key));
  const double product = -slope.hi * distance;
  const double low = std::fma(-slope.hi, distance, -product) - slope.lo * distance;
  const double sum = bias + product;
  const double part = sum - bias;
  const double error = (bias - (sum - part)) + (product - part);
  const double tail = error + low;
  const double hi = sum + tail;
  return {hi, tail - (hi - sum), std::fabs(bias) + std::fabs(product)};
}

double* BlockBuilder::Reserve(hwy::AlignedFreeUniquePtr<double[]>* buffer, std::size_t* capacity,
                              std::size_t size) {
  if (*capacity < size) {
    *buffer = hwy::AllocateAligned<double>(size);
    *capacity = size;
  }
  return buffer->get();
}

RowBlock BlockBuilder::Build(std::span<const RowId> rows, std::size_t lanes,
                             std::vector<std::size_t>* refused) {
  const CaseData& data = inputs_.data();
  const Contract& contract = data.contract();
  RowBlock block;
  block.lanes = lanes;
  block.rows = rows.size();
  block.scale = inputs_.scale();
  block.softcap = contract.softcap;
  block.out_dtype = contract.out_dtype;
  block.lse_dtype = contract.wide_dtype();
  block.kept = KeptFraction(data);

  refused->clear();
  std::vector<KeyInterval> ranges;
  block.first_key = contract.shape.kv_len;
  for (const RowId& row : rows) {
    ranges.push_back(data.RangeOf(row));
    if (ranges.back().first == ranges.back().last) continue;
    block.first_key = std::min(block.first_key, ranges.back().first);
    block.last_key = std::max(block.last_key, ranges.back().last);
  }
  if (block.first_key >= block.last_key) {
    for (std::size_t i = 0; i < rows.size(); ++i) refused->push_back(i);
    return block;
  }
  const auto keys = static_cast<std::size_t>(block.last_key - block.first_key);
  bool additive = data.HasSelections() || data.has_alibi();
  for (const KeyInterval& range : ranges) {
    additive = additive || range.first != block.first_key || range.last != block.last_key;
  }
  const auto k_dim = static_cast<std::size_t>(contract.shape.k_dim);
  double* q = Reserve(&q_, &q_capacity_, k_dim * lanes);
  block.q = q;
  if (additive) {
    block.additive.hi = Reserve(&additive_hi_, &hi_capacity_, keys * lanes);
    std::fill_n(block.additive.hi, keys * lanes, kExcluded);
    block.additive.lo = Reserve(&additive_lo_, &lo_capacity_, keys * lanes);
    std::fill_n(block.additive.lo, keys * lanes, 0.0);
  }
  double* keep = nullptr;
  if (data.dropout_rate() > 0.0 || data.has_keep()) {
    keep = Reserve(&keep_, &keep_capacity_, keys * lanes);
    std::fill_n(keep, keys * lanes, 1.0);
    block.keep = keep;
  }
  const bool gaussian = contract.local && contract.local->gaussian;
  if (gaussian) block.gaussian_half_width = contract.local->half_width;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const RowId& row = rows[std::min(lane, rows.size() - 1)];
    const KeyInterval range = ranges[std::min(lane, rows.size() - 1)];
    const std::span<const double> values = data.Query(row);
    bool taken = AllFinite(values) && range.first < range.last;
    for (std::size_t d = 0; d < k_dim; ++d) q[d * lanes + lane] = taken ? values[d] : 0.0;
    block.q_norm[lane] = taken ? NormBound(values) : 0.0;
    const double sink = data.SinkOf(row);
    block.sink[lane] = std::isfinite(sink) ? sink : kExcluded;
    if (IsBeyondRungs(sink)) taken = false;
    if (gaussian) block.gaussian_center[lane] = data.LocalCenter(row);
    if (lane >= rows.size()) continue;
    if (taken) taken = FillLane(row, range, lane, &block);
    if (taken && keep != nullptr) {
      for (Index j = range.first; j < range.last; ++j) {
        if (!data.Keeps(row, j)) {
          keep[static_cast<std::size_t>(j - block.first_key) * lanes + lane] = 0.0;
        }
      }
    }
    if (!taken) refused->push_back(lane);
  }
  return block;
}

// The additive plane of one row; false where no key is allowed, or something that takes part is NaN
// or infinite.
bool BlockBuilder::FillLane(const RowId& row, const KeyInterval& range, std::size_t lane,
                            RowBlock* block) {
  const CaseData& data = inputs_.data();
  const bool selections = data.HasSelections();
  const bool special = inputs_.HasSpecial(row);
  const Enclosed& slope = inputs_.Slope(row);
  if (!std::isfinite(slope.hi)) return false;
  const double sink = block->sink[lane];
  double magnitude = sink == kExcluded ? 0.0 : std::fabs(sink);
  double largest = sink;
  double smallest = sink == kExcluded ? HUGE_VAL : sink;
  bool any = false;
  for (Index j = range.first; j < range.last; ++j) {
    if (block->additive.hi == nullptr && !special) {
      any = true;
      break;
    }
    if (selections && !data.Selected(row, j)) continue;
    if (special && inputs_.IsSpecial(row, j)) return false;
    any = true;
    if (block->additive.hi == nullptr) continue;
    if (!std::isfinite(data.BiasAt(row, j))) return false;
    const Additive additive = AdditiveAt(inputs_, row, j);
    if (!(additive.hi > kExcluded)) return false;
    const std::size_t at = static_cast<std::size_t>(j - block->first_key) * block->lanes + lane;
    block->additive.hi[at] = additive.hi;
    block->additive.lo[at] = additive.lo;
    magnitude = std::max(magnitude, additive.magnitude);
    largest = std::max(largest, additive.hi);
    smallest = std::min(smallest, additive.hi);
  }
  block->additive_magnitude[lane] = magnitude;
  const bool faint = block->additive.hi != nullptr && smallest < largest - kFaint;
  block->near_magnitude[lane] =
      faint ? NearMagnitude(row, range, lane, largest - kFaint, *block) : magnitude;
  return any;
}

// The largest magnitude of what is added to the scores of keys, and of the sink, from `least` on.
double BlockBuilder::NearMagnitude(const RowId& row, const KeyInterval& range, std::size_t lane,
                                   double least, const RowBlock& block) const {
  const double sink = block.sink[lane];
  double magnitude = sink >= least ? std::fabs(sink) : 0.0;
  for (Index j = range.first; j < range.last; ++j) {
    const std::size_t at = static_cast<std::size_t>(j - block.first_key) * block.lanes + lane;
    if (block.additive.hi[at] == kExcluded) continue;
    const Additive additive = AdditiveAt(inputs_, row, j);
    // The error of what bias and ALiBi leave of each other must be small, too.
    const bool accurate = additive.magnitude <= 0x1p40 * std::fabs(additive.hi);
    if (additive.hi < least && accurate) continue;
    magnitude = std::max(magnitude, additive.magnitude);
  }
  return magnitude;
}

}  // namespace attest
