// SPDX-License-Identifier: Apache-2.0
// How the largest weight of a row falls with its length, and what logits times ln n or a sink do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/digest.h"
#include "core/random.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "experiments/rounded_arithmetic.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// One query whose scores are k; with a sink where it is not NaN.
Case DirectCase(const std::vector<double>& scores, double sink) {
  Case problem;
  problem.name = "dilution";
  const Index keys = static_cast<Index>(scores.size());
  problem.contract.shape = {1, 1, 1, 1, keys, 1, 1, 1};
  problem.contract.scale = {false, 1.0};
  problem.contract.outputs = {"weights"};
  Tensor q(DType::kF32, {1, 1, 1, 1});
  q.Set(0, 1.0);
  Tensor k(DType::kF32, {1, 1, keys, 1});
  for (Index j = 0; j < keys; ++j) k.Set(j, scores[static_cast<std::size_t>(j)]);
  problem.tensors = {{"q", q}, {"k", k}, {"v", Tensor(DType::kF32, {1, 1, keys, 1})}};
  if (!std::isnan(sink)) {
    Tensor sinks(DType::kF32, {1});
    sinks.Set(0, sink);
    problem.tensors["sinks"] = sinks;
  }
  return problem;
}

struct Series {
  const char* name;
  double gap;         // of key 0 above all others
  double log_factor;  // s: scores times s ln n; 0: as they are
  double sink;
};
constexpr double kNoSink = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<Series, 7> kSeries{{{"gap 2", 2.0, 0.0, kNoSink},
                                         {"gap 4", 4.0, 0.0, kNoSink},
                                         {"gap 8", 8.0, 0.0, kNoSink},
                                         {"gap 4, sink 4", 4.0, 0.0, 4.0},
                                         {"gap 2, s = 0.43", 2.0, 0.43, kNoSink},
                                         {"gap 2, s = 0.5", 2.0, 0.5, kNoSink},
                                         {"gap 2, s = 0.6", 2.0, 0.6, kNoSink}}};

}  // namespace

StatusOr<ordered_json> RunDilution(const ExperimentOptions& options) {
  std::vector<Index> lengths{16, 64, 256, 1024, 4096, 16384, 65536};
  if (!options.quick) lengths.insert(lengths.end(), {262144, 1048576});
  CertifyOptions certify;
  certify.threads = options.threads;
  std::string inputs;
  const auto weights_of = [&](const Case& problem) -> StatusOr<std::vector<CertifiedValue>> {
    inputs += Sha256(problem.tensors);
    StatusOr<Certified> certified = Certify(problem, certify);
    if (!certified.ok()) return certified.status();
    return certified->outputs.at("weights").values;
  };

  ordered_json rows = ordered_json::array();
  ordered_json plots = ordered_json::array();
  bool falls = true;
  bool scaled = true;
  for (const Series& series : kSeries) {
    ordered_json points = ordered_json::array();
    double previous = std::numeric_limits<double>::quiet_NaN();
    for (const Index n : lengths) {
      const double factor =
          series.log_factor == 0.0 ? 1.0 : series.log_factor * std::log(static_cast<double>(n));
      std::vector<double> scores(static_cast<std::size_t>(n), 0.0);
      scores[0] = Rounder(NumberFormat::kF32)(factor * series.gap);
      const auto weights = weights_of(DirectCase(scores, series.sink));
      if (!weights.ok()) return weights.status();
      const double p = (*weights)[0].hi;
      const double other = (*weights)[1].hi;
      const bool first = std::isnan(previous);
      const double power = series.log_factor * series.gap;  // p tends to 1 iff above 1
      if (power == 0.0) {
        falls = falls && (first || p < previous) &&
                p * static_cast<double>(n) <= std::exp(series.gap) * (1 + 1e-12);
      } else if (!first && power != 1.0) {
        scaled = scaled && (power > 1.0 ? p > previous : p < previous);
      } else if (power == 1.0) {
        scaled = scaled && p > 0.5 && p < 0.5 * (1.0 + 1.1 / static_cast<double>(n));
      }
      previous = p;
      rows.push_back({series.name, n, scores[0], p, p * static_cast<double>(n), other,
                      Rounder(NumberFormat::kF16)(other)});
      points.push_back({n, p});
    }
    plots.push_back({{"name", series.name}, {"points", points}});
  }

  // Scores drawn from [-1, 1]: delta = M - m of each row.
  ordered_json bounds = ordered_json::array();
  bool within = true;
  for (const Index n : lengths) {
    std::vector<double> scores;
    const RandomStream stream(options.seed, "dilution", fmt::format("n{}", n));
    for (Index j = 0; j < n; ++j) {
      const double score = 2.0 * stream.Uniform(static_cast<std::uint64_t>(j)) - 1.0;
      scores.push_back(Rounder(NumberFormat::kF32)(score));
    }
    const auto weights = weights_of(DirectCase(scores, kNoSink));
    if (!weights.ok()) return weights.status();
    const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
    const double spread = std::exp(*high - *low);
    double least = 1.0, most = 0.0, squares = 0.0;
    for (const CertifiedValue& p : *weights) {
      least = std::min(least, p.hi);
      most = std::max(most, p.hi);
      squares += p.hi * p.hi;
    }
    const double keys = static_cast<double>(n);
    within = within && least * keys * spread >= 1.0 && most * keys <= spread;
    bounds.push_back(
        {n, *high - *low, 1.0 / spread, least * keys, most * keys, spread, squares * keys});
  }

  ordered_json record = NewRecord(
      {.name = "dilution",
       .title = "The largest weight of a long row",
       .claim =
           "With logits that differ by at most delta, every softmax weight of n keys lies "
           "between e^-delta / n and e^delta / n, so that no finite gap keeps attention sharp "
           "as n grows; logits times s ln n keep the largest weight if and only if s times its "
           "gap is above 1.",
       .source = "Velickovic et al. 2025 (arXiv:2410.01104), lemma on dispersion; Nakanishi 2025 "
                 "(arXiv:2501.19399), scalable softmax.",
       .rule = "Reproduced if every certified weight of the drawn rows lies within the two bounds; "
               "the weight of a key above equal others falls with n for each gap, and n times it "
               "stays below e^gap; and with scores times s ln n it falls for s gap = 0.86, rises "
               "for 1.2, and tends to 1/2 for 1. Not reproduced otherwise."});
  record["verdict"] = within && falls && scaled ? "reproduced" : "not reproduced";
  const auto weight = [&](std::size_t series) -> double {
    return rows[(series + 1) * lengths.size() - 1][3];
  };
  record["summary"] = fmt::format(
      "n = {}: a key 8 above all others keeps {:.4f} of the weight, one 4 above {:.6f}; with "
      "scores "
      "times s ln n and a gap of 2, s = 0.43 keeps {:.4f}, 0.5 {:.4f}, 0.6 {:.4f}.",
      lengths.back(), weight(2), weight(1), weight(4), weight(5), weight(6));
  record["tables"] = {
      {{"title", "One key above equal others"},
       {"note",
        "Certified weights. The last column is the others' weight as f16 stores it: below 2^-14 it "
        "loses digits."},
       {"columns",
        {"row", "n", "score of key 0", "p of key 0", "n p", "p of another", "that in f16"}},
       {"rows", rows}},
      {{"title", "Scores drawn from [-1, 1]"},
       {"note", "Certified weights times n against their bounds; n sum p^2 is 1 for uniform ones."},
       {"columns", {"n", "delta", "e^-delta", "least n p", "largest n p", "e^delta", "n sum p^2"}},
       {"rows", bounds}}};
  record["plots"] = {{{"title", "Weight of a key above equal others"},
                      {"note", "Without ln n every curve ends as e^gap / n."},
                      {"x", {{"label", "n"}, {"scale", "log"}}},
                      {"y", {{"label", "p"}, {"scale", "log"}}},
                      {"series", plots}}};
  record["notes"] = {
      "A sink takes a fixed term of the denominator: it lowers the weight of short rows and stops "
      "mattering in long ones."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
