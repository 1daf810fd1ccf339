// SPDX-License-Identifier: Apache-2.0
// Answers of the line protocol (docs/plugins.md, "The line protocol"), read without trust.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/subject.h"

namespace attest {

struct LineAnswer {
  enum class Kind { kOk, kUnsupported, kError, kTrespass };
  Kind kind = Kind::kOk;
  std::string message{};                // one printable line; empty where there is none
  std::string info{};                   // JSON text of the field `info`; empty where there is none
  std::vector<Complaint> complaints{};  // of the plug-in host
};

// Nothing where the line is no JSON object, or its "status" is not one of "ok", "unsupported",
// "error" and, from the plug-in host, "trespass". Other fields that are not as they should be count
// as absent.
std::optional<LineAnswer> ParseLineAnswer(std::string_view line, bool from_host);

}  // namespace attest
