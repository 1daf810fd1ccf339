// SPDX-License-Identifier: Apache-2.0
#include "audit/finding.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "audit/law.h"
#include "core/contract.h"
#include "core/run_record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// Position of a code in FindingKinds().
std::size_t RankOf(const std::string& code) {
  const std::vector<FindingKind>& kinds = FindingKinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&](const FindingKind& k) { return k.code == code; });
  return static_cast<std::size_t>(kind - kinds.begin());
}

// Position of an output in OutputNames(): `out` comes first.
std::size_t PositionOf(const std::string& tensor) {
  const std::vector<std::string_view>& names = OutputNames();
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), tensor) - names.begin());
}

}  // namespace

void FindingList::Add(const std::string& code, const std::string& tensor,
                      const std::string& case_name, const std::string& explanation,
                      const std::optional<Witness>& worst) {
  Entry& entry = entries_[{RankOf(code), PositionOf(tensor), tensor}];
  entry.cases.insert(case_name);
  const bool worse = entry.cases.size() == 1 ||
                     (worst && (!entry.worst || worst->bound_ratio > entry.worst->bound_ratio));
  if (!worse) return;
  entry.case_name = case_name;
  entry.explanation = explanation;
  entry.worst = worst;
}

ordered_json FindingList::ToJson(const std::string& reproducer) const {
  ordered_json list = ordered_json::array();
  for (const auto& [key, entry] : entries_) {
    const auto& [rank, position, tensor] = key;
    const FindingKind& kind = FindingKinds()[rank];
    ordered_json finding{{"code", kind.code},
                         {"title", kind.title},
                         {"case", entry.case_name},
                         {"tensor", tensor},
                         {"explanation", entry.explanation},
                         {"cases", entry.cases.size()},
                         {"reproducer", reproducer}};
    if (entry.worst) {
      finding["worst"] = {{"index", entry.worst->index},
                          {"got", NumberToJson(entry.worst->got)},
                          {"expected", NumberToJson(entry.worst->expected)},
                          {"ulp", NumberToJson(entry.worst->ulp)},
                          {"bound_ratio", NumberToJson(entry.worst->bound_ratio)}};
    }
    list.push_back(std::move(finding));
  }
  return list;
}

const std::vector<FindingKind>& FindingKinds() {
  static const std::vector<FindingKind> kinds = [] {
    std::vector<FindingKind> list{
        {"above-bound", "an element is farther from the exact value than the bound allows"},
        {"non-finite", "NaN or infinity where a number is exact, or the other way round"},
        {"missing-output", "an output that was asked for is missing"},
        {"error", "the implementation reported an error"},
        {"crash", "the implementation's process ended during the call"},
        {"timeout", "no answer within the time limit"},
        {"memory", "the implementation took more memory than the limit"},
        {"garbage", "the answer is no line of the protocol"},
        {"bad-result", "the result file cannot be read or has a wrong type or shape"},
        {"trespass", "the implementation wrote where it must not"},
        {"wrong-cache", "a stored key or value cache is not the past followed by the new"},
        {"printed", "the implementation wrote to standard output"},
        {"fp-state", "the implementation left the floating-point state changed"},
    };
    for (const Law& law : Laws()) list.push_back({"law-" + law.name, "broken: " + law.description});
    return list;
  }();
  return kinds;
}

}  // namespace attest
