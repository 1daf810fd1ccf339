// SPDX-License-Identifier: Apache-2.0
#include "bench/rounds.h"

#include <optional>

#include "bench/cpu_clock.h"
#include "optimized/targets.h"

namespace attest {

std::vector<double> Contender::Seconds(double Sample::* clock) const {
  std::vector<double> seconds;
  seconds.reserve(samples.size());
  for (const Sample& sample : samples) seconds.push_back(sample.*clock);
  return seconds;
}

StatusOr<Sample> RunOnce(const Contender& contender) {
  std::optional<ScopedTarget> forced;
  if (!contender.target.empty()) {
    StatusOr<ScopedTarget> scope = ScopedTarget::Force(contender.target);
    if (!scope.ok()) return scope.status();
    forced.emplace(*std::move(scope));
  }
  const double before = contender.rate ? contender.rate() : 0.0;
  const Sample begin{ThreadSeconds(), ProcessSeconds(), WallSeconds()};
  if (Status s = contender.run(); !s.ok()) return s;
  Sample sample{ThreadSeconds() - begin.thread, ProcessSeconds() - begin.process,
                WallSeconds() - begin.wall};
  if (contender.rate) sample.rate = 0.5 * (before + contender.rate());
  return sample;
}

Status RunRounds(const RoundLimits& limits, const std::function<Status()>& between,
                 std::vector<Contender>* contenders) {
  const double begin = WallSeconds();
  double longest = 0.0;
  for (std::size_t round = 0; round < limits.rounds; ++round) {
    const double now = WallSeconds();
    if (round > 0 && now - begin + longest > limits.seconds) break;
    if (Status s = between(); !s.ok()) return s;
    for (Contender& contender : *contenders) {
      const StatusOr<Sample> sample = RunOnce(contender);
      if (!sample.ok()) return sample.status();
      contender.samples.push_back(*sample);
    }
    longest = std::max(longest, WallSeconds() - now);
  }
  return Status();
}

}  // namespace attest
