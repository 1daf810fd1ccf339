// SPDX-License-Identifier: Apache-2.0
// The variance of q.k over D_k: exactly by enumeration, and estimated inside sampling bands.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"
#include "core/random.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// The chance that any band of a run misses although the claim holds.
constexpr double kFamilyError = 0.001;

// Laws of the components. The last two break a premise of the claim: they are its controls.
enum class Law { kNormal, kSigns, kMeanOne, kOneDraw };

const char* NameOf(Law law) {
  switch (law) {
    case Law::kNormal:
      return "normal";
    case Law::kSigns:
      return "+1 or -1";
    case Law::kMeanOne:
      return "0 or 2 (mean 1)";
    case Law::kOneDraw:
      return "+1 or -1, one draw for all components";
  }
  return "";
}

// Sums over all equally likely pairs (q, k).
struct Enumeration {
  std::int64_t pairs = 0;
  std::int64_t sum = 0;
  std::int64_t squares = 0;
  std::int64_t fourths = 0;

  void Add(std::int64_t score) {
    ++pairs;
    sum += score;
    squares += score * score;
    fourths += score * score * score * score;
  }
  // variance == expected, in integers.
  bool VarianceIs(std::int64_t expected) const {
    return pairs * squares - sum * sum == expected * pairs * pairs;
  }
  // A quotient of integers below 2^53 by a power of two: exact.
  double variance() const {
    const auto n = static_cast<double>(pairs);
    const double mean = static_cast<double>(sum) / n;
    return static_cast<double>(squares) / n - mean * mean;
  }
};

// Bit i of q and k is component i.
Enumeration Enumerate(Law law, int dim) {
  Enumeration all;
  const std::uint32_t vectors = law == Law::kOneDraw ? 2U : 1U << dim;
  for (std::uint32_t q = 0; q < vectors; ++q) {
    for (std::uint32_t k = 0; k < vectors; ++k) {
      switch (law) {
        case Law::kMeanOne:
          all.Add(4 * std::popcount(q & k));
          break;
        case Law::kOneDraw:
          all.Add(q == k ? dim : -dim);
          break;
        default:
          all.Add(dim - 2 * std::popcount(q ^ k));
      }
    }
  }
  return all;
}

// One q.k for index `draw`; products of normal components are summed in double, whose error (below
// 1e-12 relative to the sum of magnitudes) is nothing beside a sampling band.
double Draw(Law law, std::uint64_t dim, const RandomStream& q, const RandomStream& k,
            std::uint64_t draw) {
  if (law == Law::kNormal) {
    double score = 0.0;
    for (std::uint64_t i = draw * dim; i < (draw + 1) * dim; ++i)
      score += q.Normal(i) * k.Normal(i);
    return score;
  }
  int unlike = 0;
  const std::uint64_t words = (dim + 63) / 64;
  for (std::uint64_t i = 0; i < words; ++i) {
    const std::uint64_t left = dim - 64 * i;
    const std::uint64_t used = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
    unlike += std::popcount((q.Bits(draw * words + i) ^ k.Bits(draw * words + i)) & used);
  }
  return static_cast<double>(dim) - 2.0 * unlike;
}

// Second moment over D_k of `draws` scores, and the interval that holds it with probability
// 1 - error if the claim does. From the exact moments of the score, whose mean is 0: the square has
// the variance E x^4 - D^2 and the third cumulant E x^6 - 3 D E x^4 + 2 D^3; the quantiles of the
// mean of squares by Cornish and Fisher's first correction.
struct Band {
  double low = 0.0;
  double high = 0.0;
};

Band BandOf(Law law, double dim, double draws, double error) {
  const bool normal = law == Law::kNormal;
  const double fourth = normal ? 3.0 * dim * (dim + 2.0) : dim * (3.0 * dim - 2.0);
  const double sixth = normal ? 15.0 * dim * (dim + 2.0) * (dim + 4.0)
                              : dim * (15.0 * dim * dim - 30.0 * dim + 16.0);
  const double variance = fourth - dim * dim;
  if (variance == 0.0) return {1.0, 1.0};  // D_k = 1: the square is always 1
  const double deviation = std::sqrt(variance / draws);
  const double skewness = (sixth - 3.0 * dim * fourth + 2.0 * dim * dim * dim) /
                          (std::pow(variance, 1.5) * std::sqrt(draws));
  const double z = NormalQuantile(1.0 - error / 2.0);
  const double bend = (z * z - 1.0) * skewness / 6.0;
  return {1.0 + (bend - z) * deviation / dim, 1.0 + (bend + z) * deviation / dim};
}

struct Estimate {
  std::size_t draws = 0;
  double variance = 0.0;  // without scaling
  double scaled = 0.0;    // of q.k / sqrt(D_k)
  double kurtosis = 0.0;  // excess
};

Estimate EstimateOf(const std::vector<double>& scores, double dim) {
  Estimate estimate;
  estimate.draws = scores.size();
  const auto draws = static_cast<double>(scores.size());
  const double root = std::sqrt(dim);
  double fourths = 0.0;
  for (const double score : scores) {
    const double scaled = score / root;
    estimate.variance += score * score;
    estimate.scaled += scaled * scaled;
    fourths += scaled * scaled * scaled * scaled;
  }
  estimate.variance /= draws;
  estimate.scaled /= draws;
  estimate.kurtosis = fourths / draws / (estimate.scaled * estimate.scaled) - 3.0;
  return estimate;
}

}  // namespace

StatusOr<ordered_json> RunScaling(const ExperimentOptions& options) {
  const int largest_enumerated = options.quick ? 10 : 12;
  const std::size_t least = options.quick ? 4000 : 50000;
  const std::size_t most = options.quick ? 100000 : 1000000;
  std::vector<std::uint64_t> dims;
  for (std::uint64_t dim = 1; dim <= 4096; dim *= 2) dims.push_back(dim);
  const std::vector<Law> laws{Law::kNormal, Law::kSigns};
  const auto bands = static_cast<double>(laws.size() * dims.size());

  // Part 1: by enumeration.
  bool exact = true;
  bool controls_differ = true;
  ordered_json exact_rows = ordered_json::array();
  for (const Law law : {Law::kSigns, Law::kMeanOne, Law::kOneDraw}) {
    for (int dim = 1; dim <= largest_enumerated; ++dim) {
      const Enumeration all = Enumerate(law, dim);
      const bool holds = all.VarianceIs(dim);
      if (law == Law::kSigns) exact = exact && holds;
      if (law != Law::kSigns && dim > 1) controls_differ = controls_differ && !holds;
      exact_rows.push_back({NameOf(law), dim, all.pairs, all.sum, all.squares, all.fourths,
                            all.variance(), all.variance() / dim, holds ? "yes" : "no"});
    }
  }

  // Part 2: by draws.
  ThreadPool pool(options.threads);
  std::string inputs;  // digests of all scores, in order
  bool inside = true;
  double farthest = 0.0;  // from 1, in half widths of its band
  ordered_json rows = ordered_json::array();
  ordered_json unscaled_series = ordered_json::array();
  ordered_json scaled_series = ordered_json::array();
  ordered_json low_points = ordered_json::array();
  ordered_json high_points = ordered_json::array();
  std::size_t done = 0;
  for (const Law law : laws) {
    ordered_json unscaled_points = ordered_json::array();
    ordered_json scaled_points = ordered_json::array();
    for (const std::uint64_t dim : dims) {
      const std::string name = fmt::format("scaling {} d{}", NameOf(law), dim);
      const RandomStream q(options.seed, name, "q");
      const RandomStream k(options.seed, name, "k");
      std::vector<double> scores(std::clamp<std::size_t>((least << 6) / dim, least, most));
      pool.Run(scores.size(),
               [&](std::size_t i, std::size_t /*thread*/) { scores[i] = Draw(law, dim, q, k, i); });
      inputs += Sha256(std::as_bytes(std::span(scores)));
      const auto d = static_cast<double>(dim);
      const Estimate estimate = EstimateOf(scores, d);
      const Band band = BandOf(law, d, static_cast<double>(scores.size()), kFamilyError / bands);
      // For D_k = 1 the band of signs is a point, and so is the estimate, but for its rounding.
      constexpr double kRounding = 1e-10;
      const bool within = estimate.scaled >= band.low - kRounding &&
                          estimate.scaled <= band.high + kRounding &&
                          estimate.variance >= d * (band.low - kRounding) &&
                          estimate.variance <= d * (band.high + kRounding);
      inside = inside && within;
      if (band.high > 1.0) {
        const double side = estimate.scaled > 1.0 ? band.high - 1.0 : 1.0 - band.low;
        farthest = std::max(farthest, std::fabs(estimate.scaled - 1.0) / side);
      }
      rows.push_back({NameOf(law), dim, estimate.draws, estimate.variance, estimate.scaled,
                      band.low, band.high, within ? "yes" : "no", estimate.kurtosis,
                      law == Law::kNormal ? 6.0 / d : -2.0 / d});
      unscaled_points.push_back({dim, estimate.variance});
      scaled_points.push_back({dim, estimate.scaled});
      if (law == Law::kNormal) {
        low_points.push_back({dim, band.low});
        high_points.push_back({dim, band.high});
      }
      if (options.progress) options.progress(++done, laws.size() * dims.size());
    }
    unscaled_series.push_back({{"name", NameOf(law)}, {"points", unscaled_points}});
    scaled_series.push_back({{"name", NameOf(law)}, {"points", scaled_points}});
  }
  scaled_series.push_back({{"name", "band of normal, lower end"}, {"points", low_points}});
  scaled_series.push_back({{"name", "band of normal, upper end"}, {"points", high_points}});

  ordered_json record = NewRecord(
      {.name = "scaling",
       .title = "Variance of q.k and the factor 1/sqrt(D_k)",
       .claim = "For q and k with independent components of mean 0 and variance 1, q.k has mean 0 "
                "and variance D_k; multiplied by 1/sqrt(D_k) it has variance 1 for every D_k.",
       .source = "Vaswani et al. 2017, section 3.2.1, footnote 4.",
       .rule = fmt::format(
           "Reproduced if the variance over all pairs of sign vectors is D_k in integers for every "
           "D_k up to {}, and each of the {} estimates, with and without the factor, lies in its "
           "band. The bands hold the estimates with probability {:g}% all together (Bonferroni: "
           "each by itself with 1 - {:g}/{}) if the claim is true. Not reproduced otherwise.",
           largest_enumerated, bands, 100.0 * (1.0 - kFamilyError), kFamilyError, bands)});
  record["verdict"] = exact && inside ? "reproduced" : "not reproduced";
  record["summary"] = fmt::format(
      "Exact for D_k = 1 to {}: {}. Estimates inside their bands for D_k = 1 to {}: {}; the "
      "farthest is at {:.2f} of the way from 1 to the end of its band. Without a premise the "
      "claim fails, {}: the variance is 3 D_k for components of mean 1 and D_k^2 for components "
      "that are one and the same draw.",
      largest_enumerated, exact ? "yes" : "no", dims.back(), inside ? "all" : "not all", farthest,
      controls_differ ? "as it must" : "contrary to expectation, not everywhere");
  record["tables"] = {
      {{"title", "All pairs (q, k), enumerated"},
       {"note",
        "Sums of q.k and of its powers over all pairs, in integers; the variance is pairs * sum of "
        "squares - sum^2 over pairs^2. The last two laws break a premise of the claim."},
       {"columns",
        {"components", "D_k", "pairs", "sum", "sum of squares", "sum of fourth powers", "variance",
         "variance with the factor", "equals D_k"}},
       {"rows", exact_rows}},
      {{"title", "Estimates from draws"},
       {"note",
        "Mean of squares, the mean being 0; the band is that of the scaled estimate. Excess "
        "kurtosis is shown, not judged."},
       {"columns",
        {"components", "D_k", "draws", "variance", "variance with the factor", "band from",
         "band to", "inside", "excess kurtosis", "its exact value"}},
       {"rows", rows}}};
  record["plots"] = {{{"title", "Variance of q.k"},
                      {"note", "On the diagonal, variance = D_k."},
                      {"x", {{"label", "D_k"}, {"scale", "log"}}},
                      {"y", {{"label", "variance"}, {"scale", "log"}}},
                      {"series", unscaled_series}},
                     {{"title", "Variance of q.k / sqrt(D_k)"},
                      {"note", "Flat at 1; the bands widen where there are fewer draws."},
                      {"x", {{"label", "D_k"}, {"scale", "log"}}},
                      {"y", {{"label", "variance"}, {"scale", "linear"}}},
                      {"series", scaled_series}}};
  record["notes"] = {
      "The band comes from the second, fourth and sixth moments of q.k (normal components: D, "
      "3 D (D + 2), 15 D (D + 2) (D + 4); signs: D, 3 D^2 - 2 D, 15 D^3 - 30 D^2 + 16 D) by the "
      "central limit theorem with a first correction for skewness, so its probability is "
      "approximate.",
      "The scaled and the unscaled estimate of one row come from the same draws and are the same "
      "statement up to rounding; they count as one band."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
