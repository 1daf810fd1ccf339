// SPDX-License-Identifier: Apache-2.0
// What the same masked call means under the conventions in use, each as a case with exact scores.
#pragma once

#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"

namespace attest {

// One convention's reading of a call.
struct MaskReading {
  std::string name;
  std::string source;  // who reads it so
  Case problem;        // its certified `out` is what the convention gives
};

struct MaskQuestion {
  std::string name;
  std::string call;      // what the caller wrote
  bool control = false;  // the conventions are meant to agree here
  std::vector<MaskReading> readings;
};

// One head of size 1: scores q_i k_j, which every type holds exactly.
struct MaskInput {
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> v;
};

// Softmax of scores to which `sentinel` was added once for each mask that hides the key,
// hidden[i][j] times, every sum rounded to `dtype`. A sentinel or sum that overflows excludes the
// key; a row of such keys is NaN, as a softmax of -infinities is.
Case SentinelCase(const MaskInput& input, const std::vector<std::vector<int>>& hidden,
                  double sentinel, DType dtype);

StatusOr<std::vector<MaskQuestion>> MaskQuestions();

}  // namespace attest
