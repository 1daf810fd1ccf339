// SPDX-License-Identifier: Apache-2.0
#include "audit/expectation_cache.h"

#include <span>
#include <utility>

#include "core/digest.h"

namespace attest {

StatusOr<const Expectation*> ExpectationCache::Of(const Case& problem) {
  const std::string contract = ContractToJson(problem.contract);
  const std::string digest = Sha256(std::as_bytes(std::span(contract))) + Sha256(problem.tensors);
  Slot* slot = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Slot>& place = by_digest_[digest];
    if (!place) place = std::make_unique<Slot>();
    slot = place.get();
  }
  const std::lock_guard<std::mutex> lock(slot->mutex);
  if (!slot->expectation) {
    StatusOr<Expectation> expected = Expect(problem, threads_);
    if (!expected.ok()) return expected.status();
    slot->expectation = std::make_unique<Expectation>(*std::move(expected));
  }
  return slot->expectation.get();
}

}  // namespace attest
