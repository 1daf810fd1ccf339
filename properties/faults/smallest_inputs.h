// SPDX-License-Identifier: Apache-2.0
// The smallest input that exposes each fault, with the right result.
#pragma once

#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/case.h"

namespace attest {

// One input of a fault that an output gives away. A fault may have several: then at least one of
// them exposes it, and the others show what it does not depend on.
struct SmallestInput {
  std::string fault;
  Case problem;
  std::string tensor;         // the output that is compared
  std::vector<double> right;  // all of its elements
  CallOptions options;
  int calls = 1;  // each of which must give the right result
};
std::vector<SmallestInput> SmallestInputs();

// Two calls that give one output the same bits, for faults that show in nothing else. The shorter
// output is the beginning of the longer one.
struct EqualCalls {
  std::string fault;
  Case first;
  Case second;
  std::string tensor;
  CallOptions first_options;
  CallOptions second_options;
  int repetitions = 1;
};
std::vector<EqualCalls> CallsThatAgree();

// The parts of SmallestInputs().
std::vector<SmallestInput> SmallestMaskInputs();
std::vector<SmallestInput> SmallestCausalInputs();
std::vector<SmallestInput> SmallestScoreInputs();
std::vector<SmallestInput> SmallestSoftmaxInputs();
std::vector<SmallestInput> SmallestMemoryInputs();
std::vector<SmallestInput> SmallestBackwardInputs();
std::vector<SmallestInput> SmallestElementaryInputs();

}  // namespace attest
