// SPDX-License-Identifier: Apache-2.0
#include "properties/right_variant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "reference/row_plan.h"

namespace attest {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Sum(const std::vector<float>& terms, std::size_t first, std::size_t last, bool pairwise) {
  if (pairwise && last - first > 2) {
    const std::size_t middle = first + (last - first) / 2;
    return Sum(terms, first, middle, true) + Sum(terms, middle, last, true);
  }
  float sum = 0.0f;
  for (std::size_t i = first; i < last; ++i) sum += terms[i];
  return sum;
}

// One row; keys in the order in which they are processed.
class VariantRow {
 public:
  VariantRow(Variant variant, const CaseData& data, const RowId& row)
      : variant_(variant), data_(data), row_(row) {
    const std::string& profile = data.contract().arithmetic.profile;
    const DType narrow = data.contract().dtype;
    if (profile.ends_with("-flash") || profile.ends_with("-math")) weight_type_ = narrow;
    if (profile.ends_with("-math")) score_type_ = narrow;
  }

  void Compute(const RowPlan& plan) {
    for (const KeyTerm& term : plan.terms) keys_.push_back(term.key);
    for (const KeyTerm& term : plan.terms) biases_.push_back(static_cast<float>(term.bias));
    if (variant_ == Variant::kReversed) {
      std::reverse(keys_.begin(), keys_.end());
      std::reverse(biases_.begin(), biases_.end());
    }
    if (variant_ == Variant::kFiniteSentinel) {
      for (Index j = 0; j < data_.contract().shape.kv_len; ++j) {
        if (data_.Allowed(row_, j)) continue;
        keys_.push_back(j);
        biases_.push_back(-1e30f);
      }
    }
    Scores();
    Weights();
  }

  float lse() const { return lse_; }

  float Weight(Index key) const {
    const auto found = std::find(keys_.begin(), keys_.end(), key);
    return found == keys_.end() ? 0.0f : weights_[static_cast<std::size_t>(found - keys_.begin())];
  }

  float Output(Index column) const {
    const auto c = static_cast<std::size_t>(column);
    if (variant_ == Variant::kNormalisedOnline) return NormalisedOnline(c);
    std::vector<float> terms;
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const bool normalised = normalise_first();
      const float p = Stored(normalised ? weights_[t] : unnormalised_[t], weight_type_);
      terms.push_back(p * static_cast<float>(data_.Value(row_, keys_[t])[c]));
    }
    const float sum = Sum(terms, 0, terms.size(), variant_ == Variant::kPairwise);
    return normalise_first() ? sum : sum / total_;
  }

 private:
  bool normalise_first() const {
    return variant_ == Variant::kNormalisedFirst || variant_ == Variant::kDivisionFree;
  }

  static float Stored(float value, DType type) {
    return static_cast<float>(RoundToDType(static_cast<double>(value), type));
  }

  void Scores() {
    const Contract& contract = data_.contract();
    const auto dim = static_cast<float>(contract.shape.k_dim);
    const float scale =
        contract.scale.rsqrt_dk ? 1.0f / std::sqrt(dim) : static_cast<float>(contract.scale.value);
    const bool split = variant_ == Variant::kSplitScale && contract.scale.rsqrt_dk;
    const float half_scale = 1.0f / std::sqrt(std::sqrt(dim));
    const bool folded = variant_ == Variant::kBaseTwo;
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const std::span<const double> q = data_.Query(row_);
      const std::span<const double> k = data_.Key(row_, keys_[t]);
      std::vector<float> terms;
      for (std::size_t d = 0; d < q.size(); ++d) {
        auto a = static_cast<float>(q[d]);
        auto b = static_cast<float>(k[d]);
        if (split) {
          a *= half_scale;
          b *= half_scale;
        }
        if (folded) a *= scale * kLog2E;
        terms.push_back(a * b);
      }
      float score = Sum(terms, 0, terms.size(), variant_ == Variant::kPairwise);
      score = Stored(score, score_type_);
      if (!split && !folded) score = Stored(score * scale, score_type_);
      score = Stored(score + (folded ? biases_[t] * kLog2E : biases_[t]), score_type_);
      scores_.push_back(score);
    }
  }

  void Weights() {
    float maximum = -kInfinity;
    for (const float s : scores_) maximum = std::max(maximum, s);
    if (variant_ == Variant::kTwoPass) OnlineStatistics();
    for (const float s : scores_) {
      float x = std::exp(s - maximum);
      if (variant_ == Variant::kBaseTwo) x = std::exp2(s - maximum);
      if (variant_ == Variant::kFusedShift) {
        x = std::exp2(std::fma(s, kLog2E, -(maximum * kLog2E)));
      }
      unnormalised_.push_back(x);
    }
    if (variant_ != Variant::kTwoPass) {
      total_ = Sum(unnormalised_, 0, unnormalised_.size(), variant_ == Variant::kPairwise);
    }
    lse_ = variant_ == Variant::kBaseTwo ? (maximum + std::log2(total_)) * kLn2
                                         : maximum + std::log(total_);
    for (std::size_t t = 0; t < scores_.size(); ++t) {
      const float p = variant_ == Variant::kDivisionFree ? std::exp(scores_[t] - lse_)
                                                         : unnormalised_[t] / total_;
      weights_.push_back(Stored(p, score_type_));
    }
  }

  // Running maximum and sum, rescaled key by key.
  void OnlineStatistics() {
    float maximum = -kInfinity;
    for (const float s : scores_) {
      const float next = std::max(maximum, s);
      total_ = total_ * std::exp(maximum - next) + std::exp(s - next);
      maximum = next;
    }
  }

  float NormalisedOnline(std::size_t c) const {
    float maximum = -kInfinity;
    float total = 0.0f;
    float out = 0.0f;
    for (std::size_t t = 0; t < keys_.size(); ++t) {
      const float next = std::max(maximum, scores_[t]);
      const float correction = std::exp(maximum - next);
      const float p = Stored(std::exp(scores_[t] - next), weight_type_);
      const float new_total = total * correction + p;
      const auto v = static_cast<float>(data_.Value(row_, keys_[t])[c]);
      out = out * (total * correction / new_total) + p * v / new_total;
      total = new_total;
      maximum = next;
    }
    return out;
  }

  const Variant variant_;
  const CaseData& data_;
  const RowId row_;
  DType weight_type_ = DType::kF32;
  DType score_type_ = DType::kF32;
  std::vector<Index> keys_;
  std::vector<float> biases_;
  std::vector<float> scores_;
  std::vector<float> unnormalised_;
  std::vector<float> weights_;
  float total_ = 0.0f;
  float lse_ = 0.0f;
};

class RightVariant : public Subject {
 public:
  explicit RightVariant(Variant variant) : variant_(variant) {
    info_.name = "right:" + NameOf(variant);
    info_.deterministic = info_.batch_invariant = true;
  }
  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions&) const override {
    const StatusOr<CaseData> data = CaseData::Make(problem);
    if (!data.ok()) return Outcome::Failed("error", data.status().message());
    const Contract& contract = problem.contract;
    const Dimensions& s = contract.shape;
    if (contract.empty_row != EmptyRow::kZero) {
      return Outcome::Unsupported("empty_row: 'zero' only");
    }
    Outcome outcome;
    for (const std::string& name : contract.outputs) {
      outcome.outputs[name] = Tensor(OutputDType(problem, name), OutputShape(problem, name));
    }
    const auto store = [&](const char* name, Index at, float value) {
      const auto found = outcome.outputs.find(name);
      if (found != outcome.outputs.end()) found->second.Set(at, static_cast<double>(value));
    };
    for (Index flat = 0; flat < s.batch * s.q_heads * s.q_len; ++flat) {
      const RowId row = RowAt(s, flat);
      const RowPlan plan = data->Plan(row);
      if (plan.kind != RowPlan::Kind::kFinite) {
        store("lse", flat, -kInfinity);
        continue;
      }
      VariantRow computed(variant_, *data, row);
      computed.Compute(plan);
      store("lse", flat, computed.lse());
      for (Index c = 0; c < s.v_dim; ++c) store("out", flat * s.v_dim + c, computed.Output(c));
      for (Index j = 0; j < s.kv_len; ++j)
        store("weights", flat * s.kv_len + j, computed.Weight(j));
    }
    return outcome;
  }

 private:
  Variant variant_;
  SubjectInfo info_;
};

}  // namespace

std::vector<Variant> AllVariants() {
  std::vector<Variant> variants;
  for (int i = 0; i <= static_cast<int>(Variant::kFiniteSentinel); ++i) {
    variants.push_back(static_cast<Variant>(i));
  }
  return variants;
}

std::string NameOf(Variant variant) {
  const char* const names[] = {"textbook",    "normalised_first",  "division_free",  "base_two",
                               "fused_shift", "split_scale",       "two_pass",       "reversed",
                               "pairwise",    "normalised_online", "finite_sentinel"};
  return names[static_cast<std::size_t>(variant)];
}

std::unique_ptr<Subject> MakeRightVariant(Variant variant) {
  return std::make_unique<RightVariant>(variant);
}

}  // namespace attest
