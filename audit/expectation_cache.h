// SPDX-License-Identifier: Apache-2.0
// Certified expectations of cases, made once however many subjects and laws ask for them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "audit/judge.h"
#include "core/case.h"
#include "core/status.h"

namespace attest {

// Cases are told apart by contract and tensors, not by name.
class ExpectationCache {
 public:
  explicit ExpectationCache(int threads = 1) : threads_(threads) {}

  // Expect(problem); the result lives as long as the cache.
  StatusOr<const Expectation*> Of(const Case& problem);

 private:
  int threads_;
  std::map<std::string, std::unique_ptr<Expectation>> by_digest_;
};

}  // namespace attest
