// SPDX-License-Identifier: Apache-2.0
// Tasks on threads, with progress and cancellation.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/tensor.h"

namespace attest {

class WorkQueue {
 public:
  // `progress` as in CertifyOptions; `all` is what Report counts up to.
  WorkQueue(int threads, const std::function<bool(Index, Index)>& progress, Index all)
      : threads_(static_cast<std::size_t>(std::max(1, threads))), progress_(progress), all_(all) {}

  // Runs worker(i) for every i < tasks, in no particular order, until cancelled; returns when all
  // have ended. `make_worker` makes the worker of one thread, with the thread's own state.
  template <class MakeWorker>
  void ForEach(std::size_t tasks, const MakeWorker& make_worker) {
    std::atomic<std::size_t> next{0};
    const auto run = [&] {
      auto worker = make_worker();
      for (std::size_t i = next++; i < tasks && !cancelled_; i = next++) worker(i);
    };
    std::vector<std::thread> helpers;
    for (std::size_t i = 1; i < std::min(threads_, tasks); ++i) helpers.emplace_back(run);
    if (tasks > 0) run();
    for (std::thread& helper : helpers) helper.join();
  }

  // Counts what is done, tells the caller, and hears whether to go on.
  void Report(Index newly_done) {
    const std::lock_guard lock(mutex_);
    done_ = std::min(all_, done_ + newly_done);
    if (progress_ && !cancelled_ && !progress_(done_, all_)) cancelled_ = true;
  }
  void ReportAll() { Report(all_); }
  bool cancelled() const { return cancelled_; }

 private:
  const std::size_t threads_;
  const std::function<bool(Index, Index)>& progress_;
  const Index all_;
  std::mutex mutex_;
  Index done_ = 0;
  std::atomic<bool> cancelled_{false};
};

}  // namespace attest
