// SPDX-License-Identifier: Apache-2.0
// The elementary functions of floats that "exponentials" measures, and whose they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "experiments/exact_function.h"
#include "experiments/ulp_scan.h"
#include "optimized/mode.h"

namespace attest {

using OurEach = void (*)(Mode, const float*, float*, std::size_t);
using PlainEach = void (*)(const float*, float*, std::size_t);

// One exact function and everything that computes it.
struct FunctionQuestion {
  ExactFunction function;
  std::vector<std::pair<std::string, OurEach>> ours;
  PlainEach highway;  // null: it has none
  float highway_lowest;
  float highway_highest;
  PlainEach c_library;
  std::string c_name;
  // Of glibc: the largest error as published, in digits as printed, and how many results are wrong;
  // empty and 0 where nothing is.
  std::string published;
  std::uint64_t published_wrong;
  // Where all floats showed the largest errors of some variant.
  std::vector<float> witnesses;
};

const std::vector<FunctionQuestion>& FunctionQuestions();

// Target by target: the kernels' functions in every mode, Highway's; then the C library's.
std::vector<FunctionSubject> SubjectsOf(const FunctionQuestion& question);

// Whether all floats would take too long: multiply-adds are emulated, or the target is below SSE4.
bool TakesLong(const FunctionSubject& subject);

// "glibc 2.36"; "C library" for another.
std::string CLibrary();

}  // namespace attest
