// SPDX-License-Identifier: Apache-2.0
#include "properties/case_families/families.h"

#include <fmt/format.h>

namespace attest {

const std::vector<Family>& Families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> families = ForwardFamilies();
    families.insert(families.end(), GradientFamilies().begin(), GradientFamilies().end());
    return families;
  }();
  return all;
}

const Family* FindFamily(const std::string& name) {
  for (const Family& family : Families()) {
    if (name == family.name) return &family;
  }
  return nullptr;
}

StatusOr<Case> DrawCase(const Family& family, std::uint64_t seed, Index index) {
  const std::string name = fmt::format("{}/{}", family.name, index);
  Dice dice(seed, name);
  const bool long_rows =
      family.long_every != 0 && index % family.long_every == family.long_every - 1;
  Draft draft(dice, long_rows);
  family.draw(draft);
  draft.problem.name = name;
  if (Status s = FinishCase(&draft.problem); !s.ok()) {
    return Internal(fmt::format("{} of seed {} is no case: {}", name, seed, s.message()));
  }
  return std::move(draft.problem);
}

}  // namespace attest
