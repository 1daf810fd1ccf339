// SPDX-License-Identifier: Apache-2.0
// A block of 64 queries against a block of up to 192 keys: which part of it is needed, its scores,
// its products. The parts that both passes of the backward kernel share.
//
// Computes: S^T of docs/contract.md in units of log2(e), x = <k_j, feature_scale q_i>, or
//   sum_u v_a[u] tanh(k'_ju + q'_iu) for additive scores; with a soft cap cap log2(e) tanh(x); plus
//   terms. And sums of products C[r][c] += sum_k a b.
// Shapes: blocks [keys][kBlockStep], 64 queries to a row (optimized/backward_task.h).
// Rounding points: a MulAdd for each feature, in order, from 0; tanh 4 ULP and one product; one sum
// with
//   the term. Products: tiles of optimized/tile-inl.h from 0, then one addition to C.
// Bound: docs/bounds.md, "Scores" and "Gradients".
// Measured: by the kernels that use it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_BACKWARD_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_BACKWARD_BLOCK_INL_H_
#undef ATTEST_OPTIMIZED_BACKWARD_BLOCK_INL_H_
#else
#define ATTEST_OPTIMIZED_BACKWARD_BLOCK_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/backward_task.h"
#include "optimized/rows.h"
#include "optimized/tanh-inl.h"
#include "optimized/tile-inl.h"
#include "optimized/weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys [first, last) of a block, seen by queries [begin, end) of it and by no others.
struct Segment {
  std::size_t first = 0, last = 0;
  std::size_t begin = 0, end = 0;
};

// What of a block takes part by the ranges of its rows.
template <class T>
struct BlockShape {
  static constexpr std::size_t kSegment = 12;  // keys, two tiles

  std::size_t keys = 0;
  bool covered = false;    // every query takes every key
  std::size_t common = 0;  // so many keys from the first on every query takes; whole tiles, or all
  std::size_t count = 0;
  Segment segments[kKeyBlock / kSegment];
  std::size_t first[kQueryBlock], last[kQueryBlock];  // keys of a query; none: first >= last
  HWY_ALIGN T begin[kQueryBlock];                     // the same in T
  HWY_ALIGN T end[kQueryBlock];

  // Keys outside of these have no queries.
  std::size_t first_key() const { return count == 0 ? 0 : segments[0].first; }
  std::size_t last_key() const { return count == 0 ? 0 : segments[count - 1].last; }

  // Keys key, ..., key + size - 1 and the ranges of 64 queries.
  void Describe(const KeyRange* ranges, const BlockRanges& block, Index key, std::size_t size) {
    keys = size;
    const auto last_key = key + static_cast<Index>(size);
    covered = block.common.begin <= key && block.common.end >= last_key;
    count = 1;
    segments[0] = {0, size, 0, kQueryBlock};
    common = size;
    if (covered) return;
    common = 0;
    if (block.common.begin <= key && block.common.end > key) {
      common = static_cast<std::size_t>(block.common.end - key) / kTileRows * kTileRows;
    }
    for (std::size_t i = 0; i < kQueryBlock; ++i) {
      const Index lower = std::clamp(ranges[i].begin, key, last_key) - key;
      const Index upper = std::clamp(ranges[i].end, key, last_key) - key;
      first[i] = static_cast<std::size_t>(lower);
      last[i] = static_cast<std::size_t>(upper);
      begin[i] = static_cast<T>(lower);
      end[i] = static_cast<T>(upper);
    }
    count = 0;
    for (std::size_t k = 0; k < size; k += kSegment) {
      Segment next{k, std::min(size, k + kSegment), kQueryBlock, 0};
      for (std::size_t i = 0; i < kQueryBlock; ++i) {
        if (first[i] >= last[i] || first[i] >= next.last || last[i] <= next.first) continue;
        next.begin = std::min(next.begin, i);
        next.end = i + 1;
      }
      if (next.begin >= next.end) continue;
      Segment* const before = count == 0 ? nullptr : &segments[count - 1];
      if (before != nullptr && before->last == next.first && before->begin == next.begin &&
          before->end == next.end) {
        before->last = next.last;
      } else {
        segments[count++] = next;
      }
    }
  }

  // The same without keys before `key`.
  BlockShape From(std::size_t key) const {
    BlockShape rest = *this;
    rest.count = 0;
    for (std::size_t s = 0; s < count; ++s) {
      Segment segment = segments[s];
      segment.first = std::max(segment.first, key);
      if (segment.first < segment.last) rest.segments[rest.count++] = segment;
    }
    return rest;
  }
};

// Reads a row, zeros behind it up to `padded`. False, and all zeros, if an element is not finite.
template <class T>
HWY_INLINE bool LoadFinite(DType dtype, const void* from, Index stride, std::size_t count,
                           std::size_t padded, T* HWY_RESTRICT to) {
  ReadRow(dtype, from, stride, count, to);
  unsigned bad = 0;
  for (std::size_t c = 0; c < count; ++c) {
    bad |= static_cast<unsigned>(!(std::fabs(to[c]) <= std::numeric_limits<T>::max()));
  }
  const bool finite = bad == 0;
  std::fill(to + (finite ? count : 0), to + padded, T{0});
  return finite;
}

// c[r][.] += sum over k < n of a[r * row + k * step] * b[k * b_step + .], for r < m and `columns`
// columns, rounded up to whole vectors.
template <class Policy, class T>
HWY_NOINLINE void AddProduct(Policy policy, const T* HWY_RESTRICT a, std::size_t row,
                             std::size_t step, std::size_t m, std::size_t n,
                             const T* HWY_RESTRICT b, std::size_t b_step, std::size_t columns,
                             T* HWY_RESTRICT c, std::size_t c_step) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t first = 0; first < columns; first += kTileVectors * lanes) {
    const std::size_t left = (columns - first + lanes - 1) / lanes;
    WithVectors(std::min(left, kTileVectors), [&](auto size) ATTEST_INLINE {
      constexpr std::size_t kVectors = decltype(size)::value;
      MultiplyRows<kVectors>(policy, d, a, row, step, m, n, b + first, b_step,
                             [&](std::size_t r, auto& acc) ATTEST_INLINE {
                               ATTEST_UNROLL
                               for (std::size_t i = 0; i < kRowsOf<decltype(acc)>; ++i) {
                                 T* HWY_RESTRICT to = c + (r + i) * c_step + first;
                                 ATTEST_UNROLL
                                 for (std::size_t v = 0; v < kVectors; ++v) {
                                   const auto old = hn::Load(d, to + v * lanes);
                                   hn::Store(hn::Add(old, acc[i][v]), d, to + v * lanes);
                                 }
                               }
                             });
    });
  }
}

// to[key][query] = <a row of the key, column of the query> for what the shape needs, rounded up to
// whole vectors of queries; `block` is [inner][64].
template <class Policy, class T>
HWY_NOINLINE void MultiplyBlock(Policy policy, const BlockShape<T>& shape,
                                const T* HWY_RESTRICT rows, std::size_t row_step, std::size_t inner,
                                const T* HWY_RESTRICT block, T* HWY_RESTRICT to) {
  const Tag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t s = 0; s < shape.count; ++s) {
    const Segment& segment = shape.segments[s];
    const std::size_t last = (segment.end + lanes - 1) / lanes;
    for (std::size_t v0 = segment.begin / lanes; v0 < last; v0 += kTileVectors) {
      WithVectors(std::min(last - v0, kTileVectors), [&](auto size) ATTEST_INLINE {
        constexpr std::size_t kVectors = decltype(size)::value;
        MultiplyRows<kVectors>(
            policy, d, rows + segment.first * row_step, row_step, 1, segment.last - segment.first,
            inner, block + v0 * lanes, kQueryBlock, [&](std::size_t r, auto& acc) ATTEST_INLINE {
              ATTEST_UNROLL
              for (std::size_t i = 0; i < kRowsOf<decltype(acc)>; ++i) {
                T* HWY_RESTRICT at = to + (segment.first + r + i) * kBlockStep + v0 * lanes;
                ATTEST_UNROLL
                for (std::size_t v = 0; v < kVectors; ++v) hn::Store(acc[i][v], d, at + v * lanes);
              }
            });
      });
    }
  }
}

// The same for `keys` keys and all queries; finish(key, query, acc) receives the products of keys
// key, key + 1, ... with vectors query, query + lanes, ..., Vec acc[R][kTileVectors].
template <class Policy, class T, class Finish>
HWY_INLINE void MultiplyCovered(Policy policy, std::size_t keys, const T* HWY_RESTRICT rows,
                                std::size_t row_step, std::size_t inner,
                                const T* HWY_RESTRICT block, const Finish& finish) {
  const Tag<T> d;
  const std::size_t tile = kTileVectors * hn::Lanes(d);
  for (std::size_t q = 0; q < kQueryBlock; q += tile) {
    MultiplyRows<kTileVectors>(policy, d, rows, row_step, 1, keys, inner, block + q, kQueryBlock,
                               [&](std::size_t r, auto& acc) ATTEST_INLINE { finish(r, q, acc); });
  }
}

// Calls body(key, query) for every key and every vector of queries of a shape.
template <class T, class Body>
HWY_INLINE void ForEachVector(const BlockShape<T>& shape, const Body& body) {
  const std::size_t lanes = hn::Lanes(Tag<T>());
  for (std::size_t s = 0; s < shape.count; ++s) {
    const Segment& segment = shape.segments[s];
    for (std::size_t key = segment.first; key < segment.last; ++key) {
      for (std::size_t q = segment.begin / lanes * lanes; q < segment.end; q += lanes) body(key, q);
    }
  }
}

// Additive scores: to[key][query] = sum over u of v_a[u] tanh(key[u] + block[u][query]).
template <class Policy, class T>
HWY_NOINLINE void AddHiddenUnits(Policy policy, const BlockShape<T>& shape,
                                 const T* HWY_RESTRICT rows, std::size_t row_step,
                                 std::size_t units, const T* HWY_RESTRICT block,
                                 const T* HWY_RESTRICT v_a, T* HWY_RESTRICT to) {
  const Tag<T> d;
  ForEachVector(shape, [&](std::size_t key, std::size_t q) ATTEST_INLINE {
    const T* HWY_RESTRICT row = rows + key * row_step;
    hn::Vec<Tag<T>> x = hn::Zero(d);
    for (std::size_t u = 0; u < units; ++u) {
      const auto sum = hn::Add(hn::Set(d, row[u]), hn::Load(d, block + u * kQueryBlock + q));
      x = MulAdd(policy, d, hn::Set(d, v_a[u]), Tanh(policy, d, sum), x);
    }
    hn::Store(x, d, to + key * kBlockStep + q);
  });
}

// A (b, h), its block of queries and its block of keys.
template <class T>
struct BlockView {
  std::size_t head = 0;   // of q: b * Hq + h
  std::size_t store = 0;  // of k: b * Hkv + g
  std::size_t query = 0;  // first query
  std::size_t key = 0;    // first key
  HeadRules rules;

  // Row of the head's staged arrays, and of the store's.
  std::size_t Row(const BackwardSizes& n) const { return head * n.q_rows + query; }
  std::size_t KeyRow(const BackwardSizes& n) const { return store * n.kv_len + key; }
  std::size_t Rows(const BackwardSizes& n) const { return std::min(kQueryBlock, n.q_len - query); }
};

// Fills scratch.terms, if the head has any, and scratch.factors likewise.
template <class T>
void StageRules(const BackwardTask<T>& task, const BlockView<T>& view, const BlockShape<T>& shape,
                const BackwardScratch<T>& scratch) {
  constexpr T kExcluded = -std::numeric_limits<T>::infinity();
  const std::size_t rows = view.Rows(task.n);
  const auto key = static_cast<Index>(view.key);
  const auto row = [&](std::size_t i) { return scratch.rows + i * kKeyBlock; };
  const auto store = [&](T* to) {
    Transpose(scratch.rows, kKeyBlock, kQueryBlock, shape.keys, to, kBlockStep);
  };
  if (view.rules.selects() || view.rules.adds()) {
    for (std::size_t i = 0; i < kQueryBlock; ++i) {
      if (i < rows) {
        view.rules.FillTerms(static_cast<Index>(view.query + i), key, shape.keys, kLog2E, row(i));
      } else {
        std::fill(row(i), row(i) + shape.keys, kExcluded);
      }
    }
    store(scratch.terms);
  }
  if (view.rules.scales()) {
    const KeyRange* ranges = task.ranges + view.Row(task.n);
    for (std::size_t i = 0; i < kQueryBlock; ++i) {
      if (ranges[i].begin < ranges[i].end) {
        view.rules.FillFactors(static_cast<Index>(view.query + i), key, shape.keys, true, row(i));
      } else {
        std::fill(row(i), row(i) + shape.keys, T{0});  // whatever its centre is
      }
    }
    store(scratch.factors);
  }
}

// Whether scores are nothing but dot products.
template <class T>
bool IsPlain(const BackwardTask<T>& task, const BlockView<T>& view) {
  return task.args.score != ScoreKind::kAdditive && task.args.softcap == 0.0 &&
         !view.rules.selects() && !view.rules.adds();
}

// Scores x of any block, in units of log2(e): finish(key, query, x, allowed) for every vector of
// the shape. Overwrites scratch.weights, and scratch.slopes under a soft cap. StageRules comes
// first.
template <class Policy, class T, class Finish>
HWY_INLINE void ScoreBlock(Policy policy, const BackwardTask<T>& task, const BlockView<T>& view,
                           const BlockShape<T>& shape, const BackwardScratch<T>& scratch,
                           const Finish& finish) {
  const Tag<T> d;
  const T* HWY_RESTRICT keys = task.keys + view.KeyRow(task.n) * task.n.feature_step;
  const T* HWY_RESTRICT queries = task.query_blocks + view.Row(task.n) * task.n.features;
  T* HWY_RESTRICT scores = scratch.weights;
  if (task.args.score == ScoreKind::kAdditive) {
    AddHiddenUnits(policy, shape, keys, task.n.feature_step, task.n.features, queries,
                   task.scaled_v_a, scores);
  } else {
    MultiplyBlock(policy, shape, keys, task.n.feature_step, task.n.features, queries, scores);
  }
  const double softcap = task.args.softcap;
  const bool has_terms = view.rules.selects() || view.rules.adds();
  const auto cap = hn::Set(d, static_cast<T>(softcap * kLog2E));
  const auto excluded = hn::Set(d, -std::numeric_limits<T>::infinity());
  ForEachVector(shape, [&](std::size_t key, std::size_t q) ATTEST_INLINE {
    const std::size_t at = key * kBlockStep + q;
    auto x = hn::Load(d, scores + at);
    if (softcap > 0.0) {
      const auto t = Tanh(policy, d, x);
      hn::Store(NegMulAdd(policy, d, t, t, hn::Set(d, T{1})), d, scratch.slopes + at);
      x = hn::Mul(t, cap);
    }
    auto allowed = hn::Eq(hn::Zero(d), hn::Zero(d));
    if (has_terms) {
      const auto term = hn::Load(d, scratch.terms + at);
      x = hn::Add(x, term);
      allowed = hn::Not(hn::Eq(term, excluded));  // a NaN takes part
    } else if (!shape.covered) {
      const auto here = hn::Set(d, static_cast<T>(key));
      allowed = hn::And(hn::Ge(here, hn::Load(d, shape.begin + q)),
                        hn::Lt(here, hn::Load(d, shape.end + q)));
    }
    finish(key, q, x, allowed);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
