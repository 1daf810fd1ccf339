// SPDX-License-Identifier: Apache-2.0
// Certified expectations of cases, made once however many subjects and laws ask for them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "audit/judge.h"
#include "core/case.h"
#include "core/status.h"

namespace attest {

// Cases are told apart by contract and tensors, not by name. Several threads may ask at a time.
class ExpectationCache {
 public:
  explicit ExpectationCache(int threads = 1) : threads_(threads) {}

  // Expect(problem); the result lives as long as the cache.
  StatusOr<const Expectation*> Of(const Case& problem);

 private:
  struct Slot {
    Contract contract;
    std::mutex mutex;
    std::unique_ptr<Expectation> expectation;
  };

  int threads_;
  std::mutex mutex_;  // of the map; slots have their own, so that several are made at a time
  // By the digest of the tensors; few contracts share them.
  std::unordered_map<std::string, std::vector<std::unique_ptr<Slot>>> by_tensors_;
};

}  // namespace attest
