// SPDX-License-Identifier: Apache-2.0
#include "audit/expectation_cache.h"

#include <span>
#include <utility>

#include "core/digest.h"

namespace attest {

StatusOr<const Expectation*> ExpectationCache::Of(const Case& problem) {
  const std::string contract = ContractToJson(problem.contract);
  std::unique_ptr<Expectation>& slot =
      by_digest_[Sha256(std::as_bytes(std::span(contract))) + Sha256(problem.tensors)];
  if (!slot) {
    StatusOr<Expectation> expected = Expect(problem, threads_);
    if (!expected.ok()) return expected.status();
    slot = std::make_unique<Expectation>(*std::move(expected));
  }
  return slot.get();
}

}  // namespace attest
