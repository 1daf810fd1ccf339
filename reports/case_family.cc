// SPDX-License-Identifier: Apache-2.0
// Case families and their worst errors.
#include "reports/case_family.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace attest::reports {
namespace {

void Include(const Json& result, const Json& output, CaseFamily& family) {
  ++family.cases;
  family.elements += CountOf(output, "elements");
  family.not_correctly_rounded += CountOf(output, "not_correctly_rounded");
  const auto worsen = [](std::optional<double>& worst, const Json& value) {
    worst = Worse(worst, NumberOf(value));
  };
  worsen(family.max_ulp, Field(output, "max_ulp"));
  worsen(family.max_scaled_error, Field(output, "max_scaled_error"));
  worsen(family.max_bound_ratio, Field(output, "max_bound_ratio"));
  worsen(family.max_logit_spread, Field(result, "logit_spread"));
  const std::optional<double> entropy = NumberOf(Field(result, "min_entropy"));
  if (entropy && !(family.min_entropy && *family.min_entropy <= *entropy)) {
    family.min_entropy = entropy;
  }
}

// Negative, so that the worst comes first in ascending order.
double SortKey(const CaseFamily& family) {
  if (!family.max_bound_ratio) return 1;
  return std::isnan(*family.max_bound_ratio) ? -HUGE_VAL : -*family.max_bound_ratio;
}

}  // namespace

std::vector<CaseFamily> CaseFamilies(const Json& case_results) {
  std::vector<CaseFamily> families;
  std::map<std::string, std::size_t> suites;  // order of appearance
  if (!case_results.is_array()) return families;
  for (const Json& result : case_results) {
    const std::string suite = TextOf(Field(result, "suite"));
    suites.emplace(suite, suites.size());
    const bool named = Field(result, "family").is_string();
    const std::string name = TextOf(Field(result, named ? "family" : "case"));
    for (const Json& output : Items(result, "outputs")) {
      const std::string tensor = TextOf(Field(output, "tensor"));
      const auto same = [&](const CaseFamily& family) {
        return family.suite == suite && family.family == name && family.tensor == tensor;
      };
      auto found = std::find_if(families.begin(), families.end(), same);
      if (found == families.end()) {
        families.emplace_back();
        found = families.end() - 1;
        found->suite = suite;
        found->family = name;
        found->tensor = tensor;
      }
      Include(result, output, *found);
    }
  }
  std::multimap<std::pair<std::size_t, double>, CaseFamily> sorted;  // keeps equal keys in order
  for (CaseFamily& family : families) {
    const std::pair key(suites.at(family.suite), SortKey(family));
    sorted.emplace(key, std::move(family));
  }
  families.clear();
  for (auto& [key, family] : sorted) families.push_back(std::move(family));
  return families;
}

}  // namespace attest::reports
