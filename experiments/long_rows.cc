// SPDX-License-Identifier: Apache-2.0
// Softmax denominators and outputs of long rows: orders of summation in f32, f16 and bf16.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include "core/digest.h"
#include "core/random.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "experiments/rounded_arithmetic.h"
#include "optimized/thread_pool.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kTile = 128;
constexpr std::size_t kSplitCount = 8;
constexpr std::size_t kColumns = 4;
constexpr std::array kFormats{NumberFormat::kF32, NumberFormat::kF16, NumberFormat::kBF16};

enum class Order { kSequential, kPairwise, kCompensated, kTiles, kSplits };
constexpr std::array<std::pair<Order, const char*>, 5> kOrders{
    {{Order::kSequential, "sequential"},
     {Order::kTiles, "tiles of 128, rescaled"},
     {Order::kSplits, "8 splits, merged"},
     {Order::kPairwise, "pairwise"},
     {Order::kCompensated, "compensated"}}};

double Pairwise(std::span<const double> x, const Rounder& round) {
  if (x.size() == 1) return x[0];
  const std::size_t half = std::bit_ceil(x.size()) / 2;
  return round(Pairwise(x.first(half), round) + Pairwise(x.subspan(half), round));
}

// Sum2 of Ogita, Rump, Oishi 2005: the errors of the additions, by TwoSum, added at the end.
double Compensated(std::span<const double> x, const Rounder& round) {
  double sum = 0.0;
  double errors = 0.0;
  for (const double term : x) {
    const double next = round(sum + term);
    const double part = round(next - sum);
    const double error = round(round(sum - round(next - part)) + round(term - part));
    errors = round(errors + error);
    sum = next;
  }
  return round(sum + errors);
}

double Sum(Order order, std::span<const double> x, const Rounder& round) {
  if (order == Order::kPairwise) return Pairwise(x, round);
  if (order == Order::kCompensated) return Compensated(x, round);
  double sum = 0.0;
  for (const double term : x) sum = round(sum + term);
  return sum;
}

// Of some keys: largest score, sum of exp(s - m), sums of exp(s - m) v.
struct Partial {
  double m = 0.0;
  double l = 0.0;
  std::array<double, kColumns> o{};
};

struct RowData {
  std::span<const double> scores;
  std::span<const double> v;  // [n, kColumns]
};

// Scores are shifted in f32; each term is rounded to the format.
Partial OfRange(const RowData& row, std::size_t begin, std::size_t end, Order order,
                const Rounder& round) {
  const Rounder f32 = NumberFormat::kF32;
  Partial partial;
  const std::span<const double> scores = row.scores.subspan(begin, end - begin);
  partial.m = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  for (const double s : scores) weights.push_back(round(std::exp(f32(s - partial.m))));
  partial.l = Sum(order, weights, round);
  std::vector<double> terms(weights.size());
  for (std::size_t c = 0; c < kColumns; ++c) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      terms[i] = round(weights[i] * row.v[(begin + i) * kColumns + c]);
    }
    partial.o[c] = Sum(order, terms, round);
  }
  return partial;
}

Partial Merge(const Partial& a, const Partial& b, const Rounder& round) {
  const Rounder f32 = NumberFormat::kF32;
  Partial merged;
  merged.m = std::max(a.m, b.m);
  const double x = round(std::exp(f32(a.m - merged.m)));
  const double y = round(std::exp(f32(b.m - merged.m)));
  merged.l = round(round(a.l * x) + round(b.l * y));
  for (std::size_t c = 0; c < kColumns; ++c) {
    merged.o[c] = round(round(a.o[c] * x) + round(b.o[c] * y));
  }
  return merged;
}

Partial OfRow(const RowData& row, Order order, const Rounder& round) {
  const std::size_t n = row.scores.size();
  std::size_t step = n;
  if (order == Order::kTiles) step = kTile;
  if (order == Order::kSplits) step = std::max<std::size_t>(1, n / kSplitCount);
  Partial all = OfRange(row, 0, std::min(step, n), order, round);
  for (std::size_t begin = step; begin < n; begin += step) {
    all = Merge(all, OfRange(row, begin, std::min(begin + step, n), order, round), round);
  }
  return all;
}

// A priori bound of the relative error of the denominator: (1 + u)^h - 1 for h roundings on the
// longest way of a term, and the terms' own errors, u for the rounding and u32 R for the shift
// (R = largest less smallest score; twice where maxima move). Sum2: u + gamma_{n-1}^2.
double BoundOf(Order order, std::size_t n, double spread, const Rounder& round) {
  const double u = round.unit_roundoff();
  const double terms = static_cast<double>(n);
  double roundings = terms - 1.0;
  if (order == Order::kPairwise) roundings = std::ceil(std::log2(terms));
  // A merge rounds a factor, a product and a sum.
  if (order == Order::kTiles && n > kTile) {
    roundings = static_cast<double>(kTile - 1) + 3.0 * std::ceil(terms / double{kTile});
  }
  if (order == Order::kSplits)
    roundings = std::ceil(terms / double{kSplitCount}) + 3.0 * kSplitCount;
  double sum = std::expm1(roundings * std::log1p(u));
  if (order == Order::kCompensated) {
    const double product = (terms - 1.0) * u;
    if (product >= 1.0) return std::numeric_limits<double>::infinity();
    sum = u + product / (1.0 - product) * product / (1.0 - product);
  }
  const double term = u + kFormatF32.unit_roundoff() * 2.0 * spread;
  return (1.0 + sum) * (1.0 + term) * (1.0 + 0x1p-20) - 1.0;
}

struct Cell {
  double ulps = 0.0;      // mean |error| of the denominator in ULP of the format
  double largest = 0.0;   // of it
  double relative = 0.0;  // mean relative error
  double ratio = 0.0;     // largest error / bound; 0 without a bound
  double out = 0.0;       // mean over draws of the largest output error / (u sum p|v|)
};

struct Draw {
  std::array<std::array<Cell, kOrders.size()>, kFormats.size()> cells{};
  std::string digest;
  Status status;
};

Draw MakeDraw(std::size_t n, int number, std::uint64_t seed) {
  Case problem;
  problem.name = fmt::format("long-rows n{} draw {}", n, number);
  const Index keys = static_cast<Index>(n);
  problem.contract.shape = {1, 1, 1, 1, keys, 1, 1, Index{kColumns}};
  problem.contract.scale = {false, 1.0};
  problem.contract.outputs = {"out", "weights"};
  Tensor q(DType::kF32, {1, 1, 1, 1});
  Tensor k(DType::kF32, {1, 1, keys, 1});
  Tensor v(DType::kF32, {1, 1, keys, Index{kColumns}});
  q.Set(0, 1.0);
  const RandomStream scores(seed, problem.name, "k");
  const RandomStream values(seed, problem.name, "v");
  for (Index i = 0; i < k.size(); ++i) k.Set(i, scores.Normal(static_cast<std::uint64_t>(i)));
  for (Index i = 0; i < v.size(); ++i) v.Set(i, values.Normal(static_cast<std::uint64_t>(i)));
  problem.tensors = {{"q", q}, {"k", k}, {"v", v}};

  Draw draw;
  draw.digest = Sha256(problem.tensors);
  CertifyOptions options;
  options.conditions = true;
  const StatusOr<Certified> certified = Certify(problem, options);
  if (!certified.ok()) {
    draw.status = certified.status();
    return draw;
  }
  // The largest weight is 1 over the denominator.
  double largest = 0.0;
  for (const CertifiedValue& p : certified->outputs.at("weights").values) {
    largest = std::max(largest, p.hi);
  }
  const double exact = 1.0 / largest;
  const std::vector<double> s = ToDoubles(k);
  const std::vector<double> v_values = ToDoubles(v);
  const double spread =
      *std::max_element(s.begin(), s.end()) - *std::min_element(s.begin(), s.end());
  for (std::size_t f = 0; f < kFormats.size(); ++f) {
    const Rounder round = kFormats[f];
    for (std::size_t a = 0; a < kOrders.size(); ++a) {
      const Partial got = OfRow({s, v_values}, kOrders[a].first, round);
      Cell& cell = draw.cells[f][a];
      const double error = std::fabs(got.l - exact);
      cell.ulps = cell.largest = error / Ulp(exact, FormatOf(kFormats[f]));
      cell.relative = error / exact;
      cell.ratio = cell.relative / BoundOf(kOrders[a].first, n, spread, round);
      for (std::size_t c = 0; c < kColumns; ++c) {
        const double want = certified->outputs.at("out").values[c].hi;
        cell.out =
            std::max(cell.out, std::fabs(round(got.o[c] / got.l) - want) /
                                   (round.unit_roundoff() * certified->conditions.magnitude[c]));
      }
    }
  }
  return draw;
}

// n ones: the denominator of equal scores, exactly n.
ordered_json EqualScores(const std::vector<std::size_t>& lengths, bool* stagnates) {
  ordered_json rows = ordered_json::array();
  for (const NumberFormat format : kFormats) {
    const Rounder round = format;
    const double limit = std::ldexp(1.0, FormatOf(format).precision);  // 256, 2048, 2^24
    for (const std::size_t n : lengths) {
      ordered_json row{NameOf(format), n};
      const std::vector<double> ones(n, 1.0);
      for (const Order order : {Order::kSequential, Order::kPairwise, Order::kCompensated}) {
        const double got = Sum(order, ones, round);
        if (order == Order::kSequential) {
          *stagnates = *stagnates && got == std::min(static_cast<double>(n), limit);
        }
        row.push_back(std::isinf(got) ? ordered_json("infinity") : ordered_json(got));
      }
      rows.push_back(row);
    }
  }
  return {{"title", "The denominator of n equal scores, exactly n"},
          {"note",
           "A sequential sum of ones stays at 2^p, where adding 1 is a tie that goes back to the "
           "even neighbour; 65536 is beyond the range of f16."},
          {"columns", {"format", "n", "sequential", "pairwise", "compensated"}},
          {"rows", rows}};
}

// 1 for a sink, then n - 1 terms of 2^-9 (a little less than e^-6), each vanishing beside it in
// bf16, and the same with the sink last: exactly 1 + (n - 1) / 512.
ordered_json SinkFirstOrLast(const std::vector<std::size_t>& lengths) {
  ordered_json rows = ordered_json::array();
  for (const NumberFormat format : kFormats) {
    for (const std::size_t n : lengths) {
      std::vector<double> terms(n, 0x1p-9);
      terms.front() = 1.0;
      const double first = Sum(Order::kSequential, terms, format);
      std::swap(terms.front(), terms.back());
      const double last = Sum(Order::kSequential, terms, format);
      rows.push_back({NameOf(format), n, 1.0 + static_cast<double>(n - 1) / 512.0, first, last});
    }
  }
  return {{"title", "A sink of weight 1 before or after keys of 1/512"},
          {"note", "Sequential sums in the format; the exact one is 1 + (n - 1)/512."},
          {"columns", {"format", "n", "exact", "sink first", "sink last"}},
          {"rows", rows}};
}

}  // namespace

StatusOr<ordered_json> RunLongRows(const ExperimentOptions& options) {
  std::vector<std::size_t> lengths{16, 64, 256, 1024, 4096, 16384, 65536};
  if (!options.quick) lengths.insert(lengths.end(), {262144, 1048576});
  const std::size_t draws = options.quick ? 6 : 20;
  std::vector<Draw> results(lengths.size() * draws);
  ThreadPool pool(options.threads);
  pool.Run(results.size(), [&](std::size_t i, std::size_t /*thread*/) {
    results[i] = MakeDraw(lengths[i / draws], static_cast<int>(i % draws), options.seed);
  });
  std::string inputs;
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, Cell> cells;  // (format, order, n)
  double worst_ratio = 0.0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].status.ok()) return results[i].status;
    inputs += results[i].digest;
    for (std::size_t f = 0; f < kFormats.size(); ++f) {
      for (std::size_t a = 0; a < kOrders.size(); ++a) {
        const Cell& one = results[i].cells[f][a];
        Cell& cell = cells[{f, a, lengths[i / draws]}];
        cell.ulps += one.ulps / static_cast<double>(draws);
        cell.largest = std::max(cell.largest, one.largest);
        cell.relative += one.relative / static_cast<double>(draws);
        cell.ratio = std::max(cell.ratio, one.ratio);
        cell.out += one.out / static_cast<double>(draws);
        worst_ratio = std::max(worst_ratio, one.ratio);
      }
    }
  }
  bool stagnates = true;
  const ordered_json equal = EqualScores(lengths, &stagnates);
  const std::size_t longest = lengths.back();
  const Cell& sequential = cells.at({0, 0, longest});
  const Cell& pairwise = cells.at({0, 3, longest});
  const Cell& compensated = cells.at({0, 4, longest});
  const bool grows = sequential.ulps > 4.0 * pairwise.ulps && pairwise.largest <= 2.0 &&
                     compensated.largest <= 2.0;

  ordered_json rows = ordered_json::array();
  ordered_json f32_series = ordered_json::array();
  ordered_json narrow_series = ordered_json::array();
  for (std::size_t f = 0; f < kFormats.size(); ++f) {
    for (std::size_t a = 0; a < kOrders.size(); ++a) {
      ordered_json ulps = ordered_json::array();
      ordered_json relative = ordered_json::array();
      for (const std::size_t n : lengths) {
        const Cell& cell = cells.at({f, a, n});
        rows.push_back({NameOf(kFormats[f]), kOrders[a].second, n, cell.ulps, cell.largest,
                        cell.relative, cell.ratio, cell.out});
        ulps.push_back({n, cell.ulps});
        relative.push_back({n, cell.relative});
      }
      if (f == 0) f32_series.push_back({{"name", kOrders[a].second}, {"points", ulps}});
      if (f == 2) narrow_series.push_back({{"name", kOrders[a].second}, {"points", relative}});
    }
  }
  ordered_json record = NewRecord(
      {.name = "long-rows",
       .title = "Softmax over long rows: the order of summation",
       .claim = "A sequential softmax denominator stops growing at 2^p equal terms (256 in bf16, "
                "2048 in f16); in f32 its error grows with the length, while pairwise and "
                "compensated sums stay within two ULP; and every sum keeps its a priori bound.",
       .source = "Higham 2002, chapter 4; Ogita, Rump, Oishi 2005 (Sum2); Dao et al. 2022 for the "
                 "tiles.",
       .rule =
           "Reproduced if sequential sums of n ones are min(n, 2^p) in each format; no error of "
           "a denominator exceeds its bound; and in f32 at the longest row the mean sequential "
           "error is more than 4 times the pairwise one, with no pairwise or compensated error "
           "above 2 ULP. Reproduced with limits if only the first two hold. Not reproduced "
           "otherwise."});
  const bool holds = stagnates && worst_ratio <= 1.0;
  record["verdict"] =
      holds && grows ? "reproduced" : (holds ? "reproduced with limits" : "not reproduced");
  record["summary"] = fmt::format(
      "n = {}, scores N(0, 1), mean error of the denominator: f32 sequential {:.1f} ULP, tiles "
      "{:.2f}, 8 splits {:.1f}, pairwise {:.2f}, compensated {:.2f}; bf16 sequential {:.1f}% of "
      "the "
      "denominator, f16 {:.1f}%. Largest error over bound: {:.2f}.",
      longest, sequential.ulps, cells.at({0, 1, longest}).ulps, cells.at({0, 2, longest}).ulps,
      pairwise.ulps, compensated.ulps, 100.0 * cells.at({2, 0, longest}).relative,
      100.0 * cells.at({1, 0, longest}).relative, worst_ratio);
  record["tables"] = {
      {{"title", "Denominators and outputs by order of summation"},
       {"note", fmt::format("Scores and {} columns of v from N(0, 1); {} draws. The exact "
                            "denominator is 1 over the largest certified weight. ULP of the format "
                            "at the exact value. 'Bound' is worst-case and first to last rounding; "
                            "0 where Sum2 has none (n u >= 1).",
                            kColumns, draws)},
       {"columns",
        {"format", "order", "n", "mean error (ULP)", "largest (ULP)", "mean relative error",
         "largest error / bound", "output error / (u sum p|v|)"}},
       {"rows", rows}},
      equal,
      SinkFirstOrLast(lengths)};
  record["plots"] = {{{"title", "Mean error of the denominator in f32"},
                      {"note", "Terms are f32 exponentials of scores that were shifted in f32."},
                      {"x", {{"label", "n"}, {"scale", "log"}}},
                      {"y", {{"label", "ULP"}, {"scale", "log"}}},
                      {"series", f32_series}},
                     {{"title", "Mean relative error of the denominator in bf16"},
                      {"note", "A sum that has stopped loses nearly everything that follows."},
                      {"x", {{"label", "n"}, {"scale", "log"}}},
                      {"y", {{"label", "relative error"}, {"scale", "log"}}},
                      {"series", narrow_series}}};
  record["notes"] = {
      "Tiles and splits have maxima of their own and are merged by factors exp(m_old - m_new), "
      "rounded like everything else.",
      "Sum2 in a narrow format helps by a factor of two at most: the sum of the errors stops too, "
      "so "
      "that ones end at 2^(p+1)."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
