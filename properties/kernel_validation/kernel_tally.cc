// SPDX-License-Identifier: Apache-2.0
#include "properties/kernel_validation/kernel_tally.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "core/run_record.h"

namespace attest {
namespace {

constexpr std::string_view kNarrowed = ", narrowed";

void Update(LargestRatio* largest, const LargestRatio& other) {
  if (other.ratio > largest->ratio) *largest = other;
}

nlohmann::ordered_json ToJson(const BitsTally& tally) {
  return {{"elements", tally.compared}, {"different", tally.different}};
}

nlohmann::ordered_json ToJson(const KernelAndTarget& key, const KernelTally& tally) {
  nlohmann::ordered_json json{{"kernel", key.first},
                              {"target", key.second},
                              {"cases", tally.cases},
                              {"unsupported_cases", tally.unsupported},
                              {"elements", tally.total()},
                              {"not_judged", tally.not_judged},
                              {"violations", tally.violations},
                              {"cases_on_three_threads", tally.threads_compared}};
  if (!tally.unsupported_reason.empty()) json["unsupported"] = tally.unsupported_reason;
  for (const auto& [tensor, count] : tally.elements) {
    nlohmann::ordered_json& output = json["outputs"][tensor];
    output["elements"] = count;
    const LargestRatio& largest = tally.largest.at(tensor);
    output["largest_error_over_bound"] = NumberToJson(largest.ratio);
    if (largest.ratio > 0.0) {
      output["case"] = largest.case_name;
      output["index"] = largest.index;
    }
  }
  return json;
}

}  // namespace

std::string ToLine(const KernelViolation& v) {
  std::string line = fmt::format("{}@{} {}: ", v.kernel, v.target, v.case_name);
  if (!v.tensor.empty()) line += fmt::format("{}[{}]: ", v.tensor, fmt::join(v.index, ","));
  line += v.what;
  if (!v.tensor.empty()) {
    line += fmt::format(": got {0} ({0:a}), exact {1} ({1:a}), bound {2}", v.got, v.exact, v.bound);
  }
  return line;
}

std::string OutputClass(const std::string& tensor, DType dtype, bool narrowed) {
  return fmt::format("{} {}{}", tensor, NameOf(dtype), narrowed ? kNarrowed : "");
}

LargestRatio KernelTally::Largest(bool narrowed) const {
  LargestRatio result;
  for (const auto& [output, ratio] : largest) {
    if (output.ends_with(kNarrowed) == narrowed) Update(&result, ratio);
  }
  return result;
}

Index KernelTally::total() const {
  Index sum = 0;
  for (const auto& [tensor, count] : elements) sum += count;
  return sum;
}

void KernelTally::Add(const KernelTally& other) {
  cases += other.cases;
  unsupported += other.unsupported;
  if (unsupported_reason.empty()) unsupported_reason = other.unsupported_reason;
  not_judged += other.not_judged;
  threads_compared += other.threads_compared;
  violations += other.violations;
  for (const auto& [tensor, count] : other.elements) elements[tensor] += count;
  for (const auto& [tensor, ratio] : other.largest) Update(&largest[tensor], ratio);
}

void BitsTally::Add(const BitsTally& other) {
  compared += other.compared;
  different += other.different;
}

void ValidationTally::Add(const ValidationTally& other) {
  for (const auto& [key, tally] : other.kernels) kernels[key].Add(tally);
  across_targets.Add(other.across_targets);
  across_threads.Add(other.across_threads);
  decode_and_tiled.Add(other.decode_and_tiled);
  for (const auto& [dtype, count] : other.cases_by_dtype) cases_by_dtype[dtype] += count;
  cases += other.cases;
  refused += other.refused;
  if (first_refusal.empty()) first_refusal = other.first_refusal;
  violations.insert(violations.end(), other.violations.begin(), other.violations.end());
}

Index ValidationTally::violation_count() const {
  Index sum = 0;
  for (const auto& [key, tally] : kernels) sum += tally.violations;
  return sum;
}

Index ValidationTally::fewest_elements() const {
  Index fewest = std::numeric_limits<Index>::max();
  for (const auto& [key, tally] : kernels) {
    if (tally.total() > 0) fewest = std::min(fewest, tally.total());
  }
  return fewest == std::numeric_limits<Index>::max() ? 0 : fewest;
}

nlohmann::ordered_json ToJson(const ValidationTally& tally) {
  nlohmann::ordered_json json{{"cases", tally.cases},
                              {"cases_by_dtype", tally.cases_by_dtype},
                              {"refused_cases", tally.refused},
                              {"violations", tally.violation_count()},
                              {"fewest_elements_of_a_kernel_on_a_target", tally.fewest_elements()}};
  if (!tally.first_refusal.empty()) json["first_refusal"] = tally.first_refusal;
  json["same_bits"] = {{"reproducible_kernels_across_targets", ToJson(tally.across_targets)},
                       {"one_and_three_threads", ToJson(tally.across_threads)},
                       {"decode_and_tiled_reproducible", ToJson(tally.decode_and_tiled)}};
  json["kernels"] = nlohmann::ordered_json::array();
  for (const auto& [key, kernel] : tally.kernels) json["kernels"].push_back(ToJson(key, kernel));
  json["examples"] = nlohmann::ordered_json::array();
  for (const KernelViolation& violation : tally.violations) {
    json["examples"].push_back(ToLine(violation));
  }
  return json;
}

}  // namespace attest
