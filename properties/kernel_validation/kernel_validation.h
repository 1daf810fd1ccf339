// SPDX-License-Identifier: Apache-2.0
// Draws cases from every family, certifies each once, runs it on every kernel and target, and
// counts.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/kernel_validation/kernel_families.h"
#include "properties/kernel_validation/kernel_runner.h"

namespace attest {

struct KernelValidationOptions {
  std::uint64_t seed = 0;
  std::vector<std::string> kernels;
  std::vector<const Family*> families;  // drawn in turn
  // The run ends at whichever comes first. Of a run that is not cut short by time, the same seed
  // counts the same cases: the shortest beginning of the sequence in which every kernel that takes
  // cases has had so many elements judged on every target. At least one case of every family is
  // drawn.
  Index elements = std::numeric_limits<Index>::max();
  double seconds = std::numeric_limits<double>::infinity();
  Index first_index = 0;  // of the cases of each family
  Index most_cases = std::numeric_limits<Index>::max();
  int threads = 2;  // each certifies and judges cases of its own
  Tamper tamper;
  // Called after every case, never twice at once, with the elements of the kernel and target that
  // has the fewest, and with all violations.
  std::function<void(Index elements, Index violations)> progress;
};

struct KernelValidation {
  ValidationTally tally;
  std::map<std::string, Index> cases_by_family;
  double seconds = 0.0;

  // No violation, and no case that the reference refused.
  bool ok() const { return tally.violation_count() == 0 && tally.refused == 0; }
};

// All built-in kernels but the specimens.
std::vector<std::string> KernelsToValidate();

StatusOr<KernelValidation> ValidateKernels(const KernelValidationOptions& options);

// The run as a record.
nlohmann::ordered_json ToJson(const KernelValidation& validation,
                              const KernelValidationOptions& options);

}  // namespace attest
