// SPDX-License-Identifier: Apache-2.0
// Which keys take part in one row of attention and what is special about them, in plain doubles.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/case.h"

namespace attest {

// One (batch, query head, query).
struct RowId {
  Index batch = 0;
  Index head = 0;
  Index query = 0;
};

// Row `flat` of [B, Hq, Tq] in row-major order.
RowId RowAt(const Dimensions& shape, Index flat);
Index FlatRow(const Dimensions& shape, const RowId& row);

// Keys first, first + 1, .., last - 1; none when first == last.
struct KeyInterval {
  Index first = 0;
  Index last = 0;
};

// A key that takes part with a finite score.
struct KeyTerm {
  Index key = 0;
  double bias = 0.0;   // the given bias tensor's element
  Index distance = 0;  // |i + Tk - Tq - j|, the factor of the ALiBi slope
  double keep = 1.0;   // 0 where dropout drops it
  // The score before the bias where infinite inputs meet a soft cap: +c or -c.
  std::optional<double> capped;
};

struct RowPlan {
  enum class Kind {
    kEmpty,             // no allowed key
    kNotANumber,        // an allowed score is NaN or +infinity, or the sink is
    kAllMinusInfinity,  // allowed keys, all of score -infinity
    kFinite,
  };
  Kind kind = Kind::kEmpty;
  std::vector<KeyTerm> terms;             // allowed, finite score, ascending key
  std::vector<Index> vanishing;           // allowed, score -infinity: weight exactly 0
  std::vector<Index> not_a_number;        // allowed, score NaN or +infinity
  std::optional<double> sink;             // a finite sink's logit
  std::optional<double> gaussian_center;  // p_i, where local-p attention is on
  bool sink_is_nan = false;               // NaN or +infinity

  bool has_allowed_key() const { return kind != Kind::kEmpty; }
};

// The tensors of a case as exact doubles, and the questions a row asks about them.
class CaseData {
 public:
  static StatusOr<CaseData> Make(const Case& problem);

  const Contract& contract() const { return *contract_; }
  // A tensor of the case; null when it has none of that name.
  const Tensor* Find(const std::string& tensor) const { return problem_->Find(tensor); }
  std::span<const double> Query(const RowId& row) const;
  std::span<const double> Key(const RowId& row, Index key) const;
  std::span<const double> Value(const RowId& row, Index key) const;

  // The score's parameters: column `b` of W as [Dq] and row `a` of W_q, W_k as [Dq], [Dk]; empty
  // for the kinds of score that have none.
  std::span<const double> WColumn(Index b) const;
  std::span<const double> WqRow(Index a) const;
  std::span<const double> WkRow(Index a) const;
  std::span<const double> va() const { return v_a_; }
  double AdditiveBias(Index a) const { return b_.empty() ? 0.0 : b_[static_cast<std::size_t>(a)]; }
  Index additive_width() const { return static_cast<Index>(v_a_.size()); }
  // What infinities and NaN decide of (W_q q + W_k k + b)_a: that value, or 0 where it is finite.
  double NonFiniteArgument(const RowId& row, Index key, Index a) const;
  // Neither q, k nor the parameters hold a NaN or an infinity.
  bool finite() const { return finite_; }
  bool parameters_finite() const { return parameters_finite_; }
  // Scores, or weights, of which no theorem says when they are equal: `additive`, a soft cap, a
  // local-p Gaussian.
  bool transcendental() const;

  // Whether key `key` is allowed for `row`: the conjunction of every mask of the contract.
  bool Allowed(const RowId& row, Index key) const;
  // The keys that lengths, causal, window and local attention leave; they are contiguous.
  KeyInterval RangeOf(const RowId& row) const;
  // The masks that leave any set of keys: boolean mask, bias of -infinity, documents.
  bool HasSelections() const;
  bool Selected(const RowId& row, Index key) const;

  // The given bias tensor's element; 0 without one.
  double BiasAt(const RowId& row, Index key) const;
  bool has_keep() const { return keep_ != nullptr; }
  // False where dropout drops the key.
  bool Keeps(const RowId& row, Index key) const;
  // The logit of the head's sink, whatever it is; -infinity without one.
  double SinkOf(const RowId& row) const;
  // p_i of local attention.
  double LocalCenter(const RowId& row) const;

  RowPlan Plan(const RowId& row) const;

  bool has_alibi() const { return alibi_; }
  // The rate of the contract where a keep mask is given; without one there is no dropout.
  double dropout_rate() const;
  // The slope of a head where the tensor `alibi_slopes` gives it.
  std::optional<double> GivenSlope(Index head) const;

 private:
  // The score before the bias where what it is made of is not finite; nothing where all is.
  std::optional<double> NonFiniteScore(const RowId& row, Index key) const;
  std::optional<double> NonFiniteAdditive(const RowId& row, Index key) const;
  // The sign of a finite (W_q q + W_k k + b)_a.
  int SignOfArgument(const RowId& row, Index key, Index a) const;

  const Case* problem_ = nullptr;
  const Contract* contract_ = nullptr;
  // Tensors of the case that rows ask for again and again; null where it has none.
  const Tensor* mask_ = nullptr;
  const Tensor* bias_ = nullptr;
  const Tensor* kv_lengths_ = nullptr;
  const Tensor* q_lengths_ = nullptr;
  const Tensor* q_documents_ = nullptr;
  const Tensor* kv_documents_ = nullptr;
  const Tensor* keep_ = nullptr;
  const Tensor* sinks_ = nullptr;
  const Tensor* local_center_ = nullptr;
  bool alibi_ = false;
  bool finite_ = true;
  bool parameters_finite_ = true;
  std::vector<double> q_, k_, v_;
  std::vector<double> w_, w_q_, w_k_, b_, v_a_;  // w_ transposed: [Dk, Dq]
};

}  // namespace attest
