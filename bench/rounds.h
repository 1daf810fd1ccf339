// SPDX-License-Identifier: Apache-2.0
// Contenders timed in turn, round after round, so that what disturbs the machine meets all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/status.h"

namespace attest {

// One run by three clocks (bench/cpu_clock.h).
struct Sample {
  double thread = 0.0;
  double process = 0.0;
  double wall = 0.0;
  double rate = 0.0;  // the mean of Contender::rate before and after the run
};

struct Contender {
  std::string name;
  std::string target;  // the SIMD target that is forced while it runs; empty: none
  std::function<Status()> run;
  std::vector<Sample> samples;
  std::function<double()> rate;  // what the machine gives at this moment, if that matters

  std::vector<double> Seconds(double Sample::* clock = &Sample::thread) const;
};

// One run, which is not kept.
StatusOr<Sample> RunOnce(const Contender& contender);

// Runs every contender once in each round, and `between` before each round. Stops after `rounds`,
// or when another round would end later than `seconds` of wall time after the first began; there is
// always one.
struct RoundLimits {
  std::size_t rounds = 1;
  double seconds = 0.0;
};
Status RunRounds(const RoundLimits& limits, const std::function<Status()>& between,
                 std::vector<Contender>* contenders);

}  // namespace attest
