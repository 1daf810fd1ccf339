// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest {

template <class T>
GradientSum<T>::GradientSum(const PlainTensor& to) : to_(to) {
  Index size = 1;
  for (const Index extent : to.shape()) size *= extent;
  sums_.assign(to.present() ? static_cast<std::size_t>(size) : 0, T{0});
}

template <class T>
T& GradientSum<T>::At(Index a, Index b, Index c, Index d) {
  const std::array<Index, 4> index{a, b, c, d};
  Index element = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const Index extent = to_.shape()[axis];
    element = element * extent + (extent == 1 ? 0 : index[axis]);
  }
  return sums_[static_cast<std::size_t>(element)];
}

template <class T>
void GradientSum<T>::Write() const {
  const auto& shape = to_.shape();
  for (std::size_t t = 0; t < sums_.size(); ++t) {
    Index rest = static_cast<Index>(t);
    std::array<Index, 4> at{};
    for (std::size_t axis = 4; axis-- > 0; rest /= shape[axis]) at[axis] = rest % shape[axis];
    to_.Set(static_cast<double>(sums_[t]), at[0], at[1], at[2], at[3]);
  }
}

template <class T>
PlainBackward<T>::PlainBackward(const PlainCall& call)
    : call_(call),
      q_(call.out.grad_q),
      k_(call.out.grad_k),
      v_(call.out.grad_v),
      bias_(call.out.grad_bias),
      sinks_(call.out.grad_sinks),
      w_(call.out.grad_w),
      w_q_(call.out.grad_w_q),
      w_k_(call.out.grad_w_k),
      b_(call.out.grad_b),
      v_a_(call.out.grad_v_a) {}

template <class T>
void PlainBackward<T>::Write() const {
  for (const GradientSum<T>* sum :
       {&q_, &k_, &v_, &bias_, &sinks_, &w_, &w_q_, &w_k_, &b_, &v_a_}) {
    sum->Write();
  }
}

template <class T>
void PlainBackward<T>::Add(const PlainRow<T>& row) {
  const PlainInputs& in = call_.in;
  const auto& [b, h, i, g] = row.at;
  if (i == 0) StartHead(row.at);
  const T d_lse = in.grad_lse.present() ? static_cast<T>(in.grad_lse(b, h, i)) : T{0};
  if (row.empty) return AddEmpty(row, d_lse);
  std::vector<T> d_out(row.out.size(), T{0});
  for (std::size_t c = 0; c < d_out.size() && in.grad_out.present(); ++c) {
    d_out[c] = static_cast<T>(in.grad_out(b, h, i, static_cast<Index>(c)));
  }
  const std::vector<Flow> flows = Flows(row, d_out);
  const auto keys = static_cast<Index>(flows.size());
  const T delta = Delta(row, d_out, flows, 0, keys);
  if (row.sink) sinks_.Add(std::exp(*row.sink - row.lse) * (d_lse - delta), h);

  PlainScore<T> score(call_, row.at);
  const Index start = FirstKey(keys);
  for (Index step = 0; step < keys; ++step) {
    const Index j = (start + step) % keys;
    const Flow& flow = flows[static_cast<std::size_t>(j)];
    const PlainKey<T>& key = row.keys[static_cast<std::size_t>(j)];
    if (!flow.passes || j >= call_.shape().kv_len) continue;
    for (std::size_t c = 0; c < d_out.size(); ++c) {
      v_.Add(flow.p * flow.factor * d_out[c], b, g, j, static_cast<Index>(c));
    }
    T own_delta = delta;
    if (call_.Has(Fault::kSplitBackwardPartialStatistics)) {
      for (const PlainPart<T>& part : row.parts) {
        if (j < part.first || j >= part.last) continue;
        own_delta = Delta(row, d_out, flows, part.first, part.last);
      }
    }
    if (call_.Has(Fault::kSoftmaxBackwardWithoutRowTerm)) own_delta = 0;
    if (!key.allowed) continue;  // its score is a constant
    const T ds = flow.p * (flow.dp - own_delta + d_lse);
    AddBias(row.at, j, ds);
    const bool capped = call_.contract->softcap > 0.0;
    AddScore(row.at, j, capped ? ds * (T{1} - key.cap_tanh * key.cap_tanh) : ds, &score);
  }
}

template <class T>
void PlainBackward<T>::StartHead(const RowIndex& at) {
  const Dimensions& s = call_.shape();
  if (!call_.Has(Fault::kGroupedGradientNotSummed)) return;
  for (Index j = 0; j < s.kv_len; ++j) {
    for (Index d = 0; d < s.k_dim; ++d) k_.Replace(0, at.b, at.g, j, d);
    for (Index c = 0; c < s.v_dim; ++c) v_.Replace(0, at.b, at.g, j, c);
  }
}

template <class T>
void PlainBackward<T>::AddEmpty(const PlainRow<T>& row, T d_lse) {
  const Dimensions& s = call_.shape();
  if (row.sink) sinks_.Add(d_lse, row.at.h);
  if (!call_.Has(Fault::kEmptyRowNanGradient)) return;
  // The probabilities of the row were kept as they came out of an unguarded softmax.
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (Index j = 0; j < s.kv_len; ++j) {
    for (Index d = 0; d < s.qk_dim; ++d) q_.Add(nan, row.at.b, row.at.h, row.at.i, d);
    for (Index d = 0; d < s.k_dim; ++d) k_.Add(nan, row.at.b, row.at.g, j, d);
    for (Index c = 0; c < s.v_dim; ++c) v_.Add(nan, row.at.b, row.at.g, j, c);
  }
}

template <class T>
std::vector<typename PlainBackward<T>::Flow> PlainBackward<T>::Flows(
    const PlainRow<T>& row, const std::vector<T>& d_out) const {
  const Contract& contract = *call_.contract;
  const bool only_bias = call_.out.grad_bias.present() && !call_.out.grad_q.present() &&
                         !call_.out.grad_k.present() && !call_.out.grad_v.present();
  std::vector<Flow> flows(row.keys.size());
  for (const PlainPart<T>& part : row.parts) {
    for (Index j = part.first; j < part.last; ++j) {
      const PlainKey<T>& key = row.keys[static_cast<std::size_t>(j)];
      Flow& flow = flows[static_cast<std::size_t>(j)];
      // Masked keys of weight 0 pass nothing on, whatever they hold.
      flow.passes = key.takes_part && (key.allowed || key.weight != 0);
      if (call_.Has(Fault::kBackwardIgnoresCausalFlag) && contract.causal == Causal::kNone) {
        flow.passes = flow.passes && j <= row.at.i;
      }
      if (!flow.passes) continue;
      flow.p = key.weight;
      if (call_.Has(Fault::kBiasOnlyGradient) && only_bias) flow.p = std::exp(key.score);
      if (call_.Has(Fault::kSplitBackwardPartialStatistics)) flow.p /= part.share;
      T keep = key.keep;
      if (call_.Has(Fault::kDropoutBackwardFactor) && call_.in.keep.present() && keep != 0) {
        keep = static_cast<T>(contract.dropout_rate);
      }
      flow.factor = key.gaussian * keep;
      if (j >= call_.shape().kv_len) continue;  // a phantom: v is 0
      std::size_t width = d_out.size();
      if (call_.Has(Fault::kDpContractsKeyWidth)) {
        width = std::min(width, static_cast<std::size_t>(call_.shape().k_dim));
      }
      T sum = 0;
      for (std::size_t c = 0; c < width; ++c) {
        sum += d_out[c] * static_cast<T>(call_.in.v(row.at.b, row.at.g, j, static_cast<Index>(c)));
      }
      flow.dp = flow.factor * sum;
    }
  }
  return flows;
}

// The row term, of all keys or of a part.
template <class T>
T PlainBackward<T>::Delta(const PlainRow<T>& row, const std::vector<T>& d_out,
                          const std::vector<Flow>& flows, Index first, Index last) const {
  T sum = 0;
  if (call_.Has(Control::kRowTermFromOutput) || call_.Has(Fault::kDpContractsKeyWidth) ||
      call_.Has(Fault::kBiasOnlyGradient)) {
    for (std::size_t c = 0; c < d_out.size(); ++c) sum += d_out[c] * row.out[c];
    return sum;
  }
  // In every fifth call one of two threads that add to the sum at once loses its part: which one
  // would be a matter of timing, for which the number of the call stands.
  if (call_.Has(Fault::kUnsynchronisedRowSum) && call_.state->calls % 5 == 2) {
    last = first + (last - first) / 2;
  }
  for (Index j = first; j < last; ++j) {
    const Flow& flow = flows[static_cast<std::size_t>(j)];
    if (flow.passes) sum += flow.p * flow.dp;
  }
  return sum;
}

// The key from which the sums over keys start. Where threads add to them as they come, their timing
// decides; the number of the call stands for it.
template <class T>
Index PlainBackward<T>::FirstKey(Index keys) const {
  if (!call_.Has(Fault::kAtomicOrder) && !call_.Has(Control::kAtomicOrderDeclared)) return 0;
  return static_cast<Index>(call_.state->calls % static_cast<std::uint64_t>(keys));
}

template <class T>
void PlainBackward<T>::AddBias(const RowIndex& at, Index j, T ds) {
  if (call_.Has(Fault::kBiasGradientZero)) return;
  if (call_.Has(Fault::kBiasGradientLastWriter)) return bias_.Replace(ds, at.b, at.h, at.i, j);
  bias_.Add(ds, at.b, at.h, at.i, j);
}

// What the gradient by one score, after its scale, adds to what the score is made of.
template <class T>
void PlainBackward<T>::AddScore(const RowIndex& at, Index j, T dr, PlainScore<T>* score) {
  const T d_raw = dr * score->scale();
  if (call_.contract->score == ScoreKind::kAdditive) return AddUnits(at, j, d_raw, score);
  const std::vector<T>& q = score->q();
  const std::vector<T>& k = score->Key(j);
  if (call_.contract->score == ScoreKind::kDot) {
    const T d_query = call_.Has(Fault::kGradQWithoutScale) ? dr : d_raw;
    for (std::size_t d = 0; d < k.size(); ++d) {
      const auto column = static_cast<Index>(d);
      q_.Add(d_query * k[d], at.b, at.h, at.i, column);
      k_.Add(d_raw * q[d], at.b, at.g, j, column);
    }
    return;
  }
  std::vector<T> of_k(k.size(), T{0});  // W^T q
  for (std::size_t a = 0; a < q.size(); ++a) {
    T of_q = 0;  // (W k)_a
    for (std::size_t d = 0; d < k.size(); ++d) {
      const T w = static_cast<T>(call_.in.w(static_cast<Index>(a), static_cast<Index>(d)));
      of_q += w * k[d];
      of_k[d] += w * q[a];
      w_.Add(q[a] * (d_raw * k[d]), static_cast<Index>(a), static_cast<Index>(d));
    }
    q_.Add((call_.Has(Fault::kGradQWithoutScale) ? dr : d_raw) * of_q, at.b, at.h, at.i,
           static_cast<Index>(a));
  }
  for (std::size_t d = 0; d < k.size(); ++d) {
    k_.Add(d_raw * of_k[d], at.b, at.g, j, static_cast<Index>(d));
  }
}

template <class T>
void PlainBackward<T>::AddUnits(const RowIndex& at, Index j, T d_raw, PlainScore<T>* score) {
  const std::vector<T>& q = score->q();
  const std::vector<T>& hidden = score->Hidden(j);
  const std::vector<T>& k = score->Key(j);
  std::vector<T> of_q(q.size(), T{0});
  std::vector<T> of_k(k.size(), T{0});
  for (std::size_t u = 0; u < hidden.size(); ++u) {
    const auto a = static_cast<Index>(u);
    const T z = d_raw * static_cast<T>(call_.in.v_a(a)) * (T{1} - hidden[u] * hidden[u]);
    b_.Add(z, a);
    v_a_.Add(d_raw * hidden[u], a);
    for (std::size_t d = 0; d < q.size(); ++d) {
      const auto column = static_cast<Index>(d);
      w_q_.Add(z * q[d], a, column);
      of_q[d] += z * static_cast<T>(call_.in.w_q(a, column));
    }
    for (std::size_t d = 0; d < k.size(); ++d) {
      const auto column = static_cast<Index>(d);
      w_k_.Add(z * k[d], a, column);
      of_k[d] += z * static_cast<T>(call_.in.w_k(a, column));
    }
  }
  const T unscaled = call_.Has(Fault::kGradQWithoutScale) ? T{1} / score->scale() : T{1};
  for (std::size_t d = 0; d < q.size(); ++d) {
    q_.Add(unscaled * of_q[d], at.b, at.h, at.i, static_cast<Index>(d));
  }
  for (std::size_t d = 0; d < k.size(); ++d) {
    k_.Add(of_k[d], at.b, at.g, j, static_cast<Index>(d));
  }
}

template class GradientSum<float>;
template class GradientSum<double>;
template class PlainBackward<float>;
template class PlainBackward<double>;

}  // namespace attest
