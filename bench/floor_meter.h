// SPDX-License-Identifier: Apache-2.0
// The floors of every SIMD target that is measured, sampled throughout a run.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/floors.h"
#include "core/status.h"

namespace attest {

enum class FloorRate {
  kFmaF32,
  kFmaF64,
  kExp,
  kCopy256Mb,
  kCopyMatrix,  // of 4096 x 4096 floats
  kRead256Mb,
  kRead64Mb,
};
inline constexpr std::size_t kFloorRates = 7;

class FloorMeter {
 public:
  explicit FloorMeter(std::vector<std::string> targets) : targets_(std::move(targets)) {}

  // What happens in registers and the first cache: some milliseconds for each target.
  Status SampleCompute();
  // What happens in memory: some tenths of a second for each target.
  Status SampleMemory();

  // The best rate that was seen, operations or bytes per second.
  double Best(const std::string& target, FloorRate rate) const;

  // By target: each rate under its name with its unit, "fma_f32_gflops", and the median of its
  // samples, "fma_f32_gflops_median".
  nlohmann::ordered_json ToJson() const;

 private:
  using Samples = std::array<std::vector<double>, kFloorRates>;

  void Keep(const std::string& target, FloorRate rate, double value) {
    samples_[target][static_cast<std::size_t>(rate)].push_back(value);
  }

  std::vector<std::string> targets_;
  std::map<std::string, Samples> samples_;
  std::unique_ptr<MemoryFloor> large_, matrix_, medium_;
};

}  // namespace attest
