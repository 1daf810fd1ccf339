// SPDX-License-Identifier: Apache-2.0
// What a kernel runs on: threads, and memory that is reused from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "optimized/thread_pool.h"

namespace attest {

// One block of memory, aligned to 128 bytes, that only grows. Kernels carve their scratch from it,
// so that a second call of the same size allocates nothing.
class Workspace {
 public:
  // At least `bytes` bytes; what an earlier call returned is lost.
  std::byte* Reserve(std::size_t bytes);
  std::size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0;
};

// Hands out consecutive, 128-byte aligned arrays. The same code runs twice: over nothing, to learn
// the size (`Carver()`), then over memory of that size.
class Carver {
 public:
  explicit Carver(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  T* Take(std::size_t count) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }
  std::size_t used() const { return used_; }

  static constexpr std::size_t kAlignment = 128;

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

// Not for use by two calls at a time.
struct Execution {
  explicit Execution(int threads = 1) : pool(threads) {}

  ThreadPool pool;
  Workspace workspace;
};

}  // namespace attest
