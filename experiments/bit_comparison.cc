// SPDX-License-Identifier: Apache-2.0
#include "experiments/bit_comparison.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "audit/case_slice.h"
#include "audit/case_spec.h"
#include "core/digest.h"

namespace attest {
namespace {

constexpr int kRuns = 3;
constexpr std::array kThreads{2, 3, 7};

// Elements of two tensors of one shape that differ in a bit.
BitCount CountOf(const Tensor& a, const Tensor& b) {
  BitCount count{a.size(), 0};
  const std::size_t width = SizeOf(a.dtype());
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.size()); ++i) {
    count.differ += std::memcmp(a.bytes() + i * width, b.bytes() + i * width, width) == 0 ? 0 : 1;
  }
  return count;
}

// One subject on one case and its variations.
class Comparison {
 public:
  Comparison(const Subject& subject, const Case& problem, BitReport* report)
      : subject_(subject), problem_(problem), report_(*report) {}

  // Adds to the report; whether the subject takes the case.
  bool Run() {
    const std::optional<TensorMap> whole = OutputsOf(problem_, 1);
    if (!whole) return false;
    whole_ = *whole;
    report_.digest += Sha256(whole_);
    for (int run = 1; run < kRuns; ++run) Compare(Variation::kRun, problem_, 1, {});
    if (subject_.info().threaded) {
      for (const int threads : kThreads) Compare(Variation::kThreads, problem_, threads, {});
    }
    const Dimensions& shape = problem_.contract.shape;
    for (Index entry = 0; entry < shape.batch; ++entry) {
      const Case alone = KeepEntries(problem_, CaseAxis::kBatch, {entry});
      Compare(Variation::kBatch, alone, 1, {{0, entry}});
      const auto length = static_cast<Index>(problem_.tensors.at("kv_lengths").At(entry));
      std::vector<Index> keys(static_cast<std::size_t>(length));
      for (Index j = 0; j < length; ++j) keys[static_cast<std::size_t>(j)] = j;
      Compare(Variation::kPadding, KeepEntries(alone, CaseAxis::kKeys, keys), 1, {{0, entry}});
    }
    if (shape.q_len > 1) {
      for (const Index query : {Index{0}, shape.q_len / 2, shape.q_len - 1}) {
        const Case alone = KeepEntries(problem_, CaseAxis::kQueries, {query});
        Compare(Variation::kQuery, alone, 1, {{2, query}});
      }
    }
    return true;
  }

 private:
  // The entry of an axis of the whole outputs that a varied call computes.
  struct Part {
    std::size_t axis;
    Index entry;
  };

  std::optional<TensorMap> OutputsOf(const Case& problem, int threads) {
    CallOptions options;
    options.threads = threads;
    Outcome outcome = subject_.Run(problem, options);
    if (outcome.kind == Outcome::Kind::kOk) return std::move(outcome.outputs);
    if (outcome.kind != Outcome::Kind::kUnsupported && report_.failure.empty()) {
      report_.failure = outcome.message;
    }
    return std::nullopt;
  }

  void Compare(Variation variation, const Case& varied, int threads,
               const std::optional<Part>& part) {
    const std::optional<TensorMap> outputs = OutputsOf(varied, threads);
    if (!outputs) return;
    BitCount& total = report_.counts[static_cast<std::size_t>(variation)];
    for (const auto& [name, tensor] : *outputs) {
      const Tensor& whole = whole_.at(name);
      const BitCount count =
          CountOf(part ? TakeEntries(whole, part->axis, {part->entry}) : whole, tensor);
      total.compared += count.compared;
      total.differ += count.differ;
    }
  }

  const Subject& subject_;
  const Case& problem_;
  BitReport& report_;
  TensorMap whole_;
};

}  // namespace

std::string NameOf(Variation variation) {
  switch (variation) {
    case Variation::kRun:
      return "runs";
    case Variation::kThreads:
      return "threads";
    case Variation::kBatch:
      return "batch";
    case Variation::kQuery:
      return "queries";
    case Variation::kPadding:
      break;
  }
  return "padding";
}

std::vector<Case> ComparedCases(bool large, std::uint64_t seed) {
  const Index scale = large ? 4 : 1;
  const Index queries = large ? 33 : 9;
  std::vector<Case> cases;
  const auto add = [&](DType dtype, const Dimensions& shape) {
    CaseSpec spec;
    spec.dtype = dtype;
    spec.shape = shape;
    spec.kv_length_list = {shape.kv_len, shape.kv_len / 2 + 3, 64};
    spec.outputs = {"out"};
    cases.push_back(MakeCase(spec, seed));
  };
  // Lengths around and above the blocks that kernels work in.
  add(DType::kF32, {3, 4, 2, queries, 301 * scale, 64, 64, 64});
  add(DType::kBF16, {3, 4, 2, queries, 301 * scale, 64, 64, 64});
  add(DType::kF32, {3, 4, 4, 1, 2049 * scale, 64, 64, 64});
  return cases;
}

BitReport CompareBits(const Subject& subject, const std::vector<Case>& cases) {
  BitReport report;
  for (const Case& problem : cases) {
    if (!report.failure.empty()) break;
    report.calls += Comparison(subject, problem, &report).Run() ? 1 : 0;
  }
  report.digest = Sha256(std::as_bytes(std::span(report.digest)));
  return report;
}

}  // namespace attest
