// SPDX-License-Identifier: Apache-2.0
// Cases for the tests of attention backward, and what is expected of all of them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "audit/case_spec.h"
#include "core/case.h"
#include "optimized/attention.h"

namespace attest {

inline constexpr Mode kModes[] = {Mode::kFast, Mode::kReproducible, Mode::kAccurate};
inline constexpr ScoreKind kScores[] = {ScoreKind::kDot, ScoreKind::kGeneral, ScoreKind::kAdditive};

// The case with gradients alone as outputs, and every slope given.
Case GradientsOnly(Case problem);

Case SpecCase(const Dimensions& shape, const std::function<void(CaseSpec&)>& change = {},
              DType dtype = DType::kF32);

// A case of several blocks, heads and features for laws of bits.
Case LargeCase(ScoreKind score, DType dtype);

// Gradients that the kernel finds alone, and those of what the forward pass left. Failures are the
// test's.
TensorMap MustRun(Mode mode, const Case& problem, Execution& execution);
TensorMap MustRunGiven(Mode mode, const Case& problem, Execution& execution);

// Judges both in every mode on every target; the largest error / bound by tensor goes into `worst`.
void ExpectWithinBounds(const Case& problem, const std::string& what,
                        std::map<std::string, double>* worst);

}  // namespace attest
