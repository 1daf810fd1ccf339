// SPDX-License-Identifier: Apache-2.0
#include "experiments/ledger_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>

#include "audit/case_spec.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr double kUnitF64 = 0x1p-53;

std::string VerdictOf(bool holds) { return holds ? "reproduced" : "refuted"; }

// Drawn cases of every kind of values, with keys that `mask` hides, in f64.
std::vector<Case> DrawnCases(const ExperimentOptions& options, MaskPattern mask,
                             const std::vector<std::string>& outputs) {
  std::vector<Case> cases;
  const std::uint64_t draws = options.quick ? 1 : 8;
  for (const Values values :
       {Values::kNormal, Values::kOutliers, Values::kTies, Values::kOneHot, Values::kSpread,
        Values::kSubnormal, Values::kExponents, Values::kMantissas, Values::kCancellation}) {
    for (std::uint64_t draw = 0; draw < draws; ++draw) {
      CaseSpec spec;
      spec.shape = {2, 2, 2, 5, 33, 8, 8, 6};
      spec.dtype = DType::kF64;
      spec.values = values;
      spec.mask_pattern = mask;
      spec.outputs = outputs;
      cases.push_back(MakeCase(spec, options.seed + draw));
    }
  }
  return cases;
}

CertifyOptions OptionsFor(const ExperimentOptions& options, bool conditions) {
  CertifyOptions certify;
  certify.threads = options.threads;
  certify.conditions = conditions;
  return certify;
}

Tensor Filled(const Shape& shape, std::initializer_list<double> values) {
  Tensor tensor(DType::kF64, shape);
  Index i = 0;
  for (const double value : values) tensor.Set(i++, value);
  return tensor;
}

// One query, keys of one number each, scale 1: the scores are q k_j.
Case DirectCase(double q, std::initializer_list<double> k) {
  Case problem;
  problem.name = "ledger";
  const auto keys = static_cast<Index>(k.size());
  problem.contract.shape = {1, 1, 1, 1, keys, 1, 1, 1};
  problem.contract.dtype = problem.contract.out_dtype = DType::kF64;
  problem.contract.arithmetic.profile = "f64";
  problem.contract.scale = {false, 1.0};
  problem.contract.outputs = {"weights"};
  problem.tensors["q"] = Filled({1, 1, 1, 1}, {q});
  problem.tensors["k"] = Filled({1, 1, keys, 1}, k);
  problem.tensors["v"] = Tensor(DType::kF64, {1, 1, keys, 1});
  return problem;
}

// NaN and infinity in k and v of every odd key, which MaskPattern::kHoles hides.
void SpoilOddKeys(Case* problem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const char* name : {"k", "v"}) {
    Tensor& tensor = problem->tensors.at(name);
    const Index width = tensor.shape().back();
    for (Index i = 0; i < tensor.size(); ++i) {
      const Index key = i / width % problem->contract.shape.kv_len;
      if (key % 2 == 1) tensor.Set(i, key % 4 == 1 ? std::nan("") : -kInfinity);
    }
  }
}

// The certified log-sum-exp of one key, that is its score, to 30 digits.
StatusOr<std::string> ScoreOf(Case problem) {
  problem.contract.outputs = {"lse"};
  if (Status s = FinishCase(&problem); !s.ok()) return s;
  CertifyOptions options;
  options.digits = 30;
  StatusOr<Certified> certified = Certify(problem, options);
  if (!certified.ok()) return certified.status();
  return certified->outputs.at("lse").digits.front();
}

// q = (1, 2), k = (3, -1).
Case ScoreCase(ScoreKind kind) {
  Case problem = DirectCase(1, {1});
  problem.contract.shape.qk_dim = problem.contract.shape.k_dim = 2;
  problem.contract.score = kind;
  problem.tensors["q"] = Filled({1, 1, 1, 2}, {1, 2});
  problem.tensors["k"] = Filled({1, 1, 1, 2}, {3, -1});
  if (kind == ScoreKind::kGeneral) problem.tensors["w"] = Filled({2, 2}, {0, 1, 1, 0});
  if (kind == ScoreKind::kAdditive) {
    problem.tensors["w_q"] = Filled({1, 2}, {0.25, 0});
    problem.tensors["w_k"] = Filled({1, 2}, {0, -0.25});
    problem.tensors["v_a"] = Filled({1}, {2});
  }
  return problem;
}

}  // namespace

StatusOr<LedgerEntry> CheckWeights(const ExperimentOptions& options) {
  Index count = 0;
  Index outside = 0;
  double worst = 0.0;  // |sum - 1| / u
  for (const Case& problem : DrawnCases(options, MaskPattern::kRandom, {"weights"})) {
    StatusOr<Certified> certified = Certify(problem, OptionsFor(options, false));
    if (!certified.ok()) return certified.status();
    const std::vector<CertifiedValue>& weights = certified->outputs.at("weights").values;
    const auto keys = static_cast<std::size_t>(problem.contract.shape.kv_len);
    for (std::size_t row = 0; row < weights.size(); row += keys) {
      // 64 bits of mantissa: 33 additions of numbers below 1 err by less than u / 60.
      long double sum = 0.0L;
      for (std::size_t j = row; j < row + keys; ++j) {
        outside += weights[j].nearest >= 0.0 && weights[j].nearest <= 1.0 ? 0 : 1;
        sum += static_cast<long double>(weights[j].nearest);
      }
      if (sum == 0.0L) continue;  // every key hidden
      worst = std::max(worst, static_cast<double>(std::fabs(sum - 1.0L)) / kUnitF64);
    }
    count += static_cast<Index>(weights.size());
  }
  return LedgerEntry{"Weights lie in [0, 1] and those of a row sum to 1",
                     VerdictOf(outside == 0 && worst <= 1.0 + 1.0 / 60),
                     fmt::format("{} certified weights, {} outside [0, 1]; rounded to f64 a row "
                                 "sums to 1 within {:.2f} u (at most 1 u is possible).",
                                 count, outside, worst)};
}

StatusOr<LedgerEntry> CheckGaps(ordered_json* rows) {
  bool exponential = true;  // ratio of the weights = e^difference
  bool halved = true;       // difference of the weights <= half the scores'
  Index narrowed = 0;       // ratio of the weights below that of the scores
  Index count = 0;
  for (const double level : {0.125, 1.0, 8.0}) {
    for (const double difference : {0.125, 0.5, 1.0, 2.0, 8.0}) {
      Case problem = DirectCase(1, {level, level + difference});
      if (Status s = FinishCase(&problem); !s.ok()) return s;
      StatusOr<Certified> certified = Certify(problem);
      if (!certified.ok()) return certified.status();
      const std::vector<CertifiedValue>& weights = certified->outputs.at("weights").values;
      const double ratio = weights[1].nearest / weights[0].nearest;
      const double gap = weights[1].nearest - weights[0].nearest;
      const double score_ratio = (level + difference) / level;
      // Two roundings of the weights, one of the quotient, and those of exp.
      exponential = exponential && std::fabs(ratio / std::exp(difference) - 1) <= 8 * kUnitF64;
      halved = halved && gap <= difference / 2;
      narrowed += ratio < score_ratio ? 1 : 0;
      ++count;
      rows->push_back({difference, level, score_ratio, ratio, gap});
    }
  }
  const bool holds = exponential && halved;
  return LedgerEntry{
      "Softmax widens gaps between scores",
      holds ? (narrowed == 0 ? "reproduced" : "reproduced with limits") : "refuted",
      fmt::format(
          "The ratio of two weights is e to the difference of their scores at any level; it "
          "is below the ratio of the scores in {} of {} pairs (small scores), and the "
          "difference of two weights is never more than half that of the scores.",
          narrowed, count)};
}

StatusOr<LedgerEntry> CheckScores() {
  struct Expected {
    ScoreKind kind;
    std::string digits;
  };
  bool holds = true;
  std::string found;
  for (const Expected& expected :
       {Expected{ScoreKind::kDot, "1.00000000000000000000000000000e+00"},
        Expected{ScoreKind::kGeneral, "5.00000000000000000000000000000e+00"},
        Expected{ScoreKind::kAdditive, "9.24234314520019517004636967287e-01"}}) {
    const StatusOr<std::string> score = ScoreOf(ScoreCase(expected.kind));
    if (!score.ok()) return score.status();
    holds = holds && *score == expected.digits;
    found += fmt::format("{}{:.8}", found.empty() ? "" : ", ", *score);
  }
  return LedgerEntry{
      "Dot, general and additive scores are q.k, q^T W k and v^T tanh(W_q q + W_k k)",
      VerdictOf(holds),
      fmt::format("q = (1, 2), k = (3, -1): {}; to 30 digits {} 1, 5 and 2 (e - 1) / (e + 1).",
                  found, holds ? "equal to" : "NOT equal to")};
}

StatusOr<LedgerEntry> CheckMasking(const ExperimentOptions& options) {
  const std::vector<std::string> outputs{"out", "weights", "lse"};
  Index elements = 0;
  Index changed = 0;
  Index hidden = 0;
  Index attended = 0;  // hidden keys with a weight other than 0
  for (Case& problem : DrawnCases(options, MaskPattern::kHoles, outputs)) {
    StatusOr<Certified> a = Certify(problem, OptionsFor(options, true));
    if (!a.ok()) return a.status();
    SpoilOddKeys(&problem);
    StatusOr<Certified> b = Certify(problem, OptionsFor(options, false));
    if (!b.ok()) return b.status();
    for (const std::string& name : outputs) {
      const std::vector<CertifiedValue>& before = a->outputs.at(name).values;
      const std::vector<CertifiedValue>& after = b->outputs.at(name).values;
      for (std::size_t e = 0; e < before.size(); ++e) {
        changed += before[e].nearest == after[e].nearest ? 0 : 1;
      }
      elements += static_cast<Index>(before.size());
    }
    const std::vector<CertifiedValue>& weights = b->outputs.at("weights").values;
    for (std::size_t e = 0; e < weights.size(); ++e) {
      if (a->conditions.allowed[e] != 0) continue;
      ++hidden;
      attended += weights[e].nearest == 0.0 ? 0 : 1;
    }
  }
  return LedgerEntry{
      "Masked positions are invisible", VerdictOf(changed == 0 && attended == 0 && hidden > 0),
      fmt::format(
          "{} outputs with NaN and infinity behind the mask, {} changed; {} hidden weights, "
          "{} other than 0.",
          elements, changed, hidden, attended)};
}

LedgerEntry CheckEmptyRow() {
  std::vector<float> row(4, -std::numeric_limits<float>::infinity());
  const float largest = *std::max_element(row.begin(), row.end());
  float sum = 0.0f;
  for (float& s : row) {
    s = std::exp(s - largest);
    sum += s;
  }
  std::ptrdiff_t nans = 0;
  for (float& s : row) {
    s /= sum;
    nans += std::isnan(s) ? 1 : 0;
  }
  return {
      "The usual ten lines give NaN for a row whose keys are all masked",
      VerdictOf(nans == std::ssize(row)),
      fmt::format("{} of {} weights are NaN: -infinity less -infinity. What others give instead "
                  "is in the experiment masks.",
                  nans, row.size())};
}

StatusOr<LedgerEntry> CheckConvexity(const ExperimentOptions& options) {
  Index count = 0;
  Index outside = 0;
  for (const Case& problem : DrawnCases(options, MaskPattern::kRandom, {"out"})) {
    StatusOr<Certified> certified = Certify(problem, OptionsFor(options, true));
    if (!certified.ok()) return certified.status();
    const Dimensions& shape = problem.contract.shape;
    const std::vector<double> v = ToDoubles(problem.tensors.at("v"));
    const std::vector<CertifiedValue>& out = certified->outputs.at("out").values;
    for (Index row = 0; row < shape.batch * shape.q_heads * shape.q_len; ++row) {
      // As many key/value heads as heads of queries.
      const Index first_key = row / shape.q_len * shape.kv_len;
      for (Index c = 0; c < shape.v_dim; ++c) {
        double low = std::numeric_limits<double>::infinity();
        double high = -low;
        for (Index j = 0; j < shape.kv_len; ++j) {
          if (certified->conditions.allowed[static_cast<std::size_t>(row * shape.kv_len + j)] ==
              0) {
            continue;
          }
          const double value = v[static_cast<std::size_t>((first_key + j) * shape.v_dim + c)];
          low = std::min(low, value);
          high = std::max(high, value);
        }
        if (low > high) continue;  // every key hidden
        // Rounding is monotone, and the ends are numbers of the type.
        const double value = out[static_cast<std::size_t>(row * shape.v_dim + c)].nearest;
        ++count;
        outside += value >= low && value <= high ? 0 : 1;
      }
    }
  }
  return LedgerEntry{"The output is a convex combination of the values",
                     VerdictOf(outside == 0 && count > 0),
                     fmt::format("{} certified outputs, {} outside the range of the values that "
                                 "their query may see.",
                                 count, outside)};
}

}  // namespace attest
