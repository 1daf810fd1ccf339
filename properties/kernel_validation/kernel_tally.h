// SPDX-License-Identifier: Apache-2.0
// What the validation of kernels counts, and how it is written.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace attest {

// One element, or one call, that is not what it must be.
struct KernelViolation {
  std::string kernel;
  std::string target;
  std::string case_name;
  std::string what;  // "above its bound", "bits differ from ...", or what a call reported
  std::string tensor;
  std::vector<Index> index;  // empty where the whole call is meant
  double got = 0.0;
  double exact = 0.0;  // the certified value, rounded to double
  double bound = 0.0;
};
std::string ToLine(const KernelViolation& violation);

// "out f32", or "out bf16, narrowed" where the output has fewer bits than the arithmetic: then the
// bound is mostly the output's own rounding, which right implementations use up.
std::string OutputClass(const std::string& tensor, DType dtype, bool narrowed);

struct LargestRatio {
  double ratio = 0.0;  // |got - exact| / bound
  std::string case_name;
  std::vector<Index> index;
};

// One kernel on one SIMD target.
struct KernelTally {
  Index cases = 0;        // that it took
  Index unsupported = 0;  // that it answered Unsupported to
  std::string unsupported_reason;
  Index not_judged = 0;                         // elements without a bound
  std::map<std::string, Index> elements;        // judged, by OutputClass
  std::map<std::string, LargestRatio> largest;  // likewise
  Index threads_compared = 0;                   // cases run again on three threads
  Index violations = 0;

  Index total() const;
  LargestRatio Largest(bool narrowed) const;
  void Add(const KernelTally& other);
};

// Pairs of results that must agree bit for bit (any NaN agrees with any other).
struct BitsTally {
  Index compared = 0;  // elements
  Index different = 0;
  void Add(const BitsTally& other);
};

using KernelAndTarget = std::pair<std::string, std::string>;

struct ValidationTally {
  std::map<KernelAndTarget, KernelTally> kernels;
  BitsTally across_targets;  // of the reproducible kernels, against the first target
  BitsTally across_threads;  // 1 and 3 threads
  BitsTally decode_and_tiled;
  std::map<std::string, Index> cases_by_dtype;
  Index cases = 0;
  Index refused = 0;  // cases that the reference did not certify
  std::string first_refusal;
  std::vector<KernelViolation> violations;  // the first few of every case

  void Add(const ValidationTally& other);
  Index violation_count() const;
  // The fewest elements that a kernel which has judged any has on a target; 0 for none.
  Index fewest_elements() const;
};

nlohmann::ordered_json ToJson(const ValidationTally& tally);

}  // namespace attest
