// SPDX-License-Identifier: Apache-2.0
// The second pass of the backward kernel: the gradients of a block of keys, and what it adds to
// those of the queries.
//
// Computes: with p = 2^(x - m), m and delta' = delta - grad_lse of the first pass (optimized/
//   backward_rows-inl.h), f = dropout times Gaussian, t = tanh of the soft cap:
//     dV += (p f)^T grad_out         dS = p (f <grad_out, v> - delta')   (also grad_bias)
//     dR = dS (1 - t^2)              dK' += dR^T q'        dQ' += dR k'  (features; times scale
//     later)
//   additive: z_u = dR v_a[u] (1 - h_u^2) in place of the last line: dK'_u += sum_i z_u,
//     dQ'_u += sum_j z_u, dv_a[u] += sum dR h_u.
// Shapes: 64 queries, 192 keys; sums in rows of whole vectors (optimized/backward_task.h).
// Rounding points: p; one product each with f, 1 - t^2 and p; one difference; products as in
//   backward_block-inl.h: for dV and dK' in blocks of 64 queries, for dQ' of 192 keys, each block's
//   sum added once.
// Bound: docs/bounds.md, "Gradients".
// Measured: by the kernels that use it.

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_KEYS_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_KEYS_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_KEYS_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Zeros where the first to the last segment of a block have holes: products read them.
template <class T>
void ClearHoles(const BlockShape<T>& shape, T* HWY_RESTRICT block) {
  const std::size_t lanes = hn::Lanes(Tag<T>());
  for (std::size_t s = 0; s < shape.count; ++s) {
    const Segment& segment = shape.segments[s];
    const std::size_t before = s == 0 ? segment.first : shape.segments[s - 1].last;
    std::fill(block + before * kBlockStep, block + segment.first * kBlockStep, T{0});
    const std::size_t begin = segment.begin / lanes * lanes;
    const std::size_t end = (segment.end + lanes - 1) / lanes * lanes;
    for (std::size_t key = segment.first; key < segment.last; ++key) {
      T* HWY_RESTRICT row = block + key * kBlockStep;
      std::fill(row, row + begin, T{0});
      std::fill(row + end, row + kQueryBlock, T{0});
    }
  }
}

// scratch.weights = E f, scratch.grads = dS, times 1 - t^2 if `with_slopes`.
template <class Policy, class T>
HWY_NOINLINE void GradientsOfScores(Policy policy, const BackwardTask<T>& task,
                                    const BlockView<T>& view, const BlockShape<T>& shape,
                                    const BackwardScratch<T>& scratch, bool with_slopes) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const BackwardSizes& n = task.n;
  const std::size_t row = view.Row(n);
  const T* HWY_RESTRICT shifts = task.shifts + row;
  const T* HWY_RESTRICT deltas = task.deltas + row;
  T* HWY_RESTRICT weights = scratch.weights;
  T* HWY_RESTRICT grads = scratch.grads;
  const T* HWY_RESTRICT values = task.values + view.KeyRow(n) * n.v_step;
  const T* HWY_RESTRICT grad_block = task.grad_blocks + row * n.v_dim;
  const bool scales = view.rules.scales();
  const std::size_t plain = IsPlain(task, view) && !scales ? shape.common : 0;
  if (plain > 0) {
    MultiplyCovered(policy, plain, task.keys + view.KeyRow(n) * n.feature_step, n.feature_step,
                    n.features, task.query_blocks + row * n.features,
                    [&](std::size_t key, std::size_t q, auto& acc) ATTEST_INLINE {
                      ATTEST_UNROLL
                      for (std::size_t v = 0; v < kTileVectors; ++v) {
                        const auto shift = hn::Load(d, shifts + q + v * lanes);
                        ATTEST_UNROLL
                        for (std::size_t i = 0; i < kRowsOf<decltype(acc)>; ++i) {
                          const auto weight = WeightOf(policy, d, hn::Sub(acc[i][v], shift));
                          hn::Store(weight, d, weights + (key + i) * kBlockStep + q + v * lanes);
                        }
                      }
                    });
    MultiplyCovered(policy, plain, values, n.v_step, n.v_dim, grad_block,
                    [&](std::size_t key, std::size_t q, auto& acc) ATTEST_INLINE {
                      ATTEST_UNROLL
                      for (std::size_t v = 0; v < kTileVectors; ++v) {
                        const auto delta = hn::Load(d, deltas + q + v * lanes);
                        ATTEST_UNROLL
                        for (std::size_t i = 0; i < kRowsOf<decltype(acc)>; ++i) {
                          const std::size_t at = (key + i) * kBlockStep + q + v * lanes;
                          const auto shifted = hn::Sub(acc[i][v], delta);
                          hn::Store(hn::Mul(hn::Load(d, weights + at), shifted), d, grads + at);
                        }
                      }
                    });
    if (plain == shape.keys) return;
  }
  const BlockShape<T> rest = shape.From(plain);
  ScoreBlock(policy, task, view, rest, scratch,
             [&](std::size_t key, std::size_t q, auto x, auto allowed) ATTEST_INLINE {
               const auto weight = WeightOf(policy, d, hn::Sub(x, hn::Load(d, shifts + q)));
               hn::Store(hn::IfThenElseZero(allowed, weight), d, weights + key * kBlockStep + q);
             });
  MultiplyBlock(policy, rest, values, n.v_step, n.v_dim, grad_block, grads);
  // A weight of 0 is that of a key that is not allowed, which may hold anything finite, or too
  // small to matter.
  ForEachVector(rest, [&](std::size_t key, std::size_t q) ATTEST_INLINE {
    const std::size_t at = key * kBlockStep + q;
    const auto weight = hn::Load(d, weights + at);
    auto product = hn::Load(d, grads + at);
    if (scales) {
      const auto factor = hn::Load(d, scratch.factors + at);
      product = hn::Mul(product, factor);
      hn::Store(hn::Mul(weight, factor), d, weights + at);
    }
    const auto shifted = hn::Sub(product, hn::Load(d, deltas + q));
    auto grad = hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Mul(weight, shifted));
    if (with_slopes) grad = hn::Mul(grad, hn::Load(d, scratch.slopes + at));
    hn::Store(grad, d, grads + at);
  });
  if (!shape.covered) {
    ClearHoles(shape, weights);
    ClearHoles(shape, grads);
  }
}

// scratch.grads times scratch.slopes, which are not defined where keys are not allowed.
template <class T>
void MultiplyBySlopes(const BlockShape<T>& shape, const BackwardScratch<T>& scratch) {
  for (std::size_t key = shape.first_key(); key < shape.last_key(); ++key) {
    for (std::size_t at = key * kBlockStep; at < key * kBlockStep + kQueryBlock; ++at) {
      if (scratch.grads[at] != T{0}) scratch.grads[at] *= scratch.slopes[at];
    }
  }
}

// Adds scratch.grads to grad_bias, whose axes of length 1 sum.
template <class T>
void AddToBias(const BackwardTask<T>& task, const BlockView<T>& view, const BlockShape<T>& shape,
               const T* HWY_RESTRICT grads) {
  const auto& extents = task.bias_shape;
  const auto position = [&](std::size_t axis, std::size_t at) {
    return extents[axis] == 1 ? 0 : at;
  };
  const std::size_t b = position(0, view.head / task.n.q_heads);
  const std::size_t h = position(1, view.head % task.n.q_heads);
  T* HWY_RESTRICT to = task.bias_sums +
                       ((b * extents[1] + h) * extents[2] + position(2, view.query)) * extents[3] +
                       position(3, view.key);
  const std::size_t i_step = extents[2] == 1 ? 0 : extents[3];
  const std::size_t j_step = extents[3] == 1 ? 0 : 1;
  const std::size_t rows = view.Rows(task.n);
  if (i_step == 0) {
    T all = 0;
    for (std::size_t key = shape.first_key(); key < shape.last_key(); ++key) {
      T sum = 0;
      for (std::size_t i = 0; i < rows; ++i) sum = sum + grads[key * kBlockStep + i];
      if (j_step == 0) {
        all = all + sum;
      } else {
        to[key] = to[key] + sum;
      }
    }
    if (j_step == 0) to[0] = to[0] + all;
    return;
  }
  for (std::size_t i = 0; i < rows; ++i) {
    T sum = 0;
    for (std::size_t key = shape.first_key(); key < shape.last_key(); ++key) {
      const T grad = grads[key * kBlockStep + i];
      if (j_step == 0) {
        sum = sum + grad;
      } else {
        to[i * i_step + key] = to[i * i_step + key] + grad;
      }
    }
    if (j_step == 0) to[i * i_step] = to[i * i_step] + sum;
  }
}

// dV, and for dot and general scores dK' and dQ', from scratch.weights and scratch.grads.
template <class Policy, class T>
void AddProducts(Policy policy, const BackwardTask<T>& task, const BlockView<T>& view,
                 const BlockShape<T>& shape, const BackwardScratch<T>& scratch, T* query_sums) {
  const BackwardSizes& n = task.n;
  const std::size_t row = view.Row(n);
  const bool hidden = task.args.score == ScoreKind::kAdditive;
  for (std::size_t s = 0; s < shape.count; ++s) {
    const Segment& segment = shape.segments[s];
    const std::size_t size = segment.last - segment.first;
    const std::size_t queries = segment.end - segment.begin;
    const std::size_t block = segment.first * kBlockStep + segment.begin;
    if (task.gradients.grad_v) {
      AddProduct(policy, scratch.weights + block, kBlockStep, 1, size, queries,
                 task.grads + (row + segment.begin) * n.v_step, n.v_step, n.v_dim,
                 scratch.value_sums + segment.first * n.v_step, n.v_step);
    }
    if (task.wants_keys && !hidden) {
      AddProduct(policy, scratch.grads + block, kBlockStep, 1, size, queries,
                 task.queries + (row + segment.begin) * n.feature_step, n.feature_step, n.features,
                 scratch.key_sums + segment.first * n.feature_step, n.feature_step);
    }
  }
  if (!task.wants_queries || hidden) return;
  const T* const keys = task.keys + view.KeyRow(n) * n.feature_step;
  T* const sums = query_sums + row * n.feature_step;
  if (shape.covered) {
    AddProduct(policy, scratch.grads, 1, kBlockStep, view.Rows(n), shape.keys, keys, n.feature_step,
               n.features, sums, n.feature_step);
    return;
  }
  for (std::size_t i = 0; i < kQueryBlock; i += kTileRows) {
    const std::size_t size = std::min(kTileRows, kQueryBlock - i);
    std::size_t first = kKeyBlock;
    std::size_t last = 0;
    for (std::size_t r = i; r < i + size; ++r) {
      if (shape.first[r] >= shape.last[r]) continue;
      first = std::min(first, shape.first[r]);
      last = std::max(last, shape.last[r]);
    }
    if (first >= last) continue;
    AddProduct(policy, scratch.grads + first * kBlockStep + i, 1, kBlockStep, size, last - first,
               keys + first * n.feature_step, n.feature_step, n.features, sums + i * n.feature_step,
               n.feature_step);
  }
}

// The sum of a row of a block in an order that no target changes: 16 sums of every 16th element,
// then the sums in pairs.
template <class T>
HWY_INLINE T SumOfRow(const T* HWY_RESTRICT row) {
  T sums[16];
  for (std::size_t i = 0; i < 16; ++i) {
    sums[i] = row[i];
    for (std::size_t q = 16; q < kQueryBlock; q += 16) sums[i] = sums[i] + row[q + i];
  }
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] = sums[i] + sums[i + width];
  }
  return sums[0];
}

// dK', dQ' and dv_a of additive scores, one hidden unit after the other.
template <class Policy, class T>
void AddHiddenGradients(Policy policy, const BackwardTask<T>& task, const BlockView<T>& view,
                        const BlockShape<T>& shape, const BackwardScratch<T>& scratch,
                        T* query_sums, T* v_a_sums) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const BackwardSizes& n = task.n;
  const std::size_t row = view.Row(n);
  const T* HWY_RESTRICT keys = task.keys + view.KeyRow(n) * n.feature_step;
  const T* HWY_RESTRICT queries = task.query_blocks + row * n.features;
  T* HWY_RESTRICT arguments = scratch.terms;  // z_u; terms have done their work
  for (std::size_t u = 0; u < n.features; ++u) {
    HWY_ALIGN T by_query[kQueryBlock];
    const auto v_a = hn::Set(d, task.v_a[u]);
    for (std::size_t q = 0; q < kQueryBlock; q += lanes) {
      const auto query = hn::Load(d, queries + u * kQueryBlock + q);
      auto sum = hn::Zero(d);
      auto hidden_sum = hn::Zero(d);
      for (std::size_t key = shape.first_key(); key < shape.last_key(); ++key) {
        const std::size_t at = key * kBlockStep + q;
        const auto x = hn::Add(hn::Set(d, keys[key * n.feature_step + u]), query);
        const auto hidden = Tanh(policy, d, x);
        const auto grad = hn::Load(d, scratch.grads + at);
        const auto slope = NegMulAdd(policy, d, hidden, hidden, hn::Set(d, T{1}));
        const auto z = hn::Mul(hn::Mul(grad, v_a), slope);
        hn::Store(z, d, arguments + at);
        sum = hn::Add(sum, z);
        hidden_sum = MulAdd(policy, d, grad, hidden, hidden_sum);
      }
      hn::Store(sum, d, by_query + q);
      T* HWY_RESTRICT to = v_a_sums + u * kQueryBlock + q;
      hn::Store(hn::Add(hn::Load(d, to), hidden_sum), d, to);
    }
    for (std::size_t i = 0; i < kQueryBlock; ++i) {
      T& to = query_sums[(row + i) * n.feature_step + u];
      to = to + by_query[i];
    }
    for (std::size_t key = shape.first_key(); key < shape.last_key(); ++key) {
      T& to = scratch.key_sums[key * n.feature_step + u];
      to = to + SumOfRow(arguments + key * kBlockStep);
    }
  }
}

// to = from * scale, + 0 for a zero that some targets would give another sign; then rounded.
template <class T>
HWY_INLINE void WriteScaled(T* HWY_RESTRICT row, std::size_t count, double scale, DType dtype,
                            void* to, Index stride) {
  const auto factor = static_cast<T>(scale);
  for (std::size_t c = 0; c < count; ++c) row[c] = row[c] * factor + T{0};
  WriteRow(row, count, dtype, to, stride);
}

// Writes the gradients of the block's keys, or for additive scores keeps those of their features.
template <class Policy, class T>
void WriteKeys(Policy policy, const BackwardTask<T>& task, std::size_t store, std::size_t first,
               std::size_t size, const BackwardScratch<T>& scratch) {
  const BackwardSizes& n = task.n;
  const auto b = static_cast<Index>(store / n.kv_heads);
  const auto g = static_cast<Index>(store % n.kv_heads);
  const auto& grad_v = task.gradients.grad_v;
  const auto& grad_k = task.gradients.grad_k;
  const bool hidden = task.args.score == ScoreKind::kAdditive;
  if (task.key_features != nullptr) {
    std::copy(scratch.key_sums, scratch.key_sums + size * n.feature_step,
              task.key_features + (store * n.kv_len + first) * n.feature_step);
  }
  for (std::size_t key = 0; key < size; ++key) {
    const auto j = static_cast<Index>(first + key);
    if (grad_v) {
      WriteScaled(scratch.value_sums + key * n.v_step, n.v_dim, 1.0, grad_v->dtype,
                  At(*grad_v, b, g, j), grad_v->strides[3]);
    }
    if (!grad_k) continue;
    T* row = scratch.key_sums + key * n.feature_step;
    if (hidden) {
      std::fill(scratch.rows, scratch.rows + n.k_step, T{0});
      AddProduct(policy, row, n.feature_step, 1, 1, n.features, task.key_from_features, n.k_step,
                 n.k_dim, scratch.rows, n.k_step);
      row = scratch.rows;
    }
    WriteScaled(row, n.k_dim, task.scale, grad_k->dtype, At(*grad_k, b, g, j), grad_k->strides[3]);
  }
}

// Part `part` of the key blocks of one (b, g); `unit` numbers what v_a_sums has for it.
template <class Policy, class T>
void KeysOfStore(Policy policy, const BackwardTask<T>& task, std::size_t store, std::size_t part,
                 std::size_t unit, const BackwardScratch<T>& scratch) {
  const BackwardSizes& n = task.n;
  const std::size_t b = store / n.kv_heads;
  const bool hidden = task.args.score == ScoreKind::kAdditive;
  const bool wants_bias = task.gradients.grad_bias.has_value();
  const bool wants_scores = task.wants_queries || task.wants_keys || wants_bias;
  const bool capped = task.args.softcap > 0.0;
  T* const query_sums = task.query_sums + part * n.heads() * n.q_rows * n.feature_step;
  // The group's rows of them, here where the cache keeps them.
  const std::size_t group_size = n.group * n.q_rows * n.feature_step;
  std::fill(query_sums + store * group_size, query_sums + (store + 1) * group_size, T{0});
  BlockShape<T> shape;
  for (std::size_t block = part; block < n.key_blocks; block += n.parts) {
    BlockView<T> view;
    view.store = store;
    view.key = block * kKeyBlock;
    const std::size_t size = std::min(kKeyBlock, n.kv_len - view.key);
    std::fill(scratch.key_sums, scratch.key_sums + size * n.feature_step, T{0});
    std::fill(scratch.value_sums, scratch.value_sums + size * n.v_step, T{0});
    for (std::size_t member = 0; member < n.group; ++member) {
      const std::size_t h = store % n.kv_heads * n.group + member;
      view.head = b * n.q_heads + h;
      view.rules = HeadRules(task.args, static_cast<Index>(b), static_cast<Index>(h));
      for (std::size_t query = 0; query < n.query_blocks; ++query) {
        view.query = query * kQueryBlock;
        const std::size_t row = view.Row(n);
        const BlockRanges& ranges = task.block_ranges[row / kQueryBlock];
        if (ranges.all.end <= static_cast<Index>(view.key) ||
            ranges.all.begin >= static_cast<Index>(view.key + size)) {
          continue;
        }
        shape.Describe(task.ranges + row, ranges, static_cast<Index>(view.key), size);
        StageRules(task, view, shape, scratch);
        GradientsOfScores(policy, task, view, shape, scratch, capped && !wants_bias);
        if (wants_bias) {
          AddToBias(task, view, shape, scratch.grads);
          if (capped) {
            MultiplyBySlopes(shape, scratch);
          }
        }
        AddProducts(policy, task, view, shape, scratch, query_sums);
        if (hidden && wants_scores) {
          AddHiddenGradients(policy, task, view, shape, scratch, query_sums,
                             task.v_a_sums + unit * n.features * kQueryBlock);
        }
      }
    }
    WriteKeys(policy, task, store, view.key, size, scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
