// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/attend.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "optimized/attention.h"

namespace attest {
namespace {

// Sentences whose single queries one call of the backward kernel takes together: it works on blocks
// of queries, and alone each would fill a block by itself.
constexpr Index kPackedSentences = 16;

template <class T, std::size_t Rank>
using Ref = TensorRef<std::conditional_t<std::is_const_v<T>, const void, void>, Rank>;

template <class T, std::size_t Rank>
Ref<T, Rank> Of(T* data, const std::array<Index, Rank>& shape,
                const std::array<Index, Rank>& strides) {
  return {data, DTypeOf<std::remove_const_t<T>>::value, shape, strides};
}

template <std::size_t Rank>
Input<Rank> OfInts(const int* data, const std::array<Index, Rank>& shape) {
  return {data, DType::kI32, shape, ContiguousStrides(shape)};
}

// [B Tx, H D] as [B, H, Tx, D].
template <class T>
Ref<T, 4> Heads(T* data, Index batch, Index heads, Index rows, Index dim) {
  return Of<T, 4>(data, {batch, heads, rows, dim}, {rows * heads * dim, dim, heads * dim, 1});
}

template <class T>
AttentionArgs ArgsOf(const Attention<T>& from, const T* identity) {
  const Index k_dim = from.k_dim();
  AttentionArgs args;
  args.q = Heads<const T>(from.q.value, from.batch, from.heads, from.q_len(), k_dim);
  args.k = Heads<const T>(from.k.value, from.batch, from.heads, from.kv_len(), k_dim);
  args.v = Heads<const T>(from.v.value, from.batch, from.heads, from.kv_len(), from.v_dim());
  if (from.v_a) {
    args.score = ScoreKind::kAdditive;
    args.w_q = Of<const T, 2>(identity, {k_dim, k_dim}, {k_dim, 1});
    args.w_k = args.w_q;
    args.v_a = Of<const T, 1>(from.v_a->value, {k_dim}, {1});
  }
  if (!from.scaled) args.scale = 1.0;
  args.kv_lengths = OfInts<1>(from.lengths->data(), {from.batch});
  if (from.causal) args.causal = Causal::kTopLeft;
  if (from.local) {
    args.local = from.local;
    args.local_center = Of<const T, 3>(from.center.value, {from.batch, 1, 1}, {1, 1, 1});
  }
  return args;
}

template <class T>
struct Gradients {
  T* q = nullptr;
  T* k = nullptr;
  T* v = nullptr;
  T* v_a = nullptr;
};

template <class T>
void Accumulate(const T* from, Index count, T* to) {
  for (Index i = 0; i < count; ++i) to[i] += from[i];
}

// Every sentence a batch entry of its own.
template <class T>
void BackwardByEntry(Tape<T>& tape, const Attention<T>& from, const T* identity,
                     const Attended<T>& result, const T* lse, const Gradients<T>& to) {
  const Index q_len = from.q_len();
  const Index kv_len = from.kv_len();
  AttentionGradients gradients;
  const auto heads = [&](auto* data, Index rows, Index dim) {
    return Heads(data, from.batch, from.heads, rows, dim);
  };
  gradients.grad_out = heads(static_cast<const T*>(result.out.grad), q_len, from.v_dim());
  gradients.out = heads(static_cast<const T*>(result.out.value), q_len, from.v_dim());
  gradients.lse =
      Of<const T, 3>(lse, {from.batch, from.heads, q_len}, {from.heads * q_len, q_len, 1});
  gradients.grad_q = heads(to.q, q_len, from.k_dim());
  gradients.grad_k = heads(to.k, kv_len, from.k_dim());
  gradients.grad_v = heads(to.v, kv_len, from.v_dim());
  if (from.v_a) gradients.grad_v_a = Of<T, 1>(to.v_a, {from.k_dim()}, {1});
  tape.Note(AttentionBackward(Mode::kFast, ArgsOf(from, identity), gradients, tape.execution()));
}

// For one query a sentence: sentences laid end to end as the documents of a single sequence. The
// same function: a query sees the keys of its own document.
template <class T>
void BackwardPacked(Tape<T>& tape, const Attention<T>& from, const Attended<T>& result,
                    const T* lse, const Gradients<T>& to) {
  const Index kv_len = from.kv_len();
  const Index k_dim = from.k_dim();
  const Index v_dim = from.v_dim();
  std::vector<int> queries;
  std::vector<int> keys;
  for (Index first = 0; first < from.batch; first += kPackedSentences) {
    const Index count = std::min(kPackedSentences, from.batch - first);
    queries.clear();
    keys.clear();
    for (Index b = 0; b < count; ++b) {
      queries.push_back(static_cast<int>(b));
      for (Index j = 0; j < kv_len; ++j) {
        const bool exists = j < (*from.lengths)[static_cast<std::size_t>(first + b)];
        keys.push_back(exists ? static_cast<int>(b) : -1);
      }
    }
    const Index rows = count * kv_len;
    const Index key = first * kv_len;
    AttentionArgs args;
    args.q = Heads<const T>(from.q.Row(first), 1, 1, count, k_dim);
    args.k = Heads<const T>(from.k.Row(key), 1, 1, rows, k_dim);
    args.v = Heads<const T>(from.v.Row(key), 1, 1, rows, v_dim);
    if (!from.scaled) args.scale = 1.0;
    args.q_documents = OfInts<2>(queries.data(), {1, count});
    args.kv_documents = OfInts<2>(keys.data(), {1, rows});
    AttentionGradients gradients;
    gradients.grad_out = Heads<const T>(result.out.GradRow(first), 1, 1, count, v_dim);
    gradients.out = Heads<const T>(result.out.Row(first), 1, 1, count, v_dim);
    gradients.lse = Of<const T, 3>(lse + first, {1, 1, count}, {count, count, 1});
    gradients.grad_q = Heads(to.q + first * k_dim, 1, 1, count, k_dim);
    gradients.grad_k = Heads(to.k + key * k_dim, 1, 1, rows, k_dim);
    gradients.grad_v = Heads(to.v + key * v_dim, 1, 1, rows, v_dim);
    tape.Note(AttentionBackward(Mode::kFast, args, gradients, tape.execution()));
  }
}

// out = sum_j w_j v_j with w_j = p_j exp(-(j - c)^2 / (2 s^2)), so d out / d c =
// sum_j w_j v_j (j - c) / s^2. (The contract has no gradient of the centre.)
template <class T>
void AddGradientOfCenter(const Attention<T>& from, const Attended<T>& result) {
  const double deviation = from.local->half_width / 2.0;
  const T factor = static_cast<T>(1.0 / (deviation * deviation));
  const Index kv_len = from.kv_len();
  for (Index b = 0; b < from.batch; ++b) {
    T sum = 0;
    for (Index j = 0; j < kv_len; ++j) {
      const T weight = result.weights[b * kv_len + j];
      if (weight == T{0}) continue;
      const T* const v = from.v.Row(b * kv_len + j);
      const T* const grad = result.out.GradRow(b);
      T product = 0;
      for (Index d = 0; d < from.v.columns; ++d) product += grad[d] * v[d];
      sum += weight * product * (static_cast<T>(j) - from.center.value[b]);
    }
    from.center.grad[b] += factor * sum;
  }
}

template <class T>
Attended<T> AttendByKernel(Tape<T>& tape, const Attention<T>& args) {
  const Index q_len = args.q_len();
  const Index kv_len = args.kv_len();
  const Index k_dim = args.k_dim();
  T* identity = nullptr;
  if (args.v_a) {
    identity = tape.Scratch(k_dim * k_dim);
    std::fill_n(identity, k_dim * k_dim, T{0});
    for (Index i = 0; i < k_dim; ++i) identity[i * k_dim + i] = T{1};
  }
  Attended<T> result{tape.Uninitialised(args.q.rows, args.v.columns), nullptr};
  T* const lse = tape.Scratch(args.batch * args.heads * q_len);
  AttentionOutputs outputs;
  outputs.out = Heads(result.out.value, args.batch, args.heads, q_len, args.v_dim());
  outputs.lse = Of<T, 3>(lse, {args.batch, args.heads, q_len}, {args.heads * q_len, q_len, 1});
  const bool moves = args.local && args.local->gaussian;
  if (args.wants_weights || moves) {
    const std::array<Index, 4> shape{args.batch, args.heads, q_len, kv_len};
    T* const weights = tape.Scratch(args.batch * args.heads * q_len * kv_len);
    outputs.weights = Of<T, 4>(weights, shape, ContiguousStrides(shape));
    result.weights = weights;
  }
  // Rows of a sentence have few keys: no blocks.
  const AttentionAlgorithm algorithm =
      outputs.weights ? AttentionAlgorithm::kMaterialised : AttentionAlgorithm::kAutomatic;
  tape.Note(
      AttentionForward(Mode::kFast, algorithm, ArgsOf(args, identity), outputs, tape.execution()));
  // Two products of the definition.
  const double flops = 2.0 * static_cast<double>(args.q.rows * kv_len) *
                       static_cast<double>(args.q.columns + args.v.columns);
  tape.CountFlops(flops);
  tape.Record([&tape, args, result, lse, identity, moves, flops] {
    tape.CountFlops(2.0 * flops);
    T* const memory =
        tape.Temporary(args.q.size() + args.k.size() + args.v.size() + args.q.columns);
    Gradients<T> grads;
    grads.q = memory;
    grads.k = grads.q + args.q.size();
    grads.v = grads.k + args.k.size();
    grads.v_a = grads.v + args.v.size();
    if (args.q_len() == 1 && args.heads == 1 && !args.v_a && !args.local) {
      BackwardPacked(tape, args, result, lse, grads);
    } else {
      BackwardByEntry(tape, args, identity, result, lse, grads);
    }
    Accumulate(grads.q, args.q.size(), args.q.grad);
    Accumulate(grads.k, args.k.size(), args.k.grad);
    Accumulate(grads.v, args.v.size(), args.v.grad);
    if (args.v_a) Accumulate(grads.v_a, args.q.columns, args.v_a->grad);
    if (moves) AddGradientOfCenter(args, result);
  });
  return result;
}

}  // namespace

Attended<float> Attend(Tape<float>& tape, const Attention<float>& args) {
  return AttendByKernel(tape, args);
}
Attended<double> Attend(Tape<double>& tape, const Attention<double>& args) {
  return AttendByKernel(tape, args);
}

}  // namespace attest
