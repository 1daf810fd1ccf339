// SPDX-License-Identifier: Apache-2.0
#include "audit/line_answer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/file_io.h"
#include "core/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestMessage = 500;

std::string TextField(const json& object, const char* name) {
  const auto field = object.find(name);
  if (field == object.end() || !field->is_string()) return "";
  return Printable(field->get<std::string>().substr(0, kLongestMessage));
}

// Codes that a complaint may have.
bool IsComplaint(const std::string& code) { return code == "printed" || code == "fp-state"; }

}  // namespace

std::optional<LineAnswer> ParseLineAnswer(std::string_view line, bool from_host) {
  const StatusOr<json> parsed = ParseStrictJson(line);
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  using Kind = LineAnswer::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 4> kKinds{
      {{"ok", Kind::kOk},
       {"unsupported", Kind::kUnsupported},
       {"error", Kind::kError},
       {"trespass", Kind::kTrespass}}};
  const std::string status = TextField(*parsed, "status");
  std::optional<LineAnswer> answer;
  for (const auto& [name, kind] : kKinds) {
    if (name == status && (kind != Kind::kTrespass || from_host)) answer = LineAnswer{.kind = kind};
  }
  if (!answer) return std::nullopt;
  answer->message = TextField(*parsed, "message");
  if (parsed->contains("info")) answer->info = (*parsed)["info"].dump();
  const auto complaints = parsed->find("complaints");
  if (from_host && complaints != parsed->end() && complaints->is_array()) {
    for (const json& complaint : *complaints) {
      if (!complaint.is_object() || !IsComplaint(TextField(complaint, "code"))) continue;
      answer->complaints.push_back({TextField(complaint, "code"), TextField(complaint, "message")});
    }
  }
  return answer;
}

}  // namespace attest
