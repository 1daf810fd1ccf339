// SPDX-License-Identifier: Apache-2.0
#include "optimized/thread_pool.h"

#include <atomic>

namespace attest {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { Work(static_cast<std::size_t>(i)); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::TakeIndices(const Loop& loop, std::size_t thread) {
  std::atomic_ref<std::size_t> next(next_);
  for (std::size_t i = next.fetch_add(1); i < loop.count; i = next.fetch_add(1)) {
    loop.call(loop.body, i, thread);
  }
}

void ThreadPool::RunLoop(const Loop& loop) {
  if (workers_.empty() || loop.count < 2) {
    for (std::size_t i = 0; i < loop.count; ++i) loop.call(loop.body, i, 0);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = loop;
    next_ = 0;
    busy_ = workers_.size();
    ++generation_;
  }
  started_.notify_all();
  TakeIndices(loop, 0);
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::Work(std::size_t thread) {
  std::uint64_t seen = 0;
  for (;;) {
    Loop loop;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      loop = loop_;
    }
    TakeIndices(loop, thread);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      --busy_;
    }
    finished_.notify_one();
  }
}

}  // namespace attest
