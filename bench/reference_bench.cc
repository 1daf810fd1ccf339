// SPDX-License-Identifier: Apache-2.0
#include "bench/reference_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/cpu_clock.h"
#include "bench/floors.h"
#include "bench/mpfr_attention.h"
#include "core/case.h"
#include "core/digest.h"
#include "core/random.h"
#include "core/run_record.h"
#include "optimized/targets.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// What is measured; `goal` is the ratio of both times per element that is aimed at, 0 for none.
struct Work {
  std::string name;  // the shape is appended
  Index queries;
  Index keys;
  Index head_dim;
  DType dtype;
  bool gradients;  // grad_q, grad_k and grad_v instead of out
  double goal;
};

const std::array<Work, 5> kWorks{{
    {"forward", 1024, 1024, 64, DType::kF32, false, 2000.0},
    {"forward", 512, 4096, 64, DType::kF32, false, 1800.0},
    {"forward", 256, 1024, 256, DType::kF32, false, 1000.0},
    {"forward", 1024, 1024, 64, DType::kF64, false, 150.0},
    {"gradients", 1024, 1024, 64, DType::kF32, true, 500.0},
}};

constexpr Index kMpfrRows = 4;    // of each round, spread over the queries
constexpr double kSeconds = 0.1;  // for the peak, and for Certify on each shape, of each round
// A shape that has taken longer than this is left out of the rounds that follow.
constexpr double kSecondsPerWork = 120.0;

Tensor Drawn(const Work& work, const char* name, Index rows, std::uint64_t seed) {
  Tensor tensor(work.dtype, {1, 1, rows, work.head_dim});
  const RandomStream stream(seed, "reference-bench", name);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, stream.Normal(static_cast<std::uint64_t>(i)));
  }
  return tensor;
}

// Standard normal q, k, v and grad_out.
StatusOr<Case> MakeProblem(const Work& work, std::uint64_t seed) {
  Case problem;
  problem.name = work.name;
  Contract& contract = problem.contract;
  contract.shape.q_len = work.queries;
  contract.shape.kv_len = work.keys;
  contract.shape.qk_dim = contract.shape.k_dim = contract.shape.v_dim = work.head_dim;
  contract.dtype = contract.out_dtype = work.dtype;
  contract.arithmetic.profile = DefaultProfile(work.dtype);
  problem.tensors["q"] = Drawn(work, "q", work.queries, seed);
  problem.tensors["k"] = Drawn(work, "k", work.keys, seed);
  problem.tensors["v"] = Drawn(work, "v", work.keys, seed);
  contract.outputs = {"out"};
  if (work.gradients) {
    problem.tensors["grad_out"] = Drawn(work, "grad_out", work.queries, seed);
    contract.outputs = {"grad_q", "grad_k", "grad_v"};
  }
  if (Status s = FinishCase(&problem); !s.ok()) return s;
  return problem;
}

// The rung of every row of every output: the dearest among its elements.
std::array<Index, kRungs> RowRungs(const Certified& certified) {
  std::array<Index, kRungs> counts{};
  for (const auto& [name, tensor] : certified.outputs) {
    const auto width = static_cast<std::size_t>(tensor.shape.back());
    for (std::size_t begin = 0; begin < tensor.values.size(); begin += width) {
      Rung dearest = Rung::kRule;
      for (std::size_t i = begin; i < begin + width; ++i) {
        dearest = std::max(dearest, tensor.values[i].rung);
      }
      ++counts[static_cast<std::size_t>(dearest)];
    }
  }
  return counts;
}

ordered_json ToJson(const std::array<Index, kRungs>& counts) {
  ordered_json json;
  for (std::size_t rung = 0; rung < kRungs; ++rung) {
    json[std::string(NameOf(static_cast<Rung>(rung)))] = counts[rung];
  }
  return json;
}

// Of work that is done in parts: the least and the median time of each part, added up.
ordered_json Statistics(const std::vector<std::vector<double>>& parts, double elements) {
  double least = 0.0;
  double median = 0.0;
  for (const std::vector<double>& seconds : parts) {
    least += Minimum(seconds);
    median += Median(seconds);
  }
  return {{"seconds_min", least},
          {"seconds_median", median},
          {"ns_per_element_min", 1e9 * least / elements},
          {"ns_per_element_median", 1e9 * median / elements}};
}

// One line of the table, measured round by round.
class Measurement {
 public:
  // Certify is repeated for `seconds` in each round.
  Measurement(const Work& work, Case problem, double seconds)
      : work_(work), problem_(std::move(problem)), seconds_(seconds) {
    for (const std::string& output : problem_.contract.outputs) {
      elements_ += ElementCount(OutputShape(problem_, output));
    }
    const Index rows = std::min(kMpfrRows, work_.queries);
    for (Index i = 0; i < rows; ++i) rows_.push_back((2 * i + 1) * work_.queries / (2 * rows));
  }

  const Case& problem() const { return problem_; }

  // Certify again and again for a while, then the rows in plain MPFR once.
  Status Round() {
    const double begin = ThreadSeconds();
    double now = begin;
    do {
      if (!unsupported_.empty() || spent_ > kSecondsPerWork) return Status();
      const StatusOr<Certified> certified = Certify(problem_);
      const double seconds = ThreadSeconds() - now;
      if (certified.status().code() == StatusCode::kUnsupported) {
        unsupported_ = certified.status().message();
        return Status();
      }
      if (!certified.ok()) return certified.status();
      certified_seconds_.push_back(seconds);
      spent_ += seconds;
      if (certified_seconds_.size() == 1) {
        if (Status s = FirstResult(*certified); !s.ok()) return s;
      }
      now = ThreadSeconds();
    } while (now - begin < seconds_);
    if (kMpfrAttention) KeepTimes(Plain());
    return Status();
  }

  // `peak` in GFLOP/s.
  ordered_json Result(double peak) const {
    const Dimensions& s = problem_.contract.shape;
    ordered_json json{{"name", work_.name},   {"dtype", NameOf(work_.dtype)},
                      {"queries", s.q_len},   {"keys", s.kv_len},
                      {"head_dim", s.qk_dim}, {"outputs", problem_.contract.outputs},
                      {"elements", elements_}};
    if (!unsupported_.empty()) {
      json["unsupported"] = unsupported_;
      return json;
    }
    const auto elements = static_cast<double>(elements_);
    json["certified"] = Statistics({certified_seconds_}, elements);
    json["certified"]["runs"] = certified_seconds_.size();
    json["elements_by_rung"] = ToJson(elements_by_rung_);
    json["rows_by_rung"] = ToJson(rows_by_rung_);
    json["undecided"] = undecided_;
    json["largest_precision_bits"] = largest_precision_;
    // Products and sums of the formula: two matrix products forward, five backward.
    const double flops = (work_.gradients ? 10.0 : 4.0) * static_cast<double>(s.q_len * s.kv_len) *
                         static_cast<double>(s.qk_dim);
    const double rate = 1e-9 * flops / Minimum(certified_seconds_);
    json["certified_gflops"] = rate;
    json["share_of_fma_peak"] = rate / peak;
    if (!mpfr_seconds_.empty()) {
      const double share = static_cast<double>(rows_.size()) / static_cast<double>(s.q_len);
      json["mpfr"] = Statistics(mpfr_seconds_, elements * share);
      json["mpfr"]["rows_measured"] = rows_.size();
      const auto ratio = [&](const char* which) {
        return json["mpfr"][which].get<double>() / json["certified"][which].get<double>();
      };
      json["ratio"] = ratio("ns_per_element_min");
      json["ratio_of_medians"] = ratio("ns_per_element_median");
    }
    if (work_.goal > 0.0) {
      json["goal"] = work_.goal;
    } else {
      json["goal"] = nullptr;
    }
    return json;
  }

 private:
  Status FirstResult(const Certified& certified) {
    elements_by_rung_ = certified.RungCounts();
    rows_by_rung_ = RowRungs(certified);
    undecided_ = certified.undecided;
    largest_precision_ = certified.largest_precision;
    if (!kMpfrAttention) return Status();
    return Compare(Plain(), certified.outputs.at(work_.gradients ? "grad_q" : "out"));
  }

  MpfrRows Plain() const {
    return work_.gradients ? MpfrBackward(problem_, rows_) : MpfrForward(problem_, rows_);
  }
  void KeepTimes(const MpfrRows& plain) {
    mpfr_seconds_.resize(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) mpfr_seconds_[i].push_back(plain.seconds[i]);
  }

  // Both compute the same function: an error of 50-digit arithmetic is far below 1e-30 here.
  Status Compare(const MpfrRows& plain, const CertifiedTensor& certified) const {
    const auto width = static_cast<std::size_t>(certified.shape.back());
    for (std::size_t i = 0; i < plain.hi.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(rows_[i / width]) * width + i % width;
      const CertifiedValue& value = certified.values[at];
      const double distance = std::fabs((plain.hi[i] - value.hi) + (plain.lo[i] - value.lo));
      if (!(distance <= value.radius * (1.0 + 1e-10) + 1e-30)) {
        return Internal(fmt::format(
            "{} {}: element {}: plain MPFR gives {:.17g} {:+.3g}, certified {:.17g} {:+.3g} +- {}",
            work_.name, NameOf(work_.dtype), at, plain.hi[i], plain.lo[i], value.hi, value.lo,
            value.radius));
      }
    }
    return Status();
  }

  Work work_;
  Case problem_;
  double seconds_;
  Index elements_ = 0;
  std::vector<Index> rows_;
  std::vector<double> certified_seconds_;          // of every run
  std::vector<std::vector<double>> mpfr_seconds_;  // of every row, in every round
  double spent_ = 0.0;
  std::array<Index, kRungs> elements_by_rung_{}, rows_by_rung_{};
  Index undecided_ = 0;
  int largest_precision_ = 0;
  std::string unsupported_;
};

}  // namespace

StatusOr<ordered_json> RunReferenceBench(const BenchmarkOptions& options) {
  if (!options.shape.empty()) return InvalidArgument("bench reference: its shapes are fixed");
  const double seconds = options.quick ? 0.1 * kSeconds : kSeconds;
  std::vector<Measurement> measurements;
  TensorMap inputs;  // of all shapes, for the manifest's digest
  for (Work work : kWorks) {
    if (options.quick) {
      work.queries /= 8;
      work.keys /= 8;
      work.goal = 0.0;
    }
    work.name += fmt::format(" {}x{}x{}", work.queries, work.keys, work.head_dim);
    StatusOr<Case> problem = MakeProblem(work, options.seed);
    if (!problem.ok()) return problem.status();
    for (const auto& [name, tensor] : problem->tensors) {
      inputs.emplace(fmt::format("{} {} {}", work.name, NameOf(work.dtype), name), tensor);
    }
    measurements.emplace_back(work, *std::move(problem), seconds);
  }
  const auto rounds = static_cast<std::size_t>(std::max(1, options.rounds));
  std::vector<double> peaks;
  for (std::size_t round = 0; round < rounds; ++round) {
    peaks.push_back(1e-9 * DoubleFmaPeak(seconds));
    for (std::size_t i = 0; i < measurements.size(); ++i) {
      if (Status s = measurements[i].Round(); !s.ok()) return s;
      if (options.progress) {
        options.progress(round * measurements.size() + i + 1, rounds * measurements.size());
      }
    }
  }
  const double peak = *std::max_element(peaks.begin(), peaks.end());
  ordered_json record{{"attest_bench", 1},
                      {"name", "reference"},
                      {"quick", options.quick},
                      {"rounds", rounds},
                      {"clock", "processor time of one thread"}};
  record["mpfr"] = kMpfrAttention;
  record["fma_peak_gflops"] = peak;
  record["fma_peak_gflops_median"] = Median(peaks);
  for (const Measurement& measurement : measurements) {
    record["rows"].push_back(measurement.Result(peak));
  }
  Manifest manifest;
  manifest.command = options.command;
  manifest.simd_target = ChosenTarget();
  manifest.seed = options.seed;
  manifest.libraries = ReferenceLibraries();
  manifest.libraries.merge(OptimizedLibraries());
  manifest.inputs_sha256 = Sha256(inputs);
  record["manifest"] = ToJson(manifest);
  return record;
}

}  // namespace attest
