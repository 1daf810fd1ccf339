// SPDX-License-Identifier: Apache-2.0
// Named families of random cases, for the validation of the reference and of kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "properties/case_families/draft.h"

namespace attest {

struct Family {
  const char* name;
  void (*draw)(Draft& draft);
  Index long_every = 0;  // every so many cases have 1000 to 4096 keys; 0: none has
};

// Forward families first, then those with gradients.
const std::vector<Family>& Families();
const std::vector<Family>& ForwardFamilies();
const std::vector<Family>& GradientFamilies();

// Null when there is none of that name.
const Family* FindFamily(const std::string& name);

// Case number `index` of a family: a pure function of the arguments.
StatusOr<Case> DrawCase(const Family& family, std::uint64_t seed, Index index);

}  // namespace attest
