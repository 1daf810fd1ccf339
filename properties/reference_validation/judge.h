// SPDX-License-Identifier: Apache-2.0
// Compares what Certify says of one case with the textbook formula in 100 digits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/case.h"
#include "reference/certify.h"

namespace attest {

enum class Fault {
  kWrongNearest,  // `nearest` is not the witness rounded once
  kMissed,        // the enclosure does not contain the witness
  kUndecided,     // Certify gave up on the rounding
  kUnresolved,    // the witness itself is too coarse to tell
};
const char* NameOf(Fault fault);

struct FaultyElement {
  Fault fault;
  std::string output;
  Index element = 0;
  Index index = -1;  // of the case, where it is drawn from a family
  double got = 0.0;
  double expected = 0.0;
  std::string detail;
};

// How tight the enclosures of one rung are: |witness - (hi + lo)| / radius.
struct RungTally {
  Index elements = 0;
  double largest_ratio = 0.0;
};

struct Verdict {
  std::map<std::string, Index> elements;  // checked, by output
  Index ties = 0;                         // exact midpoints
  std::map<Fault, Index> faults;
  std::vector<FaultyElement> examples;  // the first few
  std::map<std::string, RungTally> rungs;
  // The witness's largest error bound, relative to the spacing of the output type.
  double largest_slack = 0.0;

  void Add(const Verdict& other);
  Index total() const;
};

// Evaluates the textbook formula and checks every element of every output that the case asks for.
Verdict Judge(const Case& problem, const Certified& certified);

}  // namespace attest
