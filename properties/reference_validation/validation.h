// SPDX-License-Identifier: Apache-2.0
// Draws cases from every family, certifies and judges them, and counts.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/case_families/families.h"
#include "properties/reference_validation/judge.h"

namespace attest {

struct ValidationOptions {
  std::uint64_t seed = 0;
  std::vector<const Family*> families;  // drawn in turn
  // The run ends at whichever comes first. Of a run that is not cut short by time, the same seed
  // counts the same cases: the shortest beginning of the sequence that has so many elements.
  Index elements = std::numeric_limits<Index>::max();
  double seconds = std::numeric_limits<double>::infinity();
  Index first_index = 0;   // of the cases of each family
  int threads = 2;         // each certifies and judges cases of its own
  CertifyOptions certify;  // of every case, but for first_rung, which is varied
  // Changes what Certify returned before it is judged: how a test shows that a fault is seen.
  std::function<void(const Case&, Certified*)> tamper;
  // Called after every case, never twice at once, with the elements and faults so far.
  std::function<void(Index elements, Index faults)> progress;
};

struct FamilyTally {
  std::string name;
  Verdict verdict;
  Index cases = 0;
  Index long_elements = 0;  // of cases with at least 1000 keys
  Index refused = 0;        // cases that Certify returned a Status for, or that are no case
  std::string first_refusal;
  Index first_faulty_index = -1;  // of the first case with a fault
  double draw_seconds = 0.0;      // processor time, like the next two
  double certify_seconds = 0.0;
  double witness_seconds = 0.0;
};

struct Validation {
  std::vector<FamilyTally> families;
  double seconds = 0.0;

  FamilyTally Total() const;
  // Nothing wrong, missed, undecided, unresolved or refused.
  bool ok() const;
};

Validation Validate(const ValidationOptions& options);

// The run as a record, with its MixtureFaults.
nlohmann::ordered_json ToJson(const Validation& validation, const ValidationOptions& options);

// What a run over all families falls short of, one line each: a tenth of the elements from 1000
// keys or more, a tenth gradients and LSEs, at most a third weights.
std::vector<std::string> MixtureFaults(const Validation& validation);

}  // namespace attest
