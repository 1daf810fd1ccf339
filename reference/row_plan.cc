// SPDX-License-Identifier: Apache-2.0
#include "reference/row_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "reference/ball.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Element (b, h, i, j) of a rank-4 tensor whose axes of length 1 are broadcast.
double Broadcast(const Tensor& tensor, const RowId& row, Index key) {
  const Shape& shape = tensor.shape();
  Index offset = 0;
  const Index index[] = {row.batch, row.head, row.query, key};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    offset = offset * shape[axis] + (shape[axis] == 1 ? 0 : index[axis]);
  }
  return tensor.At(offset);
}

// |key - center| <= half_width in exact arithmetic: the rounding error of the difference decides
// where the rounded difference equals the half width.
bool WithinLocalWindow(Index key, double center, double half_width) {
  const double j = static_cast<double>(key);
  const double difference = j - center;
  if (std::fabs(difference) != half_width) return std::fabs(difference) < half_width;
  const double part = difference - j;  // TwoSum (Knuth) of j and -center
  const double error = (j - (difference - part)) + (-center - part);
  return difference >= 0.0 ? error <= 0.0 : error >= 0.0;
}

}  // namespace

RowId RowAt(const Dimensions& shape, Index flat) {
  return {flat / (shape.q_heads * shape.q_len), flat / shape.q_len % shape.q_heads,
          flat % shape.q_len};
}

Index FlatRow(const Dimensions& shape, const RowId& row) {
  return (row.batch * shape.q_heads + row.head) * shape.q_len + row.query;
}

StatusOr<CaseData> CaseData::Make(const Case& problem) {
  CaseData data;
  data.problem_ = &problem;
  data.contract_ = &problem.contract;
  data.mask_ = problem.Find("mask");
  data.bias_ = problem.Find("bias");
  data.kv_lengths_ = problem.Find("kv_lengths");
  data.q_lengths_ = problem.Find("q_lengths");
  data.q_documents_ = problem.Find("q_documents");
  data.kv_documents_ = problem.Find("kv_documents");
  data.keep_ = problem.Find("keep");
  data.sinks_ = problem.Find("sinks");
  data.local_center_ = problem.Find("local_center");
  const Alibi alibi = problem.contract.alibi;
  const bool slopes = problem.Find("alibi_slopes") != nullptr;
  data.alibi_ = alibi != Alibi::kNone && (slopes || alibi == Alibi::kDefault);
  data.q_ = ToDoubles(*problem.Find("q"));
  data.k_ = ToDoubles(*problem.Find("k"));
  data.v_ = ToDoubles(*problem.Find("v"));
  const auto load = [&](const char* name, std::vector<double>* values) {
    if (const Tensor* tensor = problem.Find(name)) *values = ToDoubles(*tensor);
  };
  load("w_q", &data.w_q_);
  load("w_k", &data.w_k_);
  load("b", &data.b_);
  load("v_a", &data.v_a_);
  if (const Tensor* w = problem.Find("w")) {
    const Dimensions& s = problem.contract.shape;
    for (Index b = 0; b < s.k_dim; ++b) {
      for (Index a = 0; a < s.qk_dim; ++a) data.w_.push_back(w->At(a * s.k_dim + b));
    }
  }
  const auto all_finite = [](std::initializer_list<const std::vector<double>*> lists) {
    return std::all_of(lists.begin(), lists.end(), [](const std::vector<double>* values) {
      return std::all_of(values->begin(), values->end(), [](double x) { return std::isfinite(x); });
    });
  };
  data.parameters_finite_ = all_finite({&data.w_, &data.w_q_, &data.w_k_, &data.b_, &data.v_a_});
  data.finite_ = data.parameters_finite_ && all_finite({&data.q_, &data.k_});
  return data;
}

std::span<const double> CaseData::Query(const RowId& row) const {
  const Dimensions& s = contract_->shape;
  const auto width = static_cast<std::size_t>(s.qk_dim);
  return {q_.data() + static_cast<std::size_t>(FlatRow(contract_->shape, row)) * width, width};
}

namespace {

// Key/value row of the group that the query head belongs to.
std::size_t GroupRow(const Contract& contract, const RowId& row, Index key) {
  const Dimensions& s = contract.shape;
  const Index group = row.head / (s.q_heads / s.kv_heads);
  return static_cast<std::size_t>((row.batch * s.kv_heads + group) * s.kv_len + key);
}

}  // namespace

std::span<const double> CaseData::Key(const RowId& row, Index key) const {
  const auto width = static_cast<std::size_t>(contract_->shape.k_dim);
  return {k_.data() + GroupRow(*contract_, row, key) * width, width};
}

std::span<const double> CaseData::Value(const RowId& row, Index key) const {
  const auto width = static_cast<std::size_t>(contract_->shape.v_dim);
  return {v_.data() + GroupRow(*contract_, row, key) * width, width};
}

double CaseData::dropout_rate() const { return keep_ == nullptr ? 0.0 : contract_->dropout_rate; }

std::optional<double> CaseData::GivenSlope(Index head) const {
  const Tensor* slopes = problem_->Find("alibi_slopes");
  if (slopes == nullptr) return std::nullopt;
  return slopes->At(head);
}

double CaseData::BiasAt(const RowId& row, Index key) const {
  return bias_ == nullptr ? 0.0 : Broadcast(*bias_, row, key);
}

KeyInterval CaseData::RangeOf(const RowId& row) const {
  const Dimensions& s = contract_->shape;
  const auto length = [&](const Tensor* lengths, Index capacity) {
    return lengths == nullptr ? capacity : static_cast<Index>(lengths->At(row.batch));
  };
  const Index kv_length = length(kv_lengths_, s.kv_len);
  const Index q_length = length(q_lengths_, s.q_len);
  if (row.query >= q_length) return {};
  KeyInterval range{0, kv_length};
  const Index diagonal =
      row.query + (contract_->causal == Causal::kTopLeft ? 0 : kv_length - q_length);
  if (contract_->causal != Causal::kNone) range.last = std::min(range.last, diagonal + 1);
  if (contract_->window.left >= 0) {
    range.first = std::max(range.first, diagonal - contract_->window.left);
  }
  if (contract_->window.right >= 0) {
    range.last = std::min(range.last, diagonal + contract_->window.right + 1);
  }
  if (contract_->local) {
    const double center = LocalCenter(row);
    const double half_width = contract_->local->half_width;
    while (range.first < range.last && !WithinLocalWindow(range.first, center, half_width)) {
      ++range.first;
    }
    while (range.first < range.last && !WithinLocalWindow(range.last - 1, center, half_width)) {
      --range.last;
    }
  }
  return range.first < range.last ? range : KeyInterval{};
}

bool CaseData::HasSelections() const {
  return mask_ != nullptr || bias_ != nullptr || q_documents_ != nullptr;
}

bool CaseData::Selected(const RowId& row, Index key) const {
  const Dimensions& s = contract_->shape;
  if (mask_ != nullptr && Broadcast(*mask_, row, key) == 0.0) return false;
  if (BiasAt(row, key) == -kInfinity) return false;
  if (q_documents_ != nullptr) {
    const double own = q_documents_->At(row.batch * s.q_len + row.query);
    if (own != kv_documents_->At(row.batch * s.kv_len + key)) return false;
  }
  return true;
}

bool CaseData::Allowed(const RowId& row, Index key) const {
  const KeyInterval range = RangeOf(row);
  return key >= range.first && key < range.last && Selected(row, key);
}

bool CaseData::Keeps(const RowId& row, Index key) const {
  return keep_ == nullptr || Broadcast(*keep_, row, key) != 0.0;
}

double CaseData::SinkOf(const RowId& row) const {
  return sinks_ == nullptr ? -kInfinity : sinks_->At(row.head);
}

double CaseData::LocalCenter(const RowId& row) const {
  return local_center_->At(FlatRow(contract_->shape, row));
}

std::span<const double> CaseData::WColumn(Index b) const {
  const auto width = static_cast<std::size_t>(contract_->shape.qk_dim);
  return {w_.data() + static_cast<std::size_t>(b) * width, width};
}

std::span<const double> CaseData::WqRow(Index a) const {
  const auto width = static_cast<std::size_t>(contract_->shape.qk_dim);
  return {w_q_.data() + static_cast<std::size_t>(a) * width, width};
}

std::span<const double> CaseData::WkRow(Index a) const {
  const auto width = static_cast<std::size_t>(contract_->shape.k_dim);
  return {w_k_.data() + static_cast<std::size_t>(a) * width, width};
}

bool CaseData::transcendental() const {
  return contract_->score == ScoreKind::kAdditive || contract_->softcap > 0.0 ||
         (contract_->local && contract_->local->gaussian);
}

namespace {

// What a sum of products depends on where some of its factors are not finite: of finite factors
// the sign alone. Their products must neither overflow nor vanish here.
double SignIfFinite(double x) {
  return std::isfinite(x) ? static_cast<double>((x > 0.0) - (x < 0.0)) : x;
}

// The sum of the products a[i] * b[i] with a non-finite factor; 0 without any.
double NonFiniteDot(std::span<const double> a, std::span<const double> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i]) && std::isfinite(b[i])) continue;
    sum += SignIfFinite(a[i]) * SignIfFinite(b[i]);
  }
  return sum;
}

}  // namespace

double CaseData::NonFiniteArgument(const RowId& row, Index key, Index a) const {
  if (finite_) return 0.0;
  const double bias = AdditiveBias(a);
  return NonFiniteDot(WqRow(a), Query(row)) + NonFiniteDot(WkRow(a), Key(row, key)) +
         (std::isfinite(bias) ? 0.0 : bias);
}

int CaseData::SignOfArgument(const RowId& row, Index key, Index a) const {
  std::vector<double> factors{AdditiveBias(a)};
  std::vector<double> others{1.0};
  const auto append = [](std::span<const double> from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(WqRow(a), &factors);
  append(WkRow(a), &factors);
  append(Query(row), &others);
  append(Key(row, key), &others);
  for (long bits = 128;; bits *= 2) {  // products of doubles have at most 4300 bits in all
    const PrecisionScope scope(bits);
    const Ball argument = Ball::Dot(factors, others);
    if (argument.Sign() != 0 || argument.IsExact()) return argument.Sign();
  }
}

std::optional<double> CaseData::NonFiniteAdditive(const RowId& row, Index key) const {
  double sum = 0.0;
  bool special = false;
  for (Index a = 0; a < additive_width(); ++a) {
    const double factor = v_a_[static_cast<std::size_t>(a)];
    const double argument = NonFiniteArgument(row, key, a);
    if (std::isfinite(factor) && !std::isnan(argument)) continue;  // tanh is at most 1
    special = true;
    double tanh = std::isinf(argument) ? std::copysign(1.0, argument) : argument;
    if (std::isinf(factor) && argument == 0.0) tanh = SignOfArgument(row, key, a);
    sum += SignIfFinite(factor) * tanh;
  }
  if (!special) return std::nullopt;
  return sum;
}

std::optional<double> CaseData::NonFiniteScore(const RowId& row, Index key) const {
  if (finite_) return std::nullopt;
  double sum = 0.0;
  if (contract_->score == ScoreKind::kAdditive) {
    const std::optional<double> additive = NonFiniteAdditive(row, key);
    if (!additive) return std::nullopt;
    sum = *additive;
  } else if (contract_->score == ScoreKind::kGeneral) {
    const std::span<const double> q = Query(row);
    const std::span<const double> k = Key(row, key);
    for (Index b = 0; b < contract_->shape.k_dim; ++b) {
      const std::span<const double> w = WColumn(b);
      const double factor = k[static_cast<std::size_t>(b)];
      for (std::size_t a = 0; a < q.size(); ++a) {
        if (std::isfinite(q[a]) && std::isfinite(w[a]) && std::isfinite(factor)) continue;
        sum += SignIfFinite(q[a]) * SignIfFinite(w[a]) * SignIfFinite(factor);
      }
    }
  } else {
    sum = NonFiniteDot(Query(row), Key(row, key));
  }
  if (sum == 0.0) return std::nullopt;  // no factor but finite ones
  return sum * (contract_->scale.rsqrt_dk ? 1.0 : contract_->scale.value);
}

RowPlan CaseData::Plan(const RowId& row) const {
  RowPlan plan;
  const double sink = SinkOf(row);
  plan.sink_is_nan = std::isnan(sink) || sink == kInfinity;
  if (std::isfinite(sink)) plan.sink = sink;
  if (contract_->local && contract_->local->gaussian) plan.gaussian_center = LocalCenter(row);
  const Dimensions& s = contract_->shape;
  const double slope = alibi_ ? GivenSlope(row.head).value_or(0.0) : 0.0;
  bool any_allowed = false;
  const KeyInterval range = RangeOf(row);
  const bool selections = HasSelections();
  for (Index j = range.first; j < range.last; ++j) {
    if (selections && !Selected(row, j)) continue;
    any_allowed = true;
    KeyTerm term;
    term.key = j;
    term.bias = BiasAt(row, j);
    term.distance = std::abs(row.query + s.kv_len - s.q_len - j);
    // The score as far as infinities and NaN decide it; 0 stands for any finite score.
    double score = 0.0;
    if (const std::optional<double> special = NonFiniteScore(row, j); special) {
      score = *special;
      if (contract_->softcap > 0.0 && std::isinf(score)) {
        score = std::copysign(contract_->softcap, score);
        term.capped = score;
      }
    }
    score += std::isfinite(term.bias) ? 0.0 : term.bias;
    if (!std::isfinite(slope)) score -= slope * static_cast<double>(term.distance);
    if (std::isnan(score) || score == kInfinity) {
      plan.not_a_number.push_back(j);
    } else if (score == -kInfinity) {
      plan.vanishing.push_back(j);
    } else {
      if (!Keeps(row, j)) term.keep = 0.0;
      plan.terms.push_back(term);
    }
  }
  if (!any_allowed) {
    plan.kind = RowPlan::Kind::kEmpty;
  } else if (plan.sink_is_nan || !plan.not_a_number.empty()) {
    plan.kind = RowPlan::Kind::kNotANumber;
  } else if (plan.terms.empty()) {
    plan.kind = RowPlan::Kind::kAllMinusInfinity;
  } else {
    plan.kind = RowPlan::Kind::kFinite;
  }
  return plan;
}

}  // namespace attest
