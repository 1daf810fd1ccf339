// SPDX-License-Identifier: Apache-2.0
// What an implementation outside this process says that it supports (docs/plugins.md, "Info").
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "audit/subject.h"
#include "core/case.h"
#include "core/status.h"

namespace attest {

// Names are those of the info: "bf16", "additive", "causal_top_left", "softcap", "lse", ...
using NameSet = std::set<std::string, std::less<>>;

// Whatever is not there was not declared.
struct Capabilities {
  std::string name;
  std::string version;
  std::optional<NameSet> dtypes;
  std::optional<NameSet> scores;
  std::optional<NameSet> masks;
  std::optional<NameSet> features;
  std::optional<NameSet> outputs;
  std::optional<NameSet> layouts;
  std::optional<std::set<Index>> head_dims;  // of q, k and v alike
  std::optional<EmptyRow> empty_row;
  std::vector<Arithmetic> arithmetic;
  bool deterministic = false;
  bool batch_invariant = false;
  nlohmann::ordered_json declared;  // the info as it was given, for records
};

// Every name that a list of the info may hold.
const NameSet& CapabilityNames(std::string_view list);

// Reads {"name": ..., "version": ..., "supports": {...}, "arithmetic": {...} or [{...}, ...]}. An
// unknown field or name below `supports` and `arithmetic` is refused with its path, because a
// typing error would hide cases from the audit.
StatusOr<Capabilities> ParseCapabilities(std::string_view json_text);

// Puts what is declared into a subject's info. Its name stays where none is declared.
void Declare(const Capabilities& capabilities, SubjectInfo* info);

// What a case needs, by the lists it is named in: ("masks", "window"), ("features", "gqa"), ...
struct Need {
  std::string_view list;
  std::string name;
};
std::vector<Need> NeedsOf(const Case& problem);

// The first need of a case that is declared to be missing, as "masks: no 'window'"; nothing where
// all are declared or unknown. Outputs are the audit's business: it does not ask for what is not
// given.
std::optional<std::string> MissingFor(const Case& problem, const Capabilities& capabilities);

}  // namespace attest
