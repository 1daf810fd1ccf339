// SPDX-License-Identifier: Apache-2.0
// The processor time of the calling thread, and statistics of repeated measurements.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

namespace attest {

// Seconds that this thread has run; what other processes take does not count.
inline double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of at least one sample.
inline double Minimum(const std::vector<double>& samples) {
  return *std::min_element(samples.begin(), samples.end());
}
inline double Median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return 0.5 * (samples[(n - 1) / 2] + samples[n / 2]);
}

}  // namespace attest
