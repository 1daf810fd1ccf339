// SPDX-License-Identifier: Apache-2.0
// Forward attention of a block of queries over blocks of keys, with an online softmax.
//
// Computes: with s_ij of optimized/query_scores-inl.h, in units of log2(e), for every block of 192
// keys,
//   m_b the maximum of its scores,
//     p_ij = 2^(s_ij - m_b),  l_b = sum p_ij,  o_b = sum p_ij w_ij v_j  (w: dropout and Gaussian),
//   which is merged into what the blocks before gave: m' = max(m, m_b),
//     l <- l 2^(m - m') + l_b 2^(m_b - m'),  o <- o 2^(m - m') + o_b 2^(m_b - m');
//   a sink is a last block with m_b = sink, l_b = 1, o_b = 0. out = o / l, lse = ln 2 (m + log2 l),
//   weights = 2^(s - m) / l w, w without dropout.
// Shapes: one head, HeadTask of optimized/forward_task.h.
// Rounding points: scores; s - m_b and the exponential (optimized/exp2-inl.h); each addition of
// l_b,
//   in ascending order of keys; p w; one MulAdd a term of o_b in the same order (optimized/
//   tile-inl.h); the two factors of a merge (one of them is 1) and their products; 1/l and its
//   product with o. Nothing depends on the other rows of a block, on how many there are, or on the
//   lanes: a row's bits are the same for every batch, group, thread and, with Reproducible, target.
//   Accurate, tensors other than f64 (S = double, W = float): everything in double, but the
//   difference s - m_b, which is rounded to float once, and its exponential p; sums use that p.
// Bound: docs/bounds.md, profiles f32 and f64.
// Measured: properties/forward_test.cc prints the largest error/bound: 0.171 in the type of the
//   arithmetic, 0.328 for 16-bit outputs, whose own rounding is most of it; and the largest error /
//   (u sum p|v|) for 1024 keys of 64: Fast 3.9, causal 7.4; Accurate 0.25, causal 1.4.

#include <algorithm>
#include <cmath>
#include <limits>

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_FORWARD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_FORWARD_TILE_INL_H_
#undef ATTEST_OPTIMIZED_FORWARD_TILE_INL_H_
#else
#define ATTEST_OPTIMIZED_FORWARD_TILE_INL_H_
#endif

#include <hwy/highway.h>
#include "optimized/query_scores-inl.h"
#include "optimized/weight-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block of queries; V vectors of S hold one element of each.
template <class Policy, class S, class W, std::size_t V>
class QueryBlock {
 public:
  using DS = Tag<S>;
  using VS = hn::Vec<DS>;
  static constexpr std::size_t kLanes = hn::MaxLanes(DS());
  static constexpr std::size_t kQueries = V * kLanes;
  // Weights of less precision than the scores are made two vectors at a time.
  static constexpr bool kNarrowWeights = sizeof(W) < sizeof(S) && HWY_TARGET != HWY_SCALAR;
  static_assert(!kNarrowWeights || V % 2 == 0);

  QueryBlock(const HeadTask<S>& task, Index first, Carver& carver)
      : task_(task), scores_(task, first, carver) {
    factors_ = carver.Take<S>(kQueries * kKeyBlock);
    out_ = carver.Take<S>(kQueries * task.v_dim);
    block_out_ = carver.Take<S>(std::max<std::size_t>(kQueries, 2) * task.v_dim);
    rows_ = carver.Take<S>(kQueries * std::max(task.v_dim, kKeyBlock));
  }

  void Run() {
    scores_.Load();
    std::fill(out_, out_ + kQueries * task_.v_dim, S{0});
    std::fill(max_, max_ + kQueries, -std::numeric_limits<S>::infinity());
    std::fill(sum_, sum_ + kQueries, S{0});
    ForEachBlock([&](Index j, std::size_t n) ATTEST_INLINE {
      PrefetchRows(j, n);
      AddBlock(j, n);
    });
    if (task_.rules.sink() != -std::numeric_limits<double>::infinity()) AddSink();
    FindEmptyRows();
    if (task_.out.data != nullptr) WriteOut();
    if (task_.lse.data != nullptr) WriteLse();
    if (task_.weights.data != nullptr) WriteWeights();
  }

 private:
  // kVanishing: keys are allowed, but all their scores are -infinity, and there is no sink.
  enum class Row : std::uint8_t { kUsual, kEmpty, kVanishing };

  // Calls body(first key, number of keys) for every block of keys, cut to what some row needs.
  template <class Body>
  HWY_INLINE void ForEachBlock(const Body& body) {
    constexpr auto kBlock = static_cast<Index>(kKeyBlock);
    const KeyRange range = scores_.range();
    for (Index j = range.begin; j < range.end;) {
      const Index end = std::min(range.end, (j / kBlock + 1) * kBlock);
      body(j, static_cast<std::size_t>(end - j));
      j = end;
    }
  }

  // Asks for memory that is needed after block [j, j + n) of keys, spread over all blocks: rows of
  // `out` and of the next block of queries; for the first block of queries the next keys.
  void PrefetchRows(Index j, std::size_t n) const {
    const KeyRange range = scores_.range();
    const auto share = [&](Index key) {
      return static_cast<Index>(kQueries) * (key - range.begin) / (range.end - range.begin);
    };
    const Index next_key = j + static_cast<Index>(n);
    for (Index r = share(j); r < share(next_key); ++r) {
      const Index row = scores_.first() + r;
      const Index next = row + static_cast<Index>(kQueries);
      if (next < task_.q_len) Prefetch(At(task_.q, next), task_.q_dim * SizeOf(task_.q.dtype));
      if (task_.out.data != nullptr && row < task_.q_len) {
        Prefetch(At(task_.out, row), task_.v_dim * SizeOf(task_.out.dtype));
      }
    }
    if (scores_.first() != 0) return;
    for (Index key = next_key; key < std::min(range.end, next_key + static_cast<Index>(n)); ++key) {
      Prefetch(task_.keys + static_cast<std::size_t>(key) * task_.key_step,
               task_.width * sizeof(S));
    }
  }

  // Into the second level of the cache: the first is full of keys and weights.
  static void Prefetch(const void* row, std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    for (std::size_t at = 0; at < bytes; at += kLine) {
      __builtin_prefetch(static_cast<const char*>(row) + at, 0, 2);
    }
  }

  void AddBlock(Index j, std::size_t n) {
    HWY_ALIGN S block_max[kQueries];
    HWY_ALIGN S block_sum[kQueries];
    const bool covered = scores_.Covered(j, n);
    Segments<V> segments = scores_.SegmentsOf(j, n);
    if constexpr (kNarrowWeights) {
      for (std::size_t v = 0; v < V; v += 2) segments.end[v] = segments.end[v + 1];
    }
    scores_.Compute(j, segments, covered, block_max);
    Weigh(segments, block_max, block_sum);
    if (task_.rules.scales()) {
      StageFactors(j, n, true);
      for (std::size_t i = 0; i < n * kQueries; i += kLanes) {
        const DS d;
        hn::Store(hn::Mul(hn::Load(d, weights() + i), hn::Load(d, factors_ + i)), d, weights() + i);
      }
    }
    HWY_ALIGN S old_factor[kQueries];
    HWY_ALIGN S block_factor[kQueries];
    Merge(block_max, block_sum, old_factor, block_factor);
    // Values of keys that are not allowed for every row must not meet weights of 0 if they are not
    // finite.
    if ((covered && !scores_.has_terms()) || FiniteValues(j, n)) {
      AddValues(j, segments, old_factor, block_factor);
    } else {
      AddAllowedValues(j, n, segments, old_factor, block_factor);
    }
  }

  // Scores to weights; the sums of the rows.
  void Weigh(const Segments<V>& segments, const S* HWY_RESTRICT max, S* HWY_RESTRICT sums) {
    constexpr std::size_t kStep = kNarrowWeights ? 2 : 1;  // vectors that are handled together
    for (std::size_t i = 0; i < kQueries; ++i) sums[i] = 0;
    const std::size_t all = segments.end[0];
    WeighKeys<V>(0, 0, all, max, sums);
    for (std::size_t v = kStep; v < V; v += kStep) {
      WeighKeys<kStep>(v, all, segments.end[v], max, sums);
    }
  }

  // Of keys [begin, end) and Count vectors of queries.
  template <std::size_t Count>
  HWY_INLINE void WeighKeys(std::size_t first, std::size_t begin, std::size_t end,
                            const S* HWY_RESTRICT max, S* HWY_RESTRICT sums) {
    const DS d;
    VS shift[Count];
    VS sum[Count];
    ATTEST_UNROLL
    for (std::size_t v = 0; v < Count; ++v) {
      shift[v] = ShiftOf(d, hn::Load(d, max + (first + v) * kLanes));
      sum[v] = hn::Load(d, sums + (first + v) * kLanes);
    }
    for (std::size_t t = begin; t < end; ++t) {
      const S* const scores = scores_.scores() + t * kQueries + first * kLanes;
      S* const weights = this->weights() + t * kQueries + first * kLanes;
      if constexpr (!kNarrowWeights) {
        ATTEST_UNROLL
        for (std::size_t v = 0; v < Count; ++v) {
          const VS p = WeightOf(Policy(), d, hn::Sub(hn::Load(d, scores + v * kLanes), shift[v]));
          hn::Store(p, d, weights + v * kLanes);
          sum[v] = hn::Add(sum[v], p);
        }
#if HWY_TARGET != HWY_SCALAR  // whose vectors have no halves
      } else {
        ATTEST_UNROLL
        for (std::size_t v = 0; v < Count; v += 2) {
          const VS low = hn::Sub(hn::Load(d, scores + v * kLanes), shift[v]);
          const VS high = hn::Sub(hn::Load(d, scores + (v + 1) * kLanes), shift[v + 1]);
          const auto p = WeightsOf(Tag<W>(), low, high);
          const hn::Half<Tag<W>> half;
          const VS low_p = hn::PromoteTo(d, hn::LowerHalf(half, p));
          const VS high_p = hn::PromoteTo(d, hn::UpperHalf(half, p));
          hn::Store(low_p, d, weights + v * kLanes);
          hn::Store(high_p, d, weights + (v + 1) * kLanes);
          sum[v] = hn::Add(sum[v], low_p);
          sum[v + 1] = hn::Add(sum[v + 1], high_p);
        }
#endif
      }
    }
    ATTEST_UNROLL
    for (std::size_t v = 0; v < Count; ++v) hn::Store(sum[v], d, sums + (first + v) * kLanes);
  }

  // Takes a block's maximum and sum into those of the rows so far; the factors of o and o_b.
  void Merge(const S* HWY_RESTRICT block_max, const S* HWY_RESTRICT block_sum,
             S* HWY_RESTRICT old_factor, S* HWY_RESTRICT block_factor) {
    const DS d;
    for (std::size_t i = 0; i < kQueries; i += kLanes) {
      const VS old_max = hn::Load(d, max_ + i);
      const VS part_max = hn::Load(d, block_max + i);
      const VS max = hn::Max(old_max, part_max);
      const VS shift = ShiftOf(d, max);
      const VS old = WeightOf(Policy(), d, hn::Sub(old_max, shift));
      const VS part = WeightOf(Policy(), d, hn::Sub(part_max, shift));
      const VS sum = MulAdd(Policy(), d, hn::Load(d, sum_ + i), old,
                            hn::Mul(hn::Load(d, block_sum + i), part));
      hn::Store(max, d, max_ + i);
      hn::Store(sum, d, sum_ + i);
      hn::Store(old, d, old_factor + i);
      hn::Store(part, d, block_factor + i);
    }
  }

  // o <- o old_factor + (sum of weights times values) block_factor.
  void AddValues(Index j, const Segments<V>& segments, const S* HWY_RESTRICT old_factor,
                 const S* HWY_RESTRICT block_factor) {
    if (segments.end[0] == segments.end[V - 1]) {
      const Segments<1> all{{segments.end[0]}};
      AddPanels(j, all, old_factor, block_factor);
    } else {
      AddPanels(j, segments, old_factor, block_factor);
    }
  }

  template <std::size_t Parts>
  HWY_INLINE void AddPanels(Index j, const Segments<Parts>& segments,
                            const S* HWY_RESTRICT old_factor, const S* HWY_RESTRICT block_factor) {
    std::size_t column = 0;
    const S* panel = task_.panels;
    for (; column + kPanelWidth <= task_.v_dim; column += kPanelWidth) {
      AddColumns<kPanelWidth>(panel + static_cast<std::size_t>(j) * kPanelWidth, kPanelWidth,
                              column, segments, old_factor, block_factor);
      panel += kPanelWidth * task_.kv_len;
    }
    const std::size_t step = task_.v_dim - column;  // of the last panel
    panel += static_cast<std::size_t>(j) * step;
    const auto rest = [&](auto size) ATTEST_INLINE {
      constexpr std::size_t kSize = decltype(size)::value;
      for (; column + kSize <= task_.v_dim; column += kSize, panel += kSize) {
        AddColumns<kSize>(panel, step, column, segments, old_factor, block_factor);
      }
    };
    rest(std::integral_constant<std::size_t, 4>());
    rest(std::integral_constant<std::size_t, 2>());
    rest(std::integral_constant<std::size_t, 1>());
  }

  template <std::size_t Columns, std::size_t Parts>
  HWY_INLINE void AddColumns(const S* HWY_RESTRICT values, std::size_t step, std::size_t column,
                             const Segments<Parts>& segments, const S* HWY_RESTRICT old_factor,
                             const S* HWY_RESTRICT block_factor) {
    const DS d;
    VS acc[Columns][V];
    ATTEST_UNROLL
    for (std::size_t c = 0; c < Columns; ++c) {
      ATTEST_UNROLL
      for (std::size_t v = 0; v < V; ++v) acc[c][v] = hn::Zero(d);
    }
    ForEachSegment(segments, [&](auto first, std::size_t begin, std::size_t end) ATTEST_INLINE {
      constexpr std::size_t kFirst = decltype(first)::value;
      Multiply<kFirst>(Policy(), d, values + begin * step, 1, step, end - begin,
                       weights() + begin * kQueries, kQueries, acc);
    });
    ATTEST_UNROLL
    for (std::size_t v = 0; v < V; ++v) {
      const VS old = hn::Load(d, old_factor + v * kLanes);
      const VS part = hn::Load(d, block_factor + v * kLanes);
      ATTEST_UNROLL
      for (std::size_t c = 0; c < Columns; ++c) {
        S* const out = out_ + (column + c) * kQueries + v * kLanes;
        hn::Store(MulAdd(Policy(), d, hn::Load(d, out), old, hn::Mul(acc[c][v], part)), d, out);
      }
    }
  }

  // Whether the values of keys [j, j + n) hold neither NaN nor infinities.
  bool FiniteValues(Index j, std::size_t n) const {
    const DS d;
    const auto first = static_cast<std::size_t>(j);
    VS sum = hn::Zero(d);  // of x * 0: 0 or NaN
    S tail = 0;
    for (std::size_t column = 0; column < task_.v_dim; column += kPanelWidth) {
      const std::size_t width = std::min(kPanelWidth, task_.v_dim - column);
      const S* const values = task_.panels + column * task_.kv_len + first * width;
      std::size_t i = 0;
      for (; i + kLanes <= n * width; i += kLanes) {
        sum = hn::Add(sum, hn::Mul(hn::LoadU(d, values + i), hn::Zero(d)));
      }
      for (; i < n * width; ++i) tail += values[i] * S{0};
    }
    return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d))) && tail == S{0};
  }

  // As AddValues, key by key, each only for the rows that it is allowed for.
  void AddAllowedValues(Index j, std::size_t n, const Segments<V>& segments,
                        const S* HWY_RESTRICT old_factor, const S* HWY_RESTRICT block_factor) {
    const DS d;
    if (!scores_.has_terms()) scores_.StageTerms(j, n);
    std::fill(block_out_, block_out_ + kQueries * task_.v_dim, S{0});
    const VS excluded = hn::Set(d, -std::numeric_limits<S>::infinity());
    const S* HWY_RESTRICT terms = scores_.terms();
    for (std::size_t t = 0; t < segments.end[V - 1]; ++t) {
      for (std::size_t c = 0; c < task_.v_dim; ++c) {
        const VS value = hn::Set(d, Value(static_cast<std::size_t>(j) + t, c));
        for (std::size_t i = 0; i < kQueries; i += kLanes) {
          S* const out = block_out_ + c * kQueries + i;
          const VS old = hn::Load(d, out);
          const VS sum = MulAdd(Policy(), d, value, hn::Load(d, weights() + t * kQueries + i), old);
          const auto is_excluded = hn::Eq(hn::Load(d, terms + t * kQueries + i), excluded);
          hn::Store(hn::IfThenElse(is_excluded, old, sum), d, out);
        }
      }
    }
    for (std::size_t c = 0; c < task_.v_dim; ++c) {
      for (std::size_t i = 0; i < kQueries; i += kLanes) {
        S* const out = out_ + c * kQueries + i;
        const VS part =
            hn::Mul(hn::Load(d, block_out_ + c * kQueries + i), hn::Load(d, block_factor + i));
        hn::Store(MulAdd(Policy(), d, hn::Load(d, out), hn::Load(d, old_factor + i), part), d, out);
      }
    }
  }

  S Value(std::size_t key, std::size_t column) const {
    const std::size_t panel = column / kPanelWidth * kPanelWidth;
    const std::size_t width = std::min(kPanelWidth, task_.v_dim - panel);
    return task_.panels[panel * task_.kv_len + key * width + (column - panel)];
  }

  void AddSink() {
    HWY_ALIGN S sink[kQueries];
    HWY_ALIGN S one[kQueries];
    HWY_ALIGN S old_factor[kQueries];
    HWY_ALIGN S block_factor[kQueries];
    std::fill(sink, sink + kQueries, static_cast<S>(task_.rules.sink() * kLog2E));
    std::fill(one, one + kQueries, S{1});
    Merge(sink, one, old_factor, block_factor);
    const DS d;
    for (std::size_t c = 0; c < task_.v_dim; ++c) {
      for (std::size_t i = 0; i < kQueries; i += kLanes) {
        S* const out = out_ + c * kQueries + i;
        hn::Store(hn::Mul(hn::Load(d, out), hn::Load(d, old_factor + i)), d, out);
      }
    }
  }

  // NaN as a whole: kVanishing, or empty under that policy.
  bool IsNotANumber(std::size_t r) const {
    return kinds_[r] == Row::kVanishing ||
           (kinds_[r] == Row::kEmpty && task_.empty_row == EmptyRow::kNan);
  }

  void FindEmptyRows() {
    for (std::size_t r = 0; r < scores_.rows(); ++r) {
      kinds_[r] = Row::kUsual;
      // The maximum of a NaN and a number is either, by the target; the sum of weights is NaN then.
      if (max_[r] != -std::numeric_limits<S>::infinity() || std::isnan(sum_[r])) continue;
      kinds_[r] = task_.rules.AnyAllowed(RowIndex(r)) ? Row::kVanishing : Row::kEmpty;
    }
  }

  void WriteOut() {
    const DS d;
    const std::size_t dim = task_.v_dim;
    for (std::size_t i = 0; i < kQueries; i += kLanes) {
      const VS inverse = hn::Div(hn::Set(d, S{1}), hn::Load(d, sum_ + i));
      // Adding 0 makes -0 +0: which zero a sum ends in may depend on keys of weight 0.
      for (std::size_t at = i; at < kQueries * dim; at += kQueries) {
        hn::Store(hn::Add(hn::Mul(hn::Load(d, out_ + at), inverse), hn::Zero(d)), d, out_ + at);
      }
    }
    const bool in_place = task_.out.dtype == DTypeOf<S>::value && task_.out.strides[1] == 1;
    S* const rows = in_place ? static_cast<S*>(At(task_.out, scores_.first())) : rows_;
    const std::size_t step = in_place ? static_cast<std::size_t>(task_.out.strides[0]) : dim;
    Transpose(out_, kQueries, dim, scores_.rows(), rows, step);
    for (std::size_t r = 0; r < scores_.rows(); ++r) {
      if (kinds_[r] != Row::kUsual) {
        WriteUnusual(r);
      } else if (!in_place) {
        WriteRow(rows + r * step, dim, task_.out.dtype, At(task_.out, RowIndex(r)),
                 task_.out.strides[1]);
      }
    }
  }

  // The output of a row that has no sum of weights.
  void WriteUnusual(std::size_t r) {
    const Index i = RowIndex(r);
    if (kinds_[r] == Row::kEmpty && task_.empty_row == EmptyRow::kUniform && task_.kv_len > 0) {
      auto* const mean = reinterpret_cast<double*>(block_out_);  // which is free
      if (!have_mean_) MeanValue(mean);
      have_mean_ = true;
      WriteRow(mean, task_.v_dim, task_.out.dtype, At(task_.out, i), task_.out.strides[1]);
      return;
    }
    const double value = IsNotANumber(r) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    for (std::size_t c = 0; c < task_.v_dim; ++c) {
      WriteElement(value, task_.out.dtype, At(task_.out, i, static_cast<Index>(c)));
    }
  }

  // The mean of all values, whatever they hold, in ascending order of keys, in double, as the other
  // kernels take it.
  void MeanValue(double* HWY_RESTRICT mean) const {
    for (std::size_t c = 0; c < task_.v_dim; ++c) {
      double sum = 0.0;
      for (std::size_t key = 0; key < task_.kv_len; ++key) sum += Value(key, c);
      mean[c] = sum / static_cast<double>(task_.kv_len);
    }
  }

  void WriteLse() {
    for (std::size_t r = 0; r < scores_.rows(); ++r) {
      double lse = -std::numeric_limits<double>::infinity();
      if (IsNotANumber(r)) lse = std::numeric_limits<double>::quiet_NaN();
      if (kinds_[r] == Row::kUsual) {
        lse = kLn2 * (static_cast<double>(max_[r]) + std::log2(static_cast<double>(sum_[r])));
      }
      WriteElement(lse, task_.lse.dtype, At(task_.lse, RowIndex(r)));
    }
  }

  // A second look at the scores.
  void WriteWeights() {
    const DS d;
    const KeyRange range = scores_.range();
    for (std::size_t r = 0; r < scores_.rows(); ++r) {
      FillWeights(r, 0, kinds_[r] == Row::kEmpty ? static_cast<Index>(task_.kv_len) : range.begin);
      if (kinds_[r] != Row::kEmpty) FillWeights(r, range.end, static_cast<Index>(task_.kv_len));
    }
    HWY_ALIGN S unused_max[kQueries];
    ForEachBlock([&](Index j, std::size_t n) ATTEST_INLINE {
      Segments<V> segments;
      std::fill(segments.end, segments.end + V, n);
      scores_.Compute(j, segments, scores_.Covered(j, n), unused_max);
      for (std::size_t v = 0; v < V; ++v) {
        const VS shift = ShiftOf(d, hn::Load(d, max_ + v * kLanes));
        const VS inverse = hn::Div(hn::Set(d, S{1}), hn::Load(d, sum_ + v * kLanes));
        for (std::size_t t = 0; t < n; ++t) {
          S* const at = scores_.scores() + t * kQueries + v * kLanes;
          const VS p = WeightOf(Policy(), d, hn::Sub(hn::Load(d, at), shift));
          hn::Store(hn::Mul(p, inverse), d, at);
        }
      }
      Transpose(weights(), kQueries, n, kQueries, rows_, n);
      for (std::size_t r = 0; r < scores_.rows(); ++r) WriteBlockWeights(r, j, n, rows_ + r * n);
    });
  }

  void WriteBlockWeights(std::size_t r, Index j, std::size_t n, S* HWY_RESTRICT weights) {
    if (kinds_[r] == Row::kEmpty) return;
    const Index i = RowIndex(r);
    if (task_.rules.gaussian()) {
      task_.rules.FillFactors(i, j, n, false, factors_);
      for (std::size_t t = 0; t < n; ++t) weights[t] *= factors_[t];
    }
    if (kinds_[r] == Row::kVanishing || std::isnan(sum_[r])) {
      for (std::size_t t = 0; t < n; ++t) {
        const bool allowed = task_.rules.Allowed(i, j + static_cast<Index>(t));
        weights[t] = allowed ? std::numeric_limits<S>::quiet_NaN() : S{0};
      }
    }
    WriteRow(weights, n, task_.weights.dtype, At(task_.weights, i, j), task_.weights.strides[1]);
  }

  // Weights of row r for keys [begin, end) that no row of the block needs, or of an empty row.
  void FillWeights(std::size_t r, Index begin, Index end) {
    double weight = 0.0;
    if (kinds_[r] == Row::kEmpty && task_.empty_row == EmptyRow::kUniform) {
      weight = 1.0 / static_cast<double>(task_.kv_len);
    }
    if (kinds_[r] == Row::kEmpty && task_.empty_row == EmptyRow::kNan) {
      weight = std::numeric_limits<double>::quiet_NaN();
    }
    for (Index j = begin; j < end; ++j) {
      WriteElement(weight, task_.weights.dtype, At(task_.weights, RowIndex(r), j));
    }
  }

  void StageFactors(Index j, std::size_t n, bool with_dropout) {
    for (std::size_t r = 0; r < scores_.rows(); ++r) {
      task_.rules.FillFactors(RowIndex(r), j, n, with_dropout, rows_ + r * n);
    }
    std::fill(rows_ + scores_.rows() * n, rows_ + kQueries * n, S{1});
    Transpose(rows_, n, kQueries, n, factors_, kQueries);
  }

  // [kKeyBlock][kQueries]: scores become weights in place.
  S* weights() { return scores_.scores(); }

  Index RowIndex(std::size_t r) const { return scores_.first() + static_cast<Index>(r); }

  const HeadTask<S>& task_;
  QueryScores<Policy, S, V> scores_;
  S* factors_;    // [kKeyBlock][kQueries]
  S* out_;        // o, [Dv][kQueries]
  S* block_out_;  // o_b where it cannot stay in registers; at last the mean of the values, double
  S* rows_;       // kQueries rows of Dv, or of keys
  HWY_ALIGN S max_[kQueries];
  HWY_ALIGN S sum_[kQueries];
  Row kinds_[kQueries];
  bool have_mean_ = false;  // in block_out_
};

// Panels of values (optimized/forward_task.h) from keys [first, first + count) of v; `row` has room
// for Dv elements.
template <class S>
void PackPanels(const Input<2>& v, std::size_t first, std::size_t count, S* HWY_RESTRICT row,
                S* HWY_RESTRICT panels) {
  const auto dim = static_cast<std::size_t>(v.shape[1]);
  const auto length = static_cast<std::size_t>(v.shape[0]);
  const std::size_t whole = dim / kPanelWidth * kPanelWidth;
  const bool in_place = v.dtype == DTypeOf<S>::value && v.strides[1] == 1;
  for (std::size_t key = first; key < first + count; ++key) {
    const S* from = static_cast<const S*>(At(v, static_cast<Index>(key)));
    if (!in_place) {
      ReadRow(v.dtype, At(v, static_cast<Index>(key)), v.strides[1], dim, row);
      from = row;
    }
    S* to = panels + key * kPanelWidth;
    std::size_t c = 0;
    for (; c < whole; c += kPanelWidth, to += kPanelWidth * length) {
      for (std::size_t i = 0; i < kPanelWidth; ++i) to[i] = from[c + i];
    }
    S* const last = panels + whole * length + key * (dim - whole);
    for (; c < dim; ++c) last[c - whole] = from[c];
  }
}

template <class Policy, class S, class W>
struct TiledForward {
  using Whole = QueryBlock<Policy, S, W, kTileVectors>;
  using Few = QueryBlock<Policy, S, W, sizeof(S) / sizeof(W)>;

  static std::size_t QueryRows() { return Whole::kQueries; }

  static std::size_t Scratch(const HeadTask<S>& task) {
    Carver carver;
    Whole(task, task.q_len, carver);
    return carver.used();
  }

  static void Rows(const HeadTask<S>& task, Index first, std::byte* scratch) {
    Carver carver(scratch);
    if (task.q_len - first <= static_cast<Index>(Few::kQueries)) {
      Few(task, first, carver).Run();
    } else {
      Whole(task, first, carver).Run();
    }
  }

  static void Project(const S* keys, std::size_t key_step, std::size_t count, std::size_t k_dim,
                      const S* w_k_t, std::size_t width, std::size_t padded, S* projected) {
    const Tag<S> d;
    constexpr std::size_t kLanes = hn::MaxLanes(Tag<S>());
    for (std::size_t first = 0; first < width; first += kTileVectors * kLanes) {
      MultiplyRows<kTileVectors>(Policy(), d, keys, key_step, 1, count, k_dim, w_k_t + first,
                                 padded, [&](std::size_t j, auto& sums) ATTEST_INLINE {
                                   HWY_ALIGN S row[kTileVectors * kLanes];
                                   for (std::size_t i = 0; i < kRowsOf<decltype(sums)>; ++i) {
                                     for (std::size_t v = 0; v < kTileVectors; ++v) {
                                       hn::Store(sums[i][v], d, row + v * kLanes);
                                     }
                                     const std::size_t n =
                                         std::min(width - first, kTileVectors * kLanes);
                                     std::copy(row, row + n, projected + (j + i) * width + first);
                                   }
                                 });
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
