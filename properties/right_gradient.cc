// SPDX-License-Identifier: Apache-2.0
#include "properties/right_gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "properties/right_scores.h"
#include "reference/row_plan.h"

namespace attest {
namespace {

using V = BackwardVariant;
using F = GradientFault;

// Outputs while their summands are gathered, element by element.
template <class T>
using Gathered = std::map<std::string, std::vector<std::vector<T>>>;

template <class T>
class Computation : RightScores<T> {
  using Base = RightScores<T>;
  using Base::contract_;
  using Base::data_;
  using Base::Narrowed;
  using Base::problem_;
  using Base::s_;
  using Base::scale_;
  using Base::Score;
  using Base::Stored;
  using Base::sum_;
  using Base::variant_;
  using typename Base::Key;

 public:
  Computation(V variant, F fault, const Case& problem, const CaseData& data)
      : Base(variant, problem, data), fault_(fault) {
    for (const std::string& name : contract_.outputs) {
      gathered_[name].resize(static_cast<std::size_t>(ElementCount(OutputShape(problem, name))));
    }
  }

  TensorMap Run() {
    for (Index flat = 0; flat < s_.batch * s_.q_heads * s_.q_len; ++flat) DoRow(flat);
    if (fault_ == F::kTransposedScores) AddTransposed();
    TensorMap outputs;
    for (auto& [name, elements] : gathered_) {
      Tensor tensor(OutputDType(problem_, name), OutputShape(problem_, name));
      for (std::size_t i = 0; i < elements.size(); ++i) {
        T value = sum_(elements[i]);
        if (fault_ == F::kBiasNotSummed && name == "grad_bias" && !elements[i].empty()) {
          value = elements[i].back();
        }
        if (Scales(name)) value *= scale_;
        tensor.Set(static_cast<Index>(i), static_cast<double>(value));
      }
      outputs.emplace(name, std::move(tensor));
    }
    return outputs;
  }

 private:
  // An operand of a product.
  T ScoreOperand(T value) const {
    if (fault_ == F::kScoresRoundedToBf16) {
      return static_cast<T>(RoundToDType(static_cast<double>(value), DType::kBF16));
    }
    return variant_ == V::kUnroundedScores ? value : Narrowed(value);
  }

  bool Wants(const char* name) const { return gathered_.contains(name); }
  void Add(const char* name, Index element, T value) {
    const auto found = gathered_.find(name);
    if (found != gathered_.end()) found->second[static_cast<std::size_t>(element)].push_back(value);
  }

  // Whether the scale is still to be applied to the finished gradient.
  bool Scales(const std::string& name) const {
    if (name == "grad_q" && fault_ == F::kScaleMissingInGradQ) return false;
    return variant_ != V::kPairwise && name.starts_with("grad_") && name != "grad_v" &&
           name != "grad_bias" && name != "grad_sinks";
  }

  T GradOut(Index flat, std::size_t c) const {
    const Tensor* tensor = problem_.Find("grad_out");
    if (tensor == nullptr) return 0;
    return static_cast<T>(tensor->At(flat * s_.v_dim + static_cast<Index>(c)));
  }

  void DoRow(Index flat) {
    const RowId row = RowAt(s_, flat);
    const RowPlan plan = data_.Plan(row);
    const Tensor* const grad_lse = problem_.Find("grad_lse");
    T d_lse = grad_lse == nullptr ? T{0} : static_cast<T>(grad_lse->At(flat));
    if (fault_ == F::kGradLseIgnored) d_lse = 0;
    if (plan.terms.empty()) {
      Add("lse", flat,
          plan.sink ? static_cast<T>(*plan.sink) : -std::numeric_limits<T>::infinity());
      if (plan.sink) Add("grad_sinks", row.head, d_lse);
      return;
    }
    std::vector<Key> keys;
    for (const KeyTerm& term : plan.terms) {
      Key& key = keys.emplace_back();
      key.term = &term;
      Score(row, &key);
    }
    const T lse = Softmax(plan, &keys);
    Add("lse", flat, lse);
    const T keeping = T{1} / (T{1} - static_cast<T>(data_.dropout_rate()));
    for (Key& key : keys) {
      Add("weights", flat * s_.kv_len + key.term->key, key.weight * Gaussian(plan, *key.term));
      key.factor = Gaussian(plan, *key.term) * keeping * static_cast<T>(key.term->keep);
    }
    std::vector<T> out;
    for (std::size_t c = 0; c < static_cast<std::size_t>(s_.v_dim); ++c) {
      std::vector<T> terms;
      terms.reserve(keys.size());
      for (const Key& key : keys) {
        terms.push_back(Narrowed(key.weight * key.factor) *
                        static_cast<T>(data_.Value(row, key.term->key)[c]));
      }
      out.push_back(sum_(terms));
      Add("out", flat * s_.v_dim + static_cast<Index>(c), out.back());
    }
    Backward(flat, row, plan, lse, d_lse, out, &keys);
  }

  T Gaussian(const RowPlan& plan, const KeyTerm& term) const {
    if (!plan.gaussian_center || !contract_.local) return 1;
    const T z = (static_cast<T>(term.key) - static_cast<T>(*plan.gaussian_center)) /
                static_cast<T>(contract_.local->half_width);
    return std::exp(T{-2} * z * z);
  }

  // Fills in the weights; the LSE.
  T Softmax(const RowPlan& plan, std::vector<Key>* keys) const {
    T maximum = plan.sink ? static_cast<T>(*plan.sink) : -std::numeric_limits<T>::infinity();
    for (const Key& key : *keys) maximum = std::max(maximum, key.score);
    std::vector<T> terms;
    for (const Key& key : *keys) terms.push_back(std::exp(key.score - maximum));
    if (plan.sink) terms.push_back(std::exp(static_cast<T>(*plan.sink) - maximum));
    // The denominator of rounded weights, which the -flash profiles allow.
    const bool rounds = variant_ == V::kFlat || variant_ == V::kFromRoundedOutput;
    std::vector<T> summands = terms;
    for (T& summand : summands) summand = rounds ? Narrowed(summand) : summand;
    const T total = sum_(summands);
    for (std::size_t t = 0; t < keys->size(); ++t) {
      (*keys)[t].weight = Stored(terms[t] / total);
    }
    return maximum + std::log(total);
  }

  void Backward(Index flat, const RowId& row, const RowPlan& plan, T lse, T d_lse,
                const std::vector<T>& out, std::vector<Key>* keys) {
    const bool recomputes = variant_ == V::kFromOutput || variant_ == V::kFromRoundedOutput;
    std::vector<T> d_weights;
    for (Key& key : *keys) {
      if (recomputes) key.weight = std::exp(key.score - lse);
      std::vector<T> terms;
      const std::span<const double> value = data_.Value(row, key.term->key);
      for (std::size_t c = 0; c < value.size(); ++c) {
        terms.push_back(GradOut(flat, c) * static_cast<T>(value[c]));
        const T kept = fault_ == F::kDropoutMissingInGradV ? T{1} : key.factor;
        if (!MissesHead(row)) {
          Add("grad_v", OfKey(row, key, s_.v_dim) + static_cast<Index>(c),
              Narrowed(key.weight * kept) * GradOut(flat, c));
        }
      }
      d_weights.push_back(Stored(Stored(sum_(terms)) * key.factor));
    }
    std::vector<T> products;
    if (recomputes) {
      for (std::size_t c = 0; c < out.size(); ++c) {
        T o = out[c];
        if (variant_ == V::kFromRoundedOutput) {
          o = static_cast<T>(RoundToDType(static_cast<double>(o), contract_.out_dtype));
        }
        products.push_back(GradOut(flat, c) * o);
      }
    } else {
      for (std::size_t t = 0; t < keys->size(); ++t) {
        products.push_back(Stored((*keys)[t].weight * d_weights[t]));
      }
    }
    const T delta = fault_ == F::kDeltaOmitted ? T{0} : Stored(sum_(products));
    for (std::size_t t = 0; t < keys->size(); ++t) {
      Key& key = (*keys)[t];
      T ds = Stored(key.weight * Stored(Stored(d_weights[t] - delta) + d_lse));
      if (variant_ == V::kPairwise) {
        ds = Stored(Stored(key.weight * d_weights[t]) - Stored(key.weight * (delta - d_lse)));
      }
      if (variant_ == V::kFlat) ds = Stored(key.weight * (d_weights[t] - (delta - d_lse)));
      AddToBias(row, key, ScoreOperand(ds));
      key.dr = ds;
      if (contract_.softcap > 0.0 && fault_ != F::kCapDerivativeMissing) {
        key.dr = Stored(ds * Stored(T{1} - key.cap_tanh * key.cap_tanh));
      }
      if (variant_ == V::kPairwise) key.dr *= scale_;
      key.dr = ScoreOperand(key.dr);
    }
    if (plan.sink) {
      const T share = std::exp(static_cast<T>(*plan.sink) - lse);
      Add("grad_sinks", row.head, share * (fault_ == F::kSinkSign ? delta - d_lse : d_lse - delta));
    }
    if (fault_ == F::kTransposedScores) {
      for (const Key& key : *keys) scores_[{flat, key.term->key}] = key;
      return;
    }
    for (const Key& key : *keys) AddScore(flat, row, key);
  }

  // dR_ji in the place of dR_ij within each head, where both exist.
  void AddTransposed() {
    for (const auto& [at, own] : scores_) {
      const auto [flat, j] = at;
      const RowId row = RowAt(s_, flat);
      Key key = own;
      KeyTerm term;
      term.key = j;
      key.term = &term;
      const auto mirrored = scores_.find({flat - row.query + j, row.query});
      if (j < s_.q_len && mirrored != scores_.end()) key.dr = mirrored->second.dr;
      AddScore(flat, row, key);
    }
  }

  bool MissesHead(const RowId& row) const {
    const Index group = s_.q_heads / s_.kv_heads;
    return fault_ == F::kGroupMissesAHead && group > 1 && row.head % group == group - 1;
  }

  Index OfKey(const RowId& row, const Key& key, Index width) const {
    const Index group = row.head / (s_.q_heads / s_.kv_heads);
    return ((row.batch * s_.kv_heads + group) * s_.kv_len + key.term->key) * width;
  }

  void AddToBias(const RowId& row, const Key& key, T ds) {
    if (!Wants("grad_bias")) return;
    const Shape& shape = problem_.Find("bias")->shape();
    const Index index[] = {row.batch, row.head, row.query, key.term->key};
    Index element = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      element = element * shape[axis] + (shape[axis] == 1 ? 0 : index[axis]);
    }
    Add("grad_bias", element, ds);
  }

  // What the gradient by one score adds to what the score is made of.
  void AddScore(Index flat, const RowId& row, const Key& key) {
    const std::span<const double> q = data_.Query(row);
    const std::span<const double> k = data_.Key(row, key.term->key);
    const Index of_q = flat * s_.qk_dim;
    const Index of_k = OfKey(row, key, s_.k_dim);
    const bool by_key = !MissesHead(row);
    if (contract_.score == ScoreKind::kAdditive) return AddUnits(row, key, of_q, of_k);
    for (std::size_t d = 0; d < k.size(); ++d) {
      const auto column = static_cast<Index>(d);
      T query_side = contract_.score == ScoreKind::kDot ? static_cast<T>(q[d]) : T{0};
      if (contract_.score == ScoreKind::kGeneral) {
        query_side = Stored(sum_.Dot(q, data_.WColumn(column)));
        for (std::size_t a = 0; a < q.size(); ++a) {
          Add("grad_w", static_cast<Index>(a) * s_.k_dim + column,
              static_cast<T>(q[a]) * (key.dr * static_cast<T>(k[d])));
        }
      }
      if (by_key) Add("grad_k", of_k + column, key.dr * query_side);
    }
    for (std::size_t d = 0; d < q.size(); ++d) {
      T key_side = contract_.score == ScoreKind::kDot ? static_cast<T>(k[d]) : T{0};
      if (contract_.score == ScoreKind::kGeneral) {
        std::vector<T> terms;
        for (std::size_t b = 0; b < k.size(); ++b) {
          const bool transposed = fault_ == F::kParameterTransposed && q.size() == k.size();
          const double w = transposed ? data_.WColumn(static_cast<Index>(d))[b]
                                      : data_.WColumn(static_cast<Index>(b))[d];
          terms.push_back(static_cast<T>(w) * static_cast<T>(k[b]));
        }
        key_side = Stored(sum_(terms));
      }
      Add("grad_q", of_q + static_cast<Index>(d), key.dr * key_side);
    }
  }

  void AddUnits(const RowId& row, const Key& key, Index of_q, Index of_k) {
    const std::span<const double> q = data_.Query(row);
    const std::span<const double> k = data_.Key(row, key.term->key);
    std::vector<T> z;
    for (Index a = 0; a < data_.additive_width(); ++a) {
      const T t = key.hidden[static_cast<std::size_t>(a)];
      const T slope = fault_ == F::kTanhDerivativeMissing ? T{1} : Stored(T{1} - t * t);
      const T v = static_cast<T>(data_.va()[static_cast<std::size_t>(a)]);
      z.push_back(ScoreOperand(key.dr * v * slope));
      Add("grad_b", a, z.back());
      Add("grad_v_a", a, key.dr * t);
      for (std::size_t d = 0; d < q.size(); ++d) {
        Add("grad_w_q", a * s_.qk_dim + static_cast<Index>(d), z.back() * static_cast<T>(q[d]));
      }
      for (std::size_t d = 0; d < k.size(); ++d) {
        Add("grad_w_k", a * s_.k_dim + static_cast<Index>(d), z.back() * static_cast<T>(k[d]));
      }
    }
    const auto project = [&](auto w_row, std::size_t d) {
      std::vector<T> terms;
      terms.reserve(z.size());
      for (std::size_t a = 0; a < z.size(); ++a) {
        terms.push_back(z[a] * static_cast<T>(w_row(static_cast<Index>(a))[d]));
      }
      return sum_(terms);
    };
    for (std::size_t d = 0; d < q.size(); ++d) {
      Add("grad_q", of_q + static_cast<Index>(d),
          project([&](Index a) { return data_.WqRow(a); }, d));
    }
    for (std::size_t d = 0; d < k.size() && !MissesHead(row); ++d) {
      Add("grad_k", of_k + static_cast<Index>(d),
          project([&](Index a) { return data_.WkRow(a); }, d));
    }
  }

  const F fault_;
  Gathered<T> gathered_;
  std::map<std::pair<Index, Index>, Key> scores_;  // by (row, key), for one fault
};

class RightGradient : public Subject {
 public:
  RightGradient(V variant, F fault) : variant_(variant), fault_(fault) {
    info_.name = "right:" + NameOf(variant);
    if (fault != F::kNone) info_.name += ":" + NameOf(fault);
    info_.deterministic = true;
  }
  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions&) const override {
    const StatusOr<CaseData> data = CaseData::Make(problem);
    if (!data.ok()) return Outcome::Failed("error", data.status().message());
    if (problem.contract.empty_row != EmptyRow::kZero) {
      return Outcome::Unsupported("empty_row: 'zero' only");
    }
    const bool wide = problem.contract.dtype == DType::kF64;
    return Outcome::Ok(wide ? Computation<double>(variant_, fault_, problem, *data).Run()
                            : Computation<float>(variant_, fault_, problem, *data).Run());
  }

 private:
  V variant_;
  F fault_;
  SubjectInfo info_;
};

}  // namespace

std::vector<BackwardVariant> AllBackwardVariants() {
  std::vector<BackwardVariant> variants;
  for (int i = 0; i <= static_cast<int>(V::kFlat); ++i) variants.push_back(static_cast<V>(i));
  return variants;
}

std::string NameOf(BackwardVariant variant) {
  const char* const names[] = {"textbook", "from_output", "from_rounded_output",
                               "reversed", "pairwise",    "unrounded_scores",
                               "flat"};
  return names[static_cast<std::size_t>(variant)];
}

std::vector<GradientFault> AllGradientFaults() {
  std::vector<GradientFault> faults;
  for (int i = 1; i <= static_cast<int>(F::kScoresRoundedToBf16); ++i) {
    faults.push_back(static_cast<F>(i));
  }
  return faults;
}

std::string NameOf(GradientFault fault) {
  const char* const names[] = {"none",
                               "delta_omitted",
                               "scale_missing_in_grad_q",
                               "group_misses_a_head",
                               "cap_derivative_missing",
                               "transposed_scores",
                               "bias_not_summed",
                               "sink_sign",
                               "grad_lse_ignored",
                               "dropout_missing_in_grad_v",
                               "tanh_derivative_missing",
                               "parameter_transposed",
                               "scores_rounded_to_bf16"};
  return names[static_cast<std::size_t>(fault)];
}

std::unique_ptr<Subject> MakeRightGradient(BackwardVariant variant, GradientFault fault) {
  return std::make_unique<RightGradient>(variant, fault);
}

}  // namespace attest
