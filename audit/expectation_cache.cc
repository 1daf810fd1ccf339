// SPDX-License-Identifier: Apache-2.0
#include "audit/expectation_cache.h"

#include <algorithm>
#include <utility>

#include "core/digest.h"

namespace attest {

StatusOr<const Expectation*> ExpectationCache::Of(const Case& problem) {
  const std::string digest = Sha256(problem.tensors);
  Slot* slot = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::unique_ptr<Slot>>& slots = by_tensors_[digest];
    const auto found = std::find_if(slots.begin(), slots.end(), [&](const auto& candidate) {
      return candidate->contract == problem.contract;
    });
    if (found != slots.end()) {
      slot = found->get();
    } else {
      slot = slots.emplace_back(std::make_unique<Slot>()).get();
      slot->contract = problem.contract;
    }
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
