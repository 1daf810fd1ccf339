// SPDX-License-Identifier: Apache-2.0
#include "bench/floor_meter.h"

#include "bench/cpu_clock.h"
#include "optimized/targets.h"

namespace attest {
namespace {

constexpr double kSeconds = 0.004;  // for each rate in one sample
constexpr std::array<const char*, kFloorRates> kNames{
    "fma_f32_gflops",      "fma_f64_gflops",  "exp_gexps",     "copy_256mb_gbps",
    "copy_4096x4096_gbps", "read_256mb_gbps", "read_64mb_gbps"};

}  // namespace

Status FloorMeter::SampleCompute() {
  for (const std::string& target : targets_) {
    const StatusOr<ScopedTarget> forced = ScopedTarget::Force(target);
    if (!forced.ok()) return forced.status();
    Keep(target, FloorRate::kFmaF32, FloatFmaPeak(kSeconds));
    Keep(target, FloorRate::kFmaF64, DoubleFmaPeak(kSeconds));
    Keep(target, FloorRate::kExp, ExpPeak(kSeconds));
  }
  return Status();
}

Status FloorMeter::SampleMemory() {
  constexpr std::size_t kMegabyte = 1u << 20;
  if (large_ == nullptr) {
    large_ = std::make_unique<MemoryFloor>(256 * kMegabyte);
    matrix_ = std::make_unique<MemoryFloor>(sizeof(float) * 4096 * 4096);
    medium_ = std::make_unique<MemoryFloor>(64 * kMegabyte);
  }
  for (const std::string& target : targets_) {
    const StatusOr<ScopedTarget> forced = ScopedTarget::Force(target);
    if (!forced.ok()) return forced.status();
    Keep(target, FloorRate::kCopy256Mb, large_->Copy());
    Keep(target, FloorRate::kRead256Mb, large_->Read());
    Keep(target, FloorRate::kCopyMatrix, matrix_->Copy());
    Keep(target, FloorRate::kRead64Mb, medium_->Read());
  }
  return Status();
}

double FloorMeter::Best(const std::string& target, FloorRate rate) const {
  return Maximum(samples_.at(target)[static_cast<std::size_t>(rate)]);
}

nlohmann::ordered_json FloorMeter::ToJson() const {
  nlohmann::ordered_json json;
  for (const std::string& target : targets_) {
    nlohmann::ordered_json rates;
    const Samples& samples = samples_.at(target);
    for (std::size_t i = 0; i < kFloorRates; ++i) {
      if (samples[i].empty()) continue;
      rates[kNames[i]] = 1e-9 * Maximum(samples[i]);
      rates[std::string(kNames[i]) + "_median"] = 1e-9 * Median(samples[i]);
    }
    json[target] = std::move(rates);
  }
  return json;
}

}  // namespace attest
