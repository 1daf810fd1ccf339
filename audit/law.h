// SPDX-License-Identifier: Apache-2.0
// Laws: relations that every right implementation obeys, checked on one case at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audit/expectation_cache.h"
#include "audit/subject.h"
#include "core/case.h"

namespace attest {

struct Violation {
  std::string tensor;
  std::vector<Index> index;
  double got = 0.0;
  double expected = 0.0;
  std::string explanation;  // one sentence
};

struct LawResult {
  bool applied = false;  // false: the law says nothing about this case or subject
  std::optional<Violation> violation;
};

struct Law {
  std::string name;
  std::string description;
  // Runs the subject on the case and variations of it; what they should give comes from the cache.
  LawResult (*check)(const Subject& subject, const Case& problem, ExpectationCache& expectations);
};

// Every law. Laws that are stated bit by bit hold for any arithmetic, or only for what a subject
// declares (deterministic, batch invariant); the others use the derived bounds.
const std::vector<Law>& Laws();

}  // namespace attest
