// SPDX-License-Identifier: Apache-2.0
#include "reference/gradient_enclosure.h"

#include <array>
#include <cassert>
#include <map>
#include <utility>

#include "reference/row_gradient.h"

namespace attest {
namespace {

enum class Of { kQ, kK, kV, kBias, kSinks, kW, kWq, kWk, kVa, kB };

Of TensorNamed(const std::string& name) {
  const std::map<std::string, Of> names{
      {"q", Of::kQ}, {"k", Of::kK},    {"v", Of::kV},    {"bias", Of::kBias}, {"sinks", Of::kSinks},
      {"w", Of::kW}, {"w_q", Of::kWq}, {"w_k", Of::kWk}, {"v_a", Of::kVa},    {"b", Of::kB}};
  const auto found = names.find(name);
  assert(found != names.end());
  return found->second;
}

// Which elements of the gradient of one tensor a row reaches. Rows and elements of equal buckets
// belong together.
class Reach {
 public:
  using Bucket = std::array<Index, 3>;

  Reach(const CaseData& data, const std::string& name)
      : of_(TensorNamed(name)), shape_(data.contract().shape), tensor_(*data.Find(name)) {}

  Of of() const { return of_; }
  // Only dS, its sums and the weights matter: not how scores come about.
  bool needs_dr() const { return of_ != Of::kV && of_ != Of::kBias && of_ != Of::kSinks; }

  Bucket BucketOf(const RowId& row) const {
    const auto axis = [&](std::size_t i, Index index) {
      return tensor_.shape()[i] == 1 ? 0 : index;
    };
    switch (of_) {
      case Of::kQ:
        return {row.batch, row.head, row.query};
      case Of::kK:
      case Of::kV:
        return {row.batch, row.head / (shape_.q_heads / shape_.kv_heads), 0};
      case Of::kBias:
        return {axis(0, row.batch), axis(1, row.head), axis(2, row.query)};
      case Of::kSinks:
        return {row.head, 0, 0};
      default:
        return {0, 0, 0};
    }
  }

  Bucket BucketOf(Index element) const {
    const std::vector<Index> index = Unflatten(element, tensor_.shape());
    switch (of_) {
      case Of::kQ:
      case Of::kBias:
        return {index[0], index[1], index[2]};
      case Of::kK:
      case Of::kV:
        return {index[0], index[1], 0};
      case Of::kSinks:
        return {index[0], 0, 0};
      default:
        return {0, 0, 0};
    }
  }

  std::vector<Index> IndexOf(Index element) const { return Unflatten(element, tensor_.shape()); }
  // A bias that repeats over keys.
  bool EveryKey() const { return of_ == Of::kBias && tensor_.shape()[3] == 1; }

 private:
  const Of of_;
  const Dimensions& shape_;
  const Tensor& tensor_;
};

// What one row adds to elements of one gradient. Sums over keys that several elements share are
// made once.
class RowContribution {
 public:
  RowContribution(const CaseData& data, const RowId& row, const RowPlan& plan,
                  const RowEnclosure* enclosure, const RowGradient& gradient)
      : data_(data), row_(row), plan_(plan), enclosure_(enclosure), gradient_(gradient) {
    position_.assign(static_cast<std::size_t>(data.contract().shape.kv_len), -1);
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      position_[static_cast<std::size_t>(plan.terms[t].key)] = static_cast<Index>(t);
    }
  }

  // Whether the row reaches the element at all.
  bool Reaches(const Reach& reach, const std::vector<Index>& index) const {
    switch (reach.of()) {
      case Of::kK:
      case Of::kV:
        return TermOf(index[2]) >= 0;
      case Of::kBias:
        return reach.EveryKey() ? !plan_.terms.empty() : TermOf(index[3]) >= 0;
      case Of::kSinks:
        return plan_.sink.has_value();
      default:
        return !plan_.terms.empty();
    }
  }

  // Of an element that the row reaches.
  Ball Value(const Reach& reach, const std::vector<Index>& index) {
    switch (reach.of()) {
      case Of::kQ:
        return ByQuery(index[3]);
      case Of::kK:
        return ByKey(static_cast<std::size_t>(TermOf(index[2])), index[3]);
      case Of::kV: {
        const auto t = static_cast<std::size_t>(TermOf(index[2]));
        const Tensor* grad_out = data_.Find("grad_out");
        if (grad_out == nullptr) return Ball();
        const Dimensions& s = data_.contract().shape;
        return gradient_.kept[t] * Ball(grad_out->At(FlatRow(s, row_) * s.v_dim + index[3]));
      }
      case Of::kBias: {
        if (!reach.EveryKey()) return gradient_.ds[static_cast<std::size_t>(TermOf(index[3]))];
        Ball sum;
        for (const Ball& ds : gradient_.ds) sum += ds;
        return sum;
      }
      case Of::kSinks:
        return gradient_.d_sink;
      case Of::kW:
        return KeySum(index[1]) * Ball(Query(index[0]));
      case Of::kWq:
        return UnitSum(index[0]) * Ball(Query(index[1]));
      case Of::kWk:
        return UnitKeySum(index[0], index[1]);
      case Of::kVa:
        return HiddenSum(index[0]);
      case Of::kB:
        return UnitSum(index[0]);
    }
    return Ball();
  }

 private:
  Index TermOf(Index key) const { return position_[static_cast<std::size_t>(key)]; }
  double Query(Index d) const { return data_.Query(row_)[static_cast<std::size_t>(d)]; }
  double KeyAt(std::size_t t, Index d) const {
    return data_.Key(row_, plan_.terms[t].key)[static_cast<std::size_t>(d)];
  }
  ScoreKind kind() const { return data_.contract().score; }

  // sum_j dR_j k_jd.
  const Ball& KeySum(Index d) {
    std::optional<Ball>& sum = key_sums_[d];
    if (!sum) {
      std::vector<double> keys;
      for (std::size_t t = 0; t < plan_.terms.size(); ++t) keys.push_back(KeyAt(t, d));
      sum = Ball::Dot(gradient_.dr, keys);
    }
    return *sum;
  }

  // tanh, and Z_a = v_a dR (1 - tanh^2), of unit `a` by term.
  struct Unit {
    std::vector<Ball> hidden;
    std::vector<Ball> z;
    Ball sum;  // of z
  };
  const Unit& UnitOf(Index a) {
    std::optional<Unit>& unit = units_[a];
    if (!unit) {
      unit.emplace();
      const Ball factor(data_.va()[static_cast<std::size_t>(a)]);
      for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
        unit->hidden.push_back(enclosure_->Hidden(t, a));
        const Ball& h = unit->hidden.back();
        unit->z.push_back(factor * gradient_.dr[t] * (Ball(1.0) - h * h));
        unit->sum += unit->z.back();
      }
    }
    return *unit;
  }
  Ball UnitSum(Index a) { return UnitOf(a).sum; }
  Ball HiddenSum(Index a) {
    Ball sum;
    const Unit& unit = UnitOf(a);
    for (std::size_t t = 0; t < plan_.terms.size(); ++t) sum += gradient_.dr[t] * unit.hidden[t];
    return sum;
  }
  Ball UnitKeySum(Index a, Index d) {
    std::vector<double> keys;
    for (std::size_t t = 0; t < plan_.terms.size(); ++t) keys.push_back(KeyAt(t, d));
    return Ball::Dot(UnitOf(a).z, keys);
  }

  Ball ByQuery(Index d) {
    if (kind() == ScoreKind::kDot) return KeySum(d);
    Ball sum;
    if (kind() == ScoreKind::kGeneral) {
      for (Index b = 0; b < data_.contract().shape.k_dim; ++b) {
        sum.AddProduct(KeySum(b), data_.WColumn(b)[static_cast<std::size_t>(d)]);
      }
    } else {
      for (Index a = 0; a < data_.additive_width(); ++a) {
        sum.AddProduct(UnitOf(a).sum, data_.WqRow(a)[static_cast<std::size_t>(d)]);
      }
    }
    return sum;
  }

  Ball ByKey(std::size_t t, Index d) {
    if (kind() == ScoreKind::kDot) return gradient_.dr[t] * Ball(Query(d));
    if (kind() == ScoreKind::kGeneral) {
      std::optional<Ball>& projected = projected_queries_[d];
      if (!projected) projected = Ball::Dot(data_.Query(row_), data_.WColumn(d));
      return gradient_.dr[t] * *projected;
    }
    Ball sum;
    for (Index a = 0; a < data_.additive_width(); ++a) {
      sum.AddProduct(UnitOf(a).z[t], data_.WkRow(a)[static_cast<std::size_t>(d)]);
    }
    return sum;
  }

  const CaseData& data_;
  const RowId row_;
  const RowPlan& plan_;
  const RowEnclosure* enclosure_;
  const RowGradient& gradient_;
  std::vector<Index> position_;  // of a key among the terms, or -1
  std::map<Index, std::optional<Ball>> key_sums_;
  std::map<Index, std::optional<Ball>> projected_queries_;
  std::map<Index, std::optional<Unit>> units_;
};

// Positions in `elements` by bucket.
std::map<Reach::Bucket, std::vector<std::size_t>> ByBucket(const Reach& reach,
                                                           std::span<const Index> elements) {
  std::map<Reach::Bucket, std::vector<std::size_t>> positions;
  for (std::size_t e = 0; e < elements.size(); ++e) {
    positions[reach.BucketOf(elements[e])].push_back(e);
  }
  return positions;
}

// A poisoned row's keys that take part, whatever their scores are.
RowPlan WithAllKeys(RowPlan plan) {
  for (const std::vector<Index>* keys : {&plan.vanishing, &plan.not_a_number}) {
    for (const Index key : *keys) {
      KeyTerm term;
      term.key = key;
      plan.terms.push_back(term);
    }
  }
  if (plan.sink_is_nan) plan.sink = 0.0;
  return plan;
}

}  // namespace

std::vector<GradientElement> EncloseGradient(const CaseData& data, const std::string& tensor,
                                             std::span<const Index> elements) {
  const Reach reach(data, tensor);
  const auto positions = ByBucket(reach, elements);
  std::vector<std::vector<Index>> indices;
  for (const Index element : elements) indices.push_back(reach.IndexOf(element));
  std::vector<GradientElement> results(elements.size());
  const Dimensions& s = data.contract().shape;
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    const RowId row = RowAt(s, flat);
    const auto bucket = positions.find(reach.BucketOf(row));
    if (bucket == positions.end()) continue;
    RowPlan plan = data.Plan(row);
    const bool poisoned = RowIsPoisoned(data, row, plan);
    if (poisoned) plan = WithAllKeys(std::move(plan));
    std::optional<RowEnclosure> enclosure;
    RowGradient gradient;
    if (!poisoned) {
      if (plan.has_allowed_key()) enclosure.emplace(data, row, plan);
      gradient =
          EncloseRowGradient(data, row, plan, enclosure ? &*enclosure : nullptr, reach.needs_dr());
    }
    RowContribution contribution(data, row, plan, enclosure ? &*enclosure : nullptr, gradient);
    for (const std::size_t e : bucket->second) {
      if (!contribution.Reaches(reach, indices[e])) continue;
      if (poisoned) {
        results[e].not_a_number = true;
      } else if (!results[e].not_a_number) {
        results[e].value += contribution.Value(reach, indices[e]);
      }
    }
  }
  return results;
}

namespace {

// The least common multiple of all counts, by prime powers.
Ball LeastCommonMultiple(const std::map<Index, Ball>& by_count) {
  std::map<Index, int> powers;
  for (const auto& entry : by_count) {
    Index rest = entry.first;
    for (Index prime = 2; rest > 1; ++prime) {
      if (prime * prime > rest) prime = rest;
      int power = 0;
      for (; rest % prime == 0; rest /= prime) ++power;
      if (power > 0) powers[prime] = std::max(powers[prime], power);
    }
  }
  Ball multiple(1.0);
  for (const auto& [prime, power] : powers) {
    for (int i = 0; i < power; ++i) multiple = multiple * Ball(static_cast<long>(prime));
  }
  return multiple;
}

}  // namespace

std::optional<ExactQuotient> ExactGradient(const CaseData& data, const std::string& tensor,
                                           Index element) {
  const Reach reach(data, tensor);
  const Contract& contract = data.contract();
  if (contract.score == ScoreKind::kAdditive && reach.needs_dr()) return std::nullopt;
  const std::vector<Index> index = reach.IndexOf(element);
  const Dimensions& s = contract.shape;
  std::map<Index, Ball> by_count;  // numerators over count^2 (1 - rate)
  for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
    const RowId row = RowAt(s, flat);
    if (reach.BucketOf(row) != reach.BucketOf(element)) continue;
    const RowPlan plan = data.Plan(row);
    if (RowIsPoisoned(data, row, plan)) return std::nullopt;
    std::optional<RowEnclosure> enclosure;
    if (plan.has_allowed_key()) enclosure.emplace(data, row, plan);
    const RowEnclosure* pointer = enclosure ? &*enclosure : nullptr;
    const RowGradient nothing;
    if (!RowContribution(data, row, plan, pointer, nothing).Reaches(reach, index)) continue;
    const std::optional<UniformRowGradient> uniform =
        UniformGradient(data, row, plan, pointer, reach.needs_dr());
    if (!uniform) return std::nullopt;
    by_count[uniform->count] +=
        RowContribution(data, row, plan, pointer, uniform->gradient).Value(reach, index);
  }
  const Ball multiple = LeastCommonMultiple(by_count);
  ExactQuotient exact;
  exact.denominator = multiple * multiple * (Ball(1.0) - Ball(data.dropout_rate()));
  for (const auto& [count, numerator] : by_count) {
    const Ball factor = multiple / Ball(static_cast<long>(count));
    exact.numerator += numerator * factor * factor;
  }
  if (reach.needs_dr() && !contract.scale.rsqrt_dk) {
    exact.numerator = exact.numerator * Ball(contract.scale.value);
  } else if (reach.needs_dr() && !exact.numerator.IsZero()) {
    const Ball root = Sqrt(Ball(static_cast<long>(s.k_dim)));
    exact.denominator = exact.denominator * root;  // inexact unless D_k is a square
  }
  if (!exact.numerator.IsExact() || !exact.denominator.IsExact()) return std::nullopt;
  return exact;
}

std::vector<std::vector<Index>> IndependentParts(const CaseData& data, const std::string& tensor) {
  const Reach reach(data, tensor);
  std::map<Reach::Bucket, std::vector<Index>> parts;
  for (Index element = 0; element < data.Find(tensor)->size(); ++element) {
    parts[reach.BucketOf(element)].push_back(element);
  }
  std::vector<std::vector<Index>> result;
  for (auto& part : parts) result.push_back(std::move(part.second));
  return result;
}

}  // namespace attest
