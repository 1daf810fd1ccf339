// SPDX-License-Identifier: Apache-2.0
// Certified expectations of cases, made once however many subjects and laws ask for them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

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
    std::mutex mutex;
    std::unique_ptr<Expectation> expectation;
  };

  int threads_;
  std::mutex mutex_;  // of the map; slots have their own, so that several are made at a time
  std::map<std::string, std::unique_ptr<Slot>> by_digest_;
};

}  // namespace attest
