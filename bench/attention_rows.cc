// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_rows.h"

#include <fmt/format.h>

#include "bench/cpu_clock.h"

namespace attest {
namespace {

std::string KernelName(const AttentionShape& shape, const KernelChoice& choice) {
  const char* pass = choice.backward ? "backward" : shape.queries == 1 ? "decode" : "forward";
  std::string name = fmt::format("attention_{}_{}", pass, NameOf(choice.storage));
  if (choice.mode != Mode::kFast) name += fmt::format("_{}", NameOf(choice.mode));
  return name;
}

}  // namespace

std::string FormulaOf(FloorKind kind) {
  switch (kind) {
    case FloorKind::kForward:
      return "scores (4 D / fma_f32 + 1 / exp)";
    case FloorKind::kBackward:
      return "scores (10 D / fma_f32 + 1 / exp)";
    case FloorKind::kRead:
      return "bytes of k and v / read_64mb";
    case FloorKind::kCopy:
      return "bytes of x and y / copy_4096x4096";
  }
  return "";
}

Work AttentionWork(const AttentionShape& shape, const KernelChoice& choice) {
  const bool decode = shape.queries == 1 && !choice.backward;
  Work work{.kernel = KernelName(shape, choice), .shape = NameOf(shape)};
  work.floor = choice.backward ? FloorKind::kBackward
               : decode        ? FloorKind::kRead
                               : FloorKind::kForward;
  work.scores = ScoreCount(shape);
  work.dim = static_cast<double>(shape.dim);
  work.flops = (choice.backward ? 10.0 : 4.0) * work.dim * work.scores;
  // Queries' side: q and out, and their gradients; keys' side: k and v, and their gradients.
  const double passes = choice.backward ? 4.0 : 2.0;
  const double elements = static_cast<double>(shape.heads * shape.dim) *
                          (passes * static_cast<double>(shape.keys) +
                           (decode ? 0.0 : passes * static_cast<double>(shape.queries)));
  work.bytes = elements * static_cast<double>(SizeOf(choice.storage));
  return work;
}

Work SoftmaxWork(Index rows, Index columns) {
  Work work{.kernel = "softmax_f32", .shape = fmt::format("{}x{}", rows, columns)};
  work.floor = FloorKind::kCopy;
  work.scores = static_cast<double>(rows * columns);
  work.flops = 4.0 * work.scores;  // subtraction, exponential, sum and product
  work.bytes = 2.0 * sizeof(float) * work.scores;
  return work;
}

double FloorSeconds(const Work& work, const std::string& target, const FloorMeter& floors) {
  const auto best = [&](FloorRate rate) { return floors.Best(target, rate); };
  const double exponentials = work.scores / best(FloorRate::kExp);
  switch (work.floor) {
    case FloorKind::kForward:
    case FloorKind::kBackward:
      return work.flops / best(FloorRate::kFmaF32) + exponentials;
    case FloorKind::kRead:
      return work.bytes / best(FloorRate::kRead64Mb);
    case FloorKind::kCopy:
      return work.bytes / best(FloorRate::kCopyMatrix);
  }
  return 0.0;
}

nlohmann::ordered_json RowToJson(const Work& work, const std::string& target,
                                 const std::vector<double>& seconds, const FloorMeter& floors) {
  const double least = Minimum(seconds);
  const double floor = FloorSeconds(work, target, floors);
  return {{"kernel", work.kernel},
          {"shape", work.shape},
          {"target", target},
          {"seconds_min", least},
          {"seconds_median", Median(seconds)},
          {"runs", seconds.size()},
          {"gflops", 1e-9 * work.flops / least},
          {"gbytes_per_second", 1e-9 * work.bytes / least},
          {"floor", FormulaOf(work.floor)},
          {"floor_seconds", floor},
          {"share_of_floor", floor / least}};
}

void AddSharesByRun(const Work& work, const std::string& target, const std::vector<Sample>& samples,
                    const FloorMeter& floors, nlohmann::ordered_json* row) {
  if (work.floor != FloorKind::kForward && work.floor != FloorKind::kBackward) return;
  // The exponential's rate follows the clock as that of multiply-adds does.
  const double at_best = FloorSeconds(work, target, floors);
  const double best = floors.Best(target, FloorRate::kFmaF32);
  std::vector<double> shares;
  shares.reserve(samples.size());
  for (const Sample& sample : samples) {
    shares.push_back(at_best * best / sample.rate / sample.thread);
  }
  (*row)["share_by_run"] = Median(shares);
  (*row)["share_by_run_best"] = Maximum(shares);
}

}  // namespace attest
