// SPDX-License-Identifier: Apache-2.0
// Processor and wall time, and statistics of repeated measurements.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

namespace attest {

inline double ClockSeconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds that this thread has run; what other processes and threads take does not count.
inline double ThreadSeconds() { return ClockSeconds(CLOCK_THREAD_CPUTIME_ID); }
// Seconds that all threads of this process have run, added up.
inline double ProcessSeconds() { return ClockSeconds(CLOCK_PROCESS_CPUTIME_ID); }
inline double WallSeconds() { return ClockSeconds(CLOCK_MONOTONIC); }

// Of at least one sample.
inline double Minimum(const std::vector<double>& samples) {
  return *std::min_element(samples.begin(), samples.end());
}
inline double Maximum(const std::vector<double>& samples) {
  return *std::max_element(samples.begin(), samples.end());
}
inline double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return 0.5 * (samples[(n - 1) / 2] + samples[n / 2]);
}

}  // namespace attest
