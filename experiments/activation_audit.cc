// SPDX-License-Identifier: Apache-2.0
#include "experiments/activation_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "audit/judge.h"
#include "experiments/saturation_draw.h"

namespace attest {
namespace {

// Largest magnitude over the root mean square.
double OutliersOf(const std::vector<double>& values) {
  double squares = 0.0, largest = 0.0;
  for (const double x : values) {
    squares += x * x;
    largest = std::max(largest, std::fabs(x));
  }
  return largest / std::sqrt(squares / static_cast<double>(values.size()));
}

double KeyMeanOf(const std::vector<double>& k, std::size_t dim) {
  std::vector<double> mean(dim, 0.0);
  const auto keys = static_cast<double>(k.size() / dim);
  double squares = 0.0;
  for (std::size_t i = 0; i < k.size(); ++i) {
    mean[i % dim] += k[i] / keys;
    squares += k[i] * k[i] / keys;
  }
  double mean_squares = 0.0;
  for (const double m : mean) mean_squares += m * m;
  return std::sqrt(mean_squares / squares);
}

HeadShape ShapeOf(const Case& problem, const Certified& certified, TheoremSummary* theorems) {
  HeadShape shape;
  const std::vector<double>& log_weight = certified.conditions.log_weight;
  const std::vector<CertifiedValue>& lse = certified.outputs.at("lse").values;
  const std::size_t keys = log_weight.size() / lse.size();
  const auto rows = static_cast<double>(lse.size());
  const double log_n = std::log(static_cast<double>(keys));
  std::vector<double> columns(keys, 0.0);
  shape.least_logit = shape.least_entropy = std::numeric_limits<double>::infinity();
  shape.largest_logit = -shape.least_logit;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const std::span<const double> row = std::span(log_weight).subspan(i * keys, keys);
    const RowTheorems facts = TheoremsOf(row);
    theorems->Add(facts);
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    shape.least_logit = std::min(shape.least_logit, *low + lse[i].hi);
    shape.largest_logit = std::max(shape.largest_logit, *high + lse[i].hi);
    shape.largest_spread = std::max(shape.largest_spread, facts.spread);
    shape.mean_entropy += facts.entropy / log_n / rows;
    shape.least_entropy = std::min(shape.least_entropy, facts.entropy / log_n);
    shape.mean_largest += std::exp(*high) / rows;
    for (std::size_t j = 0; j < keys; ++j) {
      columns[j] += std::exp(row[j]) * static_cast<double>(keys) / rows;
    }
  }
  const auto sink = std::max_element(columns.begin(), columns.end());
  shape.sink = *sink;
  shape.sink_key = sink - columns.begin();
  std::size_t which = 0;
  for (const char* name : {"q", "k", "v"}) {
    shape.outliers[which++] = OutliersOf(ToDoubles(problem.tensors.at(name)));
  }
  shape.key_mean = KeyMeanOf(ToDoubles(problem.tensors.at("k")),
                             static_cast<std::size_t>(problem.contract.shape.qk_dim));
  return shape;
}

// The enclosures' centres; an error where an enclosure is wider than 2^-36 of the largest.
StatusOr<std::vector<double>> CentresOf(const Certified& certified) {
  const std::vector<CertifiedValue>& values = certified.outputs.at("out").values;
  double largest = 0.0;
  for (const CertifiedValue& value : values) largest = std::max(largest, std::fabs(value.hi));
  std::vector<double> centres;
  for (const CertifiedValue& value : values) {
    if (!(value.radius <= 0x1p-36 * largest)) return Internal("enclosures are too wide");
    centres.push_back(value.hi);
  }
  return centres;
}

// Largest |got - exact| / max |exact|; NaN where there is one.
double RelativeError(const std::vector<double>& got, const std::vector<double>& exact) {
  double error = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(got[i] - exact[i]);
    if (!(difference <= error)) error = difference;
    largest = std::max(largest, std::fabs(exact[i]));
  }
  return error / largest;
}

KernelError ErrorOf(const Expectation& expected, const std::vector<double>& exact,
                    const Tensor& got) {
  return {Judge(expected, "out", got).max_bound_ratio, RelativeError(ToDoubles(got), exact)};
}

}  // namespace

StatusOr<HeadAudit> AuditHead(const Case& problem, const Tensor* recorded, const Subjects& subjects,
                              bool quantised) {
  HeadAudit audit;
  std::vector<double> unrounded;  // exact, for the inputs as they are
  for (std::size_t t = 0; t < kAuditedTypes.size(); ++t) {
    const Case typed = Variant(problem, kAuditedTypes[t], true);
    const StatusOr<Expectation> expected = Expect(typed);
    if (!expected.ok()) return expected.status();
    const StatusOr<std::vector<double>> exact = CentresOf(expected->certified);
    if (!exact.ok()) return exact.status();
    if (kAuditedTypes[t] == DType::kF32) {
      unrounded = *exact;
      audit.shape = ShapeOf(problem, expected->certified, &audit.theorems);
      if (recorded != nullptr) audit.recorded = ErrorOf(*expected, *exact, *recorded);
    }
    audit.input_loss[t] = RelativeError(*exact, unrounded);
    for (const std::unique_ptr<Subject>& subject : subjects) {
      const Outcome outcome = subject->Run(typed, {});
      const auto out = outcome.outputs.find("out");
      if (outcome.kind != Outcome::Kind::kOk || out == outcome.outputs.end()) {
        return InvalidArgument(
            fmt::format("{}: {}: {}", problem.name, subject->info().name, outcome.message));
      }
      audit.kernels[t].push_back(ErrorOf(*expected, *exact, out->second));
    }
  }
  if (!quantised) return audit;
  const AttentionProblem plain = ProblemOf(problem);
  for (const Quantisation& quantisation : kQuantisations) {
    audit.quantised.push_back(MetricsOf(QuantisedAttention(plain, quantisation), unrounded,
                                        static_cast<std::size_t>(plain.v_dim)));
  }
  return audit;
}

}  // namespace attest
