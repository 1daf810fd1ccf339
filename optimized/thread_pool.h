// SPDX-License-Identifier: Apache-2.0
// A few threads that take the indices of a loop one by one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace attest {

class ThreadPool {
 public:
  // The calling thread is one of the `threads`; none is started for fewer than 2.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t threads() const { return workers_.size() + 1; }

  // Calls body(index, thread) for every index < count, with thread < threads(), and returns when
  // all are done. Which thread takes an index is not determined; no two take the same `thread`
  // number at a time. Allocates nothing. Not to be called from inside a body. `body` must not
  // throw.
  template <class Body>
  void Run(std::size_t count, const Body& body) {
    Loop loop;
    loop.body = &body;
    loop.call = [](const void* any, std::size_t index, std::size_t thread) {
      (*static_cast<const Body*>(any))(index, thread);
    };
    loop.count = count;
    RunLoop(loop);
  }

 private:
  struct Loop {
    const void* body = nullptr;
    void (*call)(const void* body, std::size_t index, std::size_t thread) = nullptr;
    std::size_t count = 0;
  };

  void RunLoop(const Loop& loop);
  void Work(std::size_t thread);
  void TakeIndices(const Loop& loop, std::size_t thread);

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  Loop loop_;                     // guarded by mutex_, as are the next three
  std::uint64_t generation_ = 0;  // of loops; workers wait for it to rise
  std::size_t busy_ = 0;          // workers that have not finished the present loop
  bool stopping_ = false;
  alignas(64) std::size_t next_ = 0;  // the next index, accessed atomically
  std::vector<std::thread> workers_;
};

}  // namespace attest
