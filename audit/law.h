// SPDX-License-Identifier: Apache-2.0
// Laws: relations that every right implementation obeys, checked on one case at a time.
// docs/laws.md lists them.
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
  // Where a call failed while the law was checked: the code of that finding.
  std::string failure{};
};

// Audits run a law on cases of up to so many scores (B Hq Tq Tk). Laws that are judged by the
// certified values of the case itself cost a few runs of the subject; the others have to certify a
// variation of the case, which costs as much as the case did.
inline constexpr Index kLargestLawCase = 20000;
inline constexpr Index kLargestCertifiedVariation = 4000;

struct Law {
  std::string name;
  std::string description;
  // Runs the subject on the case and variations of it; what they should give comes from the cache.
  // A variation asks for outputs that the case asks for, and for gradients where the case has any.
  LawResult (*check)(const Subject& subject, const Case& problem, ExpectationCache& expectations);
  Index largest_case = kLargestLawCase;
};

// Every law. Laws that are stated bit by bit hold for any arithmetic that rounds to nearest, or
// only for what a subject declares (deterministic, batch invariant); the others use the derived
// bounds.
const std::vector<Law>& Laws();

}  // namespace attest
