// SPDX-License-Identifier: Apache-2.0
// Softmax saturation over D_k and n, with and without 1/sqrt(D_k), from certified weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "audit/builtin.h"
#include "core/digest.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "experiments/row_theorems.h"
#include "experiments/saturation_draw.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// Mean and its standard error.
struct Estimate {
  double sum = 0.0;
  double squares = 0.0;
  int count = 0;

  void Add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  double mean() const { return sum / count; }
  double standard_error() const {
    const double variance = std::max(0.0, squares / count - mean() * mean());
    return std::sqrt(variance / std::max(1, count - 1));
  }
};

// Of one row's quantities, over draws.
using Cell = std::array<Estimate, kSaturations>;

const Estimate& Of(const Cell& cell, Saturation which) {
  return cell[static_cast<std::size_t>(which)];
}

// What a cell's values are computed in; the first is exact.
struct SaturationArithmetic {
  const char* name;
  DType dtype;
};
constexpr std::array<SaturationArithmetic, 4> kArithmetics{
    {{"exact", DType::kF32}, {"f32", DType::kF32}, {"bf16", DType::kBF16}, {"f16", DType::kF16}}};

struct Key {
  bool scaled = false;
  Index keys = 0;
  Index dim = 0;
  std::size_t arithmetic = 0;
  auto operator<=>(const Key&) const = default;
};

// One draw, every variant: [scaled][arithmetic].
struct DrawResult {
  std::array<std::array<SaturationValues, kArithmetics.size()>, 2> values{};
  std::array<RowTheorems, 2> theorems{};
  std::string digest;
  Status status;
};

struct Kernels {
  std::unique_ptr<Subject> forward;
  std::unique_ptr<Subject> backward;
};

DrawResult MeasureDraw(const Case& drawn, const Kernels& kernels) {
  DrawResult result;
  result.digest = Sha256(drawn.tensors);
  for (const bool scaled : {false, true}) {
    for (std::size_t a = 0; a < kArithmetics.size(); ++a) {
      const Case problem = Variant(drawn, kArithmetics[a].dtype, scaled);
      StatusOr<SaturationValues> values =
          a == 0 ? ExactSaturation(problem, &result.theorems[scaled ? 1 : 0])
                 : ComputedSaturation(problem, *kernels.forward, *kernels.backward);
      if (!values.ok()) {
        result.status = values.status();
        return result;
      }
      result.values[scaled ? 1 : 0][a] = *values;
    }
  }
  return result;
}

// The means of `which` over (D_k, n), as a heat map.
ordered_json Grid(const std::map<Key, Cell>& cells, const HeatMapText& text, bool scaled,
                  Saturation which) {
  std::map<Index, ordered_json> rows;  // by n
  ordered_json dims = ordered_json::array();
  for (const auto& [key, cell] : cells) {
    if (key.scaled != scaled || key.arithmetic != 0) continue;
    rows[key.keys].push_back(Of(cell, which).mean());
    if (rows.size() == 1) dims.push_back(key.dim);
  }
  ordered_json lengths = ordered_json::array();
  ordered_json values = ordered_json::array();
  for (const auto& [keys, row] : rows) {
    lengths.push_back(keys);
    values.push_back(row);
  }
  return HeatMap(text, dims, lengths, values);
}

// Poisson-Dirichlet limit of sum p^2 for logits N(0, s^2): 1 - s_c/s above s_c = sqrt(2 ln n).
double Condensation(double deviation, Index keys) {
  return std::max(0.0, 1.0 - std::sqrt(2.0 * std::log(static_cast<double>(keys))) / deviation);
}

// E sum p^2 for n -> inf with the factor, at fixed D_k > 2: given q the logits are N(0, |q|^2/D_k),
// and E e^(|q|^2/D_k) / n = (1 - 2/D_k)^(-D_k/2) / n, which falls to e/n.
ordered_json Annealed(Index dim, Index keys) {
  if (dim <= 2) return ordered_json();
  const auto d = static_cast<double>(dim);
  return std::pow(1.0 - 2.0 / d, -d / 2.0) / static_cast<double>(keys);
}

}  // namespace

StatusOr<ordered_json> RunSaturation(const ExperimentOptions& options) {
  const std::vector<Index> dims =
      options.quick ? std::vector<Index>{1, 4, 16, 64, 256}
                    : std::vector<Index>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  const std::vector<Index> lengths =
      options.quick ? std::vector<Index>{16, 64, 512} : std::vector<Index>{16, 64, 512, 4096};
  const int draws = options.quick ? 40 : 200;
  constexpr std::array kFlat{Saturation::kLargest, Saturation::kConcentration, Saturation::kEntropy,
                             Saturation::kGradQ, Saturation::kGradK};
  constexpr Index kFirstJudged = 16;  // below, the law of q.k is far from normal (kurtosis 6/D_k)

  ThreadPool pool(options.threads);
  std::vector<Kernels> kernels;  // of each thread: a subject runs one call at a time
  for (std::size_t thread = 0; thread < pool.threads(); ++thread) {
    StatusOr<std::unique_ptr<Subject>> forward = MakeBuiltinSubject("materialised-reproducible");
    if (!forward.ok()) return forward.status();
    StatusOr<std::unique_ptr<Subject>> backward = MakeBuiltinSubject("tiled-reproducible");
    if (!backward.ok()) return backward.status();
    kernels.push_back({*std::move(forward), *std::move(backward)});
  }
  std::map<Key, Cell> cells;
  std::map<Key, TheoremSummary> theorems;  // arithmetic 0
  std::string inputs;                      // digests of every draw, in order
  std::size_t done = 0;
  for (const Index keys : lengths) {
    for (const Index dim : dims) {
      std::vector<DrawResult> results(static_cast<std::size_t>(draws));
      pool.Run(results.size(), [&](std::size_t draw, std::size_t thread) {
        results[draw] = MeasureDraw(DrawSaturation(dim, keys, options.seed, static_cast<int>(draw)),
                                    kernels[thread]);
      });
      for (const DrawResult& result : results) {
        if (!result.status.ok()) return result.status;
        inputs += result.digest;
        for (const bool scaled : {false, true}) {
          theorems[{scaled, keys, dim, 0}].Add(result.theorems[scaled ? 1 : 0]);
          for (std::size_t a = 0; a < kArithmetics.size(); ++a) {
            Cell& cell = cells[{scaled, keys, dim, a}];
            for (std::size_t i = 0; i < kSaturations; ++i) {
              cell[i].Add(result.values[scaled ? 1 : 0][a][i]);
            }
          }
        }
      }
      if (options.progress) options.progress(++done, lengths.size() * dims.size());
    }
  }

  // The rule of the verdict, evaluated.
  const auto exact = [&](bool scaled, Index keys, Index dim, Saturation which) -> const Estimate& {
    return Of(cells.at({scaled, keys, dim, 0}), which);
  };
  bool flat = true;   // scaled: no dependence on D_k from kFirstJudged on
  bool grows = true;  // unscaled: the largest weight grows with D_k, the trace falls
  double worst_z = 0.0;
  std::size_t comparisons = 0;
  for (const Index keys : lengths) {
    double previous = 0.0;
    double previous_concentration = 0.0;
    for (const Index dim : dims) {
      const double largest = exact(false, keys, dim, Saturation::kLargest).mean();
      const double concentration = exact(false, keys, dim, Saturation::kConcentration).mean();
      if (dim > kFirstJudged) {
        for (const Saturation which : kFlat) {
          const Estimate& here = exact(true, keys, dim, which);
          const Estimate& base = exact(true, keys, kFirstJudged, which);
          const double error = std::hypot(here.standard_error(), base.standard_error());
          const double z = std::fabs(here.mean() - base.mean()) / error;
          worst_z = std::max(worst_z, z);
          flat = flat && z <= 4.0;
          ++comparisons;
        }
        grows = grows && largest > previous && concentration > previous_concentration;
      }
      if (dim >= 64) {
        grows = grows && largest > 2.0 * exact(true, keys, dim, Saturation::kLargest).mean();
      }
      previous = largest;
      previous_concentration = concentration;
    }
  }

  int certified_rows = 0;
  int violations = 0;
  ordered_json theorem_rows = ordered_json::array();
  for (const auto& [key, summary] : theorems) {
    certified_rows += summary.rows;
    violations += summary.violations;
    ordered_json row{key.scaled ? "with" : "without", key.keys, key.dim};
    for (const ordered_json& value : summary.Values()) row.push_back(value);
    theorem_rows.push_back(row);
  }

  ordered_json rows = ordered_json::array();
  ordered_json arithmetic_rows = ordered_json::array();
  ordered_json largest_series = ordered_json::array();
  ordered_json trace_series = ordered_json::array();
  ordered_json gradient_series = ordered_json::array();
  for (const bool scaled : {false, true}) {
    for (const Index keys : lengths) {
      ordered_json largest_points = ordered_json::array();
      ordered_json trace_points = ordered_json::array();
      ordered_json gradient_points = ordered_json::array();
      for (const Index dim : dims) {
        const double deviation = scaled ? 1.0 : std::sqrt(static_cast<double>(dim));
        const char* with = scaled ? "with" : "without";
        const auto mean = [&](Saturation which) { return exact(scaled, keys, dim, which).mean(); };
        const double concentration = mean(Saturation::kConcentration);
        rows.push_back({with, keys, dim, mean(Saturation::kLargest),
                        exact(scaled, keys, dim, Saturation::kLargest).standard_error(),
                        concentration, Condensation(deviation, keys),
                        scaled ? Annealed(dim, keys) : ordered_json(), mean(Saturation::kEntropy),
                        1.0 - concentration, mean(Saturation::kJacobianNorm),
                        mean(Saturation::kGradQ), mean(Saturation::kGradK)});
        for (std::size_t a = 0; a < kArithmetics.size(); ++a) {
          const Cell& cell = cells.at({scaled, keys, dim, a});
          ordered_json row = {with, keys, dim, kArithmetics[a].name};
          for (const Estimate& estimate : cell) row.push_back(estimate.mean());
          arithmetic_rows.push_back(row);
        }
        largest_points.push_back({dim, mean(Saturation::kLargest)});
        trace_points.push_back({dim, 1.0 - concentration});
        gradient_points.push_back({dim, mean(Saturation::kGradK)});
      }
      const std::string name =
          fmt::format("n = {}, {}", keys, scaled ? "with 1/sqrt(D_k)" : "without");
      largest_series.push_back({{"name", name}, {"points", largest_points}});
      trace_series.push_back({{"name", name}, {"points", trace_points}});
      gradient_series.push_back({{"name", name}, {"points", gradient_points}});
    }
  }

  ordered_json record = NewRecord(
      {.name = "saturation",
       .title = "Softmax saturation with and without 1/sqrt(D_k)",
       .claim =
           "For q and k with independent standard normal components the variance of q.k is D_k, so "
           "the softmax of unscaled scores saturates as D_k grows and the trace of its Jacobian "
           "falls; with the factor 1/sqrt(D_k), weights and gradients depend on n alone.",
       .source =
           "Vaswani et al. 2017, section 3.2.1 and footnote 4 (an argument; the paper measures "
           "no ablation of the factor). Theorems: Velickovic et al. 2025; Zhai et al. 2023, "
           "theorem 3.1.",
       .rule = fmt::format(
           "Reproduced if, for every n, the scaled means of the largest weight, "
           "sum p^2, entropy and the norms of both gradients at each D_k > {0} are within 4 "
           "standard errors of those at D_k = {0}, while the unscaled largest "
           "weight and sum p^2 grow "
           "with D_k from {0} "
           "on, and the largest weight is more than twice the scaled one from D_k "
           "= 64 on, and every certified row satisfies two theorems (exp(-delta)/n <= p <= "
           "exp(delta)/n for logits within delta; the least entropy for logits within sigma of "
           "their mean). With limits if only the unscaled part and the theorems hold.",
           kFirstJudged)});
  const bool holds = grows && violations == 0;
  record["verdict"] =
      flat && holds ? "reproduced" : (holds ? "reproduced with limits" : "not reproduced");
  const Index largest_n = lengths.back();
  record["summary"] = fmt::format(
      "At n = {}, the mean largest weight without scaling rises from {:.3f} (D_k = {}) to {:.3f} "
      "(D_k = {}), and the trace of the softmax Jacobian falls to {:.3f}; with scaling it stays at "
      "{:.4f} to {:.4f}. Largest deviation of a scaled mean from the one at D_k = {}: {:.1f} "
      "standard errors, in {} comparisons. The mean norm of grad k is {:.3f} without and {:.3f} "
      "with the factor. {} of {} certified rows violate a theorem.",
      largest_n, exact(false, largest_n, kFirstJudged, Saturation::kLargest).mean(), kFirstJudged,
      exact(false, largest_n, dims.back(), Saturation::kLargest).mean(), dims.back(),
      1.0 - exact(false, largest_n, dims.back(), Saturation::kConcentration).mean(),
      exact(true, largest_n, kFirstJudged, Saturation::kLargest).mean(),
      exact(true, largest_n, dims.back(), Saturation::kLargest).mean(), kFirstJudged, worst_z,
      comparisons, exact(false, largest_n, dims.back(), Saturation::kGradK).mean(),
      exact(true, largest_n, dims.back(), Saturation::kGradK).mean(), violations, certified_rows);
  ordered_json theorem_columns{"1/sqrt(D_k)", "n", "D_k"};
  for (const std::string& column : TheoremSummary::Columns()) theorem_columns.push_back(column);
  record["tables"] = {
      {{"title", "Weights of one query over n keys"},
       {"note",
        fmt::format("Means over {} draws of certified weights (exact arithmetic on f32 inputs).",
                    draws)},
       {"columns",
        {"1/sqrt(D_k)", "n", "D_k", "mean max p", "standard error", "mean sum p^2",
         "1 - sqrt(2 ln n)/s", "annealed", "mean entropy (nats)", "trace of Jacobian",
         "norm of Jacobian", "norm of grad q", "norm of grad k"}},
       {"rows", rows}},
      {{"title", "The same by arithmetic"},
       {"note",
        "Means of what the kernels materialised-reproducible (weights) and tiled-reproducible "
        "(gradients) compute from inputs and into outputs of the type, with sums in f32; shares of "
        "weights and of elements of grad_k that are 0. Exact ones: shares of those that round to 0 "
        "in f32."},
       {"columns",
        {"1/sqrt(D_k)", "n", "D_k", "arithmetic", "max p", "sum p^2", "entropy", "norm of Jacobian",
         "norm of grad q", "norm of grad k", "weights that are 0", "gradients that are 0"}},
       {"rows", arithmetic_rows}},
      {{"title", "Theorems, checked on every certified row"},
       {"note",
        "|ln(n p)| is at most delta, the largest logit less the smallest; the slack is that of the "
        "closer side, in nats. Entropy in nats, its bound from sigma, the distance of the logits "
        "to their mean."},
       {"columns", theorem_columns},
       {"rows", theorem_rows}}};
  record["plots"] = {
      {{"title", "Mean largest weight"},
       {"note", "With the scaling the curves are flat from D_k = 16 on: they depend on n alone."},
       {"x", {{"label", "D_k"}, {"scale", "log"}}},
       {"y", {{"label", "E max p"}, {"scale", "log"}}},
       {"series", largest_series}},
      {{"title", "Trace of the softmax Jacobian, 1 - sum p^2"},
       {"note", "What multiplies every gradient that passes through the softmax."},
       {"x", {{"label", "D_k"}, {"scale", "log"}}},
       {"y", {{"label", "1 - sum p^2"}, {"scale", "linear"}}},
       {"series", trace_series}},
      {{"title", "Norm of the gradient of k"},
       {"note",
        "Of one output; without the factor the gradient of the scores is multiplied by q, whose "
        "norm grows as sqrt(D_k)."},
       {"x", {{"label", "D_k"}, {"scale", "log"}}},
       {"y", {{"label", "mean norm"}, {"scale", "log"}}},
       {"series", gradient_series}},
      Grid(cells,
           {"Mean largest weight without 1/sqrt(D_k)", "Condensed where D_k > 2 ln n.", "D_k", "n",
            "E max p", true},
           false, Saturation::kLargest),
      Grid(cells,
           {"Mean largest weight with 1/sqrt(D_k)", "From D_k = 16 on it depends on n alone.",
            "D_k", "n", "E max p", true},
           true, Saturation::kLargest)};
  record["notes"] = {
      "The column 1 - sqrt(2 ln n)/s is the limit of sum p^2 above the condensation point of "
      "Derrida's random energy model (s = standard deviation of the logits); it is an asymptotic "
      "value, not a bound.",
      "Annealed: (1 - 2/D_k)^(-D_k/2) / n, the limit of sum p^2 for long rows with the factor; it "
      "is e/n only for large D_k, so that what depends on n alone does so for large D_k. Without "
      "the factor weights condense where D_k > 2 ln n.",
      "The source speaks of extremely small gradients. Without the factor the trace of the "
      "Jacobian falls, about as sqrt(2 ln n / D_k), and ever more single elements of the gradient "
      "underflow; the mean norms of the gradients of q and k do not fall, since the gradient of "
      "the scores is multiplied by k and q, sqrt(D_k) times more than with the factor.",
      "The norm of the Jacobian is its largest row sum, 2 max p (1 - p).",
      "max p / min p is e^delta, so that the first theorem says no more than min p <= 1/n <= max "
      "p: its upper bound on p is too large by the factor 1 / (n min p), its lower one too small "
      "by n max p. The second one is attained by logits that are equal but for one; for those of "
      "independent draws sigma grows as sqrt(n) and the bound says next to nothing.",
      fmt::format("D_k < {} is shown but not judged: there q.k is far from normal (excess kurtosis "
                  "6/D_k), and the scaled weights do depend on D_k.",
                  kFirstJudged)};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
