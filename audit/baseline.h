// SPDX-License-Identifier: Apache-2.0
// Baselines: findings that a project knows of and accepts until a day that it names.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/status.h"

namespace attest {

struct AcceptedFinding {
  std::string implementation;  // as the audit record names it
  std::string code;
  std::string tensor;                 // empty: findings about whole calls
  std::chrono::year_month_day until;  // the last day
  std::string reason;
};

// {"attest_baseline": 1, "accepted": [{"implementation", "code", "tensor", "until": "2027-06-30",
// "reason"}]}. Refuses unknown fields, codes that no finding has, and days that do not exist.
StatusOr<std::vector<AcceptedFinding>> ReadBaseline(const std::filesystem::path& file);

// Marks the findings of `record` that are accepted on the day `today` by a field "accepted" with
// day and reason. Entries for this implementation that have expired or that match no finding give a
// remark each. Returns how many findings are not accepted.
std::size_t ApplyBaseline(const std::vector<AcceptedFinding>& baseline,
                          const std::chrono::year_month_day& today, nlohmann::ordered_json* record);

// A baseline of all findings of `record`, without reasons, for people to edit.
nlohmann::ordered_json BaselineOf(const nlohmann::ordered_json& record,
                                  const std::chrono::year_month_day& until);

}  // namespace attest
