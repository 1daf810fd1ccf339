// SPDX-License-Identifier: Apache-2.0
// What every pass rule, and the derived bound, says about one implementation on a set of cases.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "audit/expectation_cache.h"
#include "audit/subject.h"
#include "core/case.h"
#include "core/status.h"
#include "experiments/tolerance_rules.h"

namespace attest {

// How many of the cases each judge rejects. A rejection tells a fault only where the result of the
// plain implementation without a fault is accepted; a rule that rejects that too rejects whatever
// it is shown.
struct RuleCounts {
  Index cases = 0;           // run
  Index bound = 0;           // rejected by the derived bound, which accepts every right result
  std::vector<Index> tells;  // by PassRules(): rejected, and the plain result is not
  std::vector<Index> rejects;
};

// A case with everything that judges its outputs.
class JudgedCase {
 public:
  // The certified values come from the cache, which must outlive this.
  static StatusOr<JudgedCase> Make(Case problem, ExpectationCache* cache);

  // Runs and judges the subject; what it does not take counts as not run.
  Status Count(const Subject& subject, RuleCounts* counts) const;

  const Case& problem() const { return problem_; }

 private:
  // The judged elements of one output whose exact value is finite, and the others.
  struct Output {
    std::vector<std::size_t> at;
    std::vector<double> exact;
    std::vector<double> plain;
    std::vector<std::size_t> special;
  };
  // Verdicts of the bound, then of every rule: true rejects.
  std::vector<bool> Rejections(const std::vector<std::string>& outputs, const TensorMap& got) const;

  Case problem_;
  const Expectation* expected_ = nullptr;
  std::map<std::string, Output> outputs_;
  TensorMap clean_;  // of the plain implementation without a fault
  std::vector<bool> clean_rejections_;
};

// `out` as a plain 16-bit implementation gives it: scores, weights and outputs rounded to 16 bits,
// softmax and sums in f32 (FlashAttention's attention_ref without upcast, but for the order of
// scaling). Scores come from certified weights, so that every mask and bias is in them.
std::vector<double> PlainHalfOut(const Case& problem, const Expectation& expected);

}  // namespace attest
