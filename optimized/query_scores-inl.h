// SPDX-License-Identifier: Apache-2.0
// Scores of a block of queries against a block of keys, queries in the lanes, in units of log2(e).
//
// Computes: s_ij = <q'_i, k_j> with q' = factor q, after W for `general`; or sum_a v'_a tanh(A_ia +
//   C_ja) with v' = factor v_a, A = W_q q + b, C = W_k k for `additive`. With a soft cap s <- cap
//   tanh(s). Where the head has masks, biases or ALiBi, s <- s + term, -infinity for keys that are
//   not allowed.
// Shapes: scores[j][i] for n <= kKeyBlock keys and kQueries queries.
// Rounding points: q' and v' once, from double; one MulAdd a term in ascending order (optimized/
//   tile-inl.h), + b, the sum A + C, tanh (optimized/tanh-inl.h); cap times tanh; the term once
//   (twice with bias and ALiBi) and its sum with s.
// Bound: docs/bounds.md, "Scores". Measured: by the kernels that use it.

#include <algorithm>
#include <cstddef>
#include <limits>

#include "optimized/forward_task.h"
#include "optimized/rows.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_QUERY_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_QUERY_SCORES_INL_H_
#undef ATTEST_OPTIMIZED_QUERY_SCORES_INL_H_
#else
#define ATTEST_OPTIMIZED_QUERY_SCORES_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/tanh-inl.h"
#include "optimized/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vector v of the queries needs keys [0, end[v]) of a block, where end never falls: below the
// diagonal of a causal mask later queries need more keys.
template <std::size_t V>
struct Segments {
  std::size_t end[V];
};

// Calls body(v, begin, end) for the segments of a block: keys [begin, end) are needed by the
// vectors v, v + 1, ..., where v is a constant.
template <std::size_t V, std::size_t First = 0, class Body>
HWY_INLINE void ForEachSegment(const Segments<V>& segments, const Body& body) {
  const std::size_t begin = First == 0 ? 0 : segments.end[First - (First > 0 ? 1 : 0)];
  if (begin < segments.end[First]) {
    body(std::integral_constant<std::size_t, First>(), begin, segments.end[First]);
  }
  if constexpr (First + 1 < V) ForEachSegment<V, First + 1>(segments, body);
}

template <class Policy, class S, std::size_t V>
class QueryScores {
 public:
  using D = Tag<S>;
  using Vec = hn::Vec<D>;
  static constexpr std::size_t kLanes = hn::MaxLanes(D());
  static constexpr std::size_t kQueries = V * kLanes;

  // Rows [first, first + kQueries) of the head, as far as they exist.
  QueryScores(const HeadTask<S>& task, Index first, Carver& carver) : task_(task), first_(first) {
    if (task.q_len > first) {
      rows_ = std::min(kQueries, static_cast<std::size_t>(task.q_len - first));
    }
    rows_buffer_ = carver.Take<S>(kQueries * std::max(task.q_dim, kKeyBlock));
    given_ = carver.Take<S>(kQueries * task.q_dim);
    q_ = task.score == ScoreKind::kDot ? given_ : carver.Take<S>(kQueries * task.width);
    scores_ = carver.Take<S>(kQueries * kKeyBlock);
    terms_ = carver.Take<S>(kQueries * kKeyBlock);
  }

  std::size_t rows() const { return rows_; }  // that exist
  Index first() const { return first_; }
  S* scores() { return scores_; }  // [kKeyBlock][kQueries]
  // The union of the keys that the rows' ranges leave.
  KeyRange range() const { return range_; }
  // Whether scores get terms: what excludes a key is then known for every block that was computed.
  bool has_terms() const { return task_.rules.selects() || task_.rules.adds(); }
  // [kKeyBlock][kQueries], -infinity for keys that are not allowed.
  const S* terms() const { return terms_; }

  // To be called once, before the rest.
  void Load() {
    LoadQueries();
    range_ = {std::numeric_limits<Index>::max(), 0};
    for (std::size_t r = 0; r < rows_; ++r) {
      ranges_[r] = task_.rules.RangeOf(first_ + static_cast<Index>(r));
      if (ranges_[r].end <= ranges_[r].begin) continue;
      range_.begin = std::min(range_.begin, ranges_[r].begin);
      range_.end = std::max(range_.end, ranges_[r].end);
    }
    if (range_.end <= range_.begin) range_ = {};
    std::fill(ranges_ + rows_, ranges_ + kQueries, ranges_[rows_ - 1]);
  }

  // Whether every row's range holds all keys [j, j + n).
  bool Covered(Index j, std::size_t n) const {
    return std::all_of(ranges_, ranges_ + rows_, [&](const KeyRange& range) {
      return range.begin <= j && j + static_cast<Index>(n) <= range.end;
    });
  }

  Segments<V> SegmentsOf(Index j, std::size_t n) const {
    Segments<V> segments;
    Index end = 0;
    for (std::size_t v = 0; v < V; ++v) {
      for (std::size_t r = v * kLanes; r < (v + 1) * kLanes; ++r) {
        end = std::max(end, ranges_[r].end - j);
      }
      segments.end[v] = static_cast<std::size_t>(std::clamp(end, Index{0}, static_cast<Index>(n)));
    }
    return segments;
  }

  // Scores of keys [j, j + n), as far as the segments reach, and the maximum of each row in
  // max[kQueries] (of what is not NaN, or NaN); those of keys that are not allowed are -infinity.
  void Compute(Index j, const Segments<V>& segments, bool covered, S* HWY_RESTRICT max) {
    const D d;
    for (std::size_t v = 0; v < V; ++v) {
      hn::Store(hn::Set(d, -std::numeric_limits<S>::infinity()), d, max + v * kLanes);
    }
    if (task_.score == ScoreKind::kAdditive) {
      AdditiveScores(j, segments, max);
    } else {
      ForEachSegment(segments, [&](auto first, std::size_t begin, std::size_t end) ATTEST_INLINE {
        DotScores<decltype(first)::value>(j, begin, end, max);
      });
    }
    if (task_.cap == 0.0 && covered && !has_terms()) return;
    if (has_terms()) StageTerms(j, segments.end[V - 1]);
    Finish(j, segments, max);
  }

  // Fills terms() for keys [j, j + n), whether or not the scores need them.
  void StageTerms(Index j, std::size_t n) {
    for (std::size_t r = 0; r < rows_; ++r) {
      task_.rules.FillTerms(first_ + static_cast<Index>(r), j, n, kLog2E, rows_buffer_ + r * n);
    }
    std::fill(rows_buffer_ + rows_ * n, rows_buffer_ + kQueries * n, S{0});
    Transpose(rows_buffer_, n, kQueries, n, terms_, kQueries);
  }

 private:
  // q_[c][i] = element c of row i of what is multiplied with the keys; 0 for rows beyond the last.
  void LoadQueries() {
    const D d;
    const std::size_t dim = task_.q_dim;
    const double factor = task_.score == ScoreKind::kAdditive ? 1.0 : task_.factor;
    if (rows_ < kQueries) std::fill(given_, given_ + kQueries * dim, S{0});
    if (task_.q.dtype == DTypeOf<S>::value && task_.q.strides[1] == 1) {
      Transpose(static_cast<const S*>(At(task_.q, first_)),
                static_cast<std::size_t>(task_.q.strides[0]), rows_, dim, given_, kQueries);
    } else {
      for (std::size_t r = 0; r < rows_; ++r) {
        ReadRow(task_.q.dtype, At(task_.q, first_ + static_cast<Index>(r)), task_.q.strides[1], dim,
                rows_buffer_ + r * dim);
      }
      Transpose(rows_buffer_, dim, rows_, dim, given_, kQueries);
    }
    for (std::size_t i = 0; i < kQueries * dim; ++i) {
      given_[i] = static_cast<S>(static_cast<double>(given_[i]) * factor);
    }
    const auto store = [&](std::size_t r, auto& sums) ATTEST_INLINE {
      for (std::size_t i = 0; i < kRowsOf<decltype(sums)>; ++i) {
        for (std::size_t v = 0; v < V; ++v) {
          Vec sum = sums[i][v];
          if (task_.b != nullptr) sum = hn::Add(sum, hn::Set(d, task_.b[r + i]));
          hn::Store(sum, d, q_ + (r + i) * kQueries + v * kLanes);
        }
      }
    };
    if (task_.score == ScoreKind::kGeneral) {
      MultiplyRows<V>(Policy(), d, task_.w, 1, task_.width, task_.width, dim, given_, kQueries,
                      store);
    } else if (task_.score == ScoreKind::kAdditive) {
      MultiplyRows<V>(Policy(), d, task_.w_q, dim, 1, task_.width, dim, given_, kQueries, store);
    }
  }

  template <std::size_t First>
  HWY_INLINE void DotScores(Index j, std::size_t begin, std::size_t end, S* HWY_RESTRICT max) {
    const D d;
    const S* const keys = task_.keys + (static_cast<std::size_t>(j) + begin) * task_.key_step;
    S* const scores = scores_ + begin * kQueries + First * kLanes;
    MultiplyRows<V - First>(
        Policy(), d, keys, task_.key_step, 1, end - begin, task_.width, q_ + First * kLanes,
        kQueries, [&](std::size_t r, auto& sums) ATTEST_INLINE {
          ATTEST_UNROLL
          for (std::size_t v = 0; v < V - First; ++v) {
            S* const row_max = max + (First + v) * kLanes;
            Vec most = hn::Load(d, row_max);
            ATTEST_UNROLL
            for (std::size_t i = 0; i < kRowsOf<decltype(sums)>; ++i) {
              hn::Store(sums[i][v], d, scores + (r + i) * kQueries + v * kLanes);
              most = hn::Max(most, sums[i][v]);
            }
            hn::Store(most, d, row_max);
          }
        });
  }

  void AdditiveScores(Index j, const Segments<V>& segments, S* HWY_RESTRICT max) {
    const D d;
    for (std::size_t v = 0; v < V; ++v) {
      Vec most = hn::Load(d, max + v * kLanes);
      for (std::size_t t = 0; t < segments.end[v]; ++t) {
        const S* const key = task_.keys + (static_cast<std::size_t>(j) + t) * task_.key_step;
        Vec sum = hn::Zero(d);
        for (std::size_t a = 0; a < task_.width; ++a) {
          const Vec x = hn::Add(hn::Load(d, q_ + a * kQueries + v * kLanes), hn::Set(d, key[a]));
          sum = MulAdd(Policy(), d, hn::Set(d, task_.v_a[a]), Tanh(Policy(), d, x), sum);
        }
        hn::Store(sum, d, scores_ + t * kQueries + v * kLanes);
        most = hn::Max(most, sum);
      }
      hn::Store(most, d, max + v * kLanes);
    }
  }

  // Soft cap, terms and ranges; the maxima anew.
  void Finish(Index j, const Segments<V>& segments, S* HWY_RESTRICT max) {
    const D d;
    const Vec excluded = hn::Set(d, -std::numeric_limits<S>::infinity());
    const Vec cap = hn::Set(d, static_cast<S>(task_.cap));
    const bool has_terms = this->has_terms();
    HWY_ALIGN S begins[kQueries];
    HWY_ALIGN S ends[kQueries];
    for (std::size_t r = 0; r < kQueries; ++r) {  // small integers: exact in every S
      const auto block = static_cast<Index>(kKeyBlock);
      begins[r] = static_cast<S>(std::clamp(ranges_[r].begin - j, Index{0}, block));
      ends[r] = static_cast<S>(std::clamp(ranges_[r].end - j, Index{0}, block));
    }
    for (std::size_t v = 0; v < V; ++v) {
      const Vec begin = hn::Load(d, begins + v * kLanes);
      const Vec end = hn::Load(d, ends + v * kLanes);
      Vec most = excluded;
      for (std::size_t t = 0; t < segments.end[v]; ++t) {
        const std::size_t at = t * kQueries + v * kLanes;
        Vec score = hn::Load(d, scores_ + at);
        if (task_.cap != 0.0) score = hn::Mul(cap, Tanh(Policy(), d, score));
        if (has_terms) {
          const Vec term = hn::Load(d, terms_ + at);
          score = hn::IfThenElse(hn::Eq(term, excluded), excluded, hn::Add(score, term));
        } else {
          const Vec key = hn::Set(d, static_cast<S>(t));
          const auto inside = hn::And(hn::Ge(key, begin), hn::Lt(key, end));
          score = hn::IfThenElse(inside, score, excluded);
        }
        hn::Store(score, d, scores_ + at);
        most = hn::Max(most, score);
      }
      hn::Store(most, d, max + v * kLanes);
    }
  }

  const HeadTask<S>& task_;
  Index first_;
  std::size_t rows_ = 0;
  KeyRange range_;
  KeyRange ranges_[kQueries];  // of every row; the last one's for rows that do not exist
  S* rows_buffer_;             // kQueries rows, of Dq or kKeyBlock elements
  S* given_;                   // q' transposed, [Dq][kQueries]
  S* q_;                       // [width][kQueries]
  S* scores_;
  S* terms_;
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
