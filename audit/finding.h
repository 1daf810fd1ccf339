// SPDX-License-Identifier: Apache-2.0
// Findings of an audit: their kinds, and the list that tells each kind once a tensor.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "audit/judge.h"

namespace attest {

// Code and title of every kind of finding, for documents and reports (docs/findings.md).
struct FindingKind {
  std::string code;
  std::string title;
};
const std::vector<FindingKind>& FindingKinds();

// Findings of one kind on one tensor are told once, by the worst case.
class FindingList {
 public:
  // `code` is one of FindingKinds(); `tensor` is empty for what is about a whole call.
  void Add(const std::string& code, const std::string& tensor, const std::string& case_name,
           const std::string& explanation, const std::optional<Witness>& worst);

  bool empty() const { return entries_.empty(); }

  // In the order of FindingKinds(), then of OutputNames().
  nlohmann::ordered_json ToJson(const std::string& reproducer) const;

 private:
  struct Entry {
    std::set<std::string> cases;
    std::string case_name;  // the worst of them
    std::string explanation;
    std::optional<Witness> worst;
  };
  // By rank, position and tensor.
  std::map<std::tuple<std::size_t, std::size_t, std::string>, Entry> entries_;
};

}  // namespace attest
