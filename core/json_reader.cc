// SPDX-License-Identifier: Apache-2.0
#include "core/json_reader.h"

#include <fmt/format.h>

#include <utility>

#include "core/file_io.h"

namespace attest {

using nlohmann::json;

namespace {

// What comes from a file may hold anything, of any length.
std::string OneLine(const std::string& message) {
  constexpr std::size_t kLongest = 400;
  return Printable(message.size() <= kLongest ? message : message.substr(0, kLongest) + "...");
}

}  // namespace

StatusOr<json> ParseStrictJson(std::string_view text, int max_depth) {
  // The parser would skip a byte-order mark and stop at a zero byte.
  if (text.starts_with("\xef\xbb\xbf") || text.find('\0') != std::string_view::npos) {
    return InvalidArgument("not valid JSON");
  }
  std::vector<std::set<std::string>> keys;  // of the objects that are open, outermost first
  std::string error;
  const json::parser_callback_t check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key && error.empty() && !keys.empty() &&
               !keys.back().insert(parsed.get<std::string>()).second) {
      error = fmt::format("field '{}' appears twice", parsed.get<std::string>());
    }
    if (depth > max_depth && error.empty()) error = fmt::format("nested deeper than {}", max_depth);
    return true;
  };
  json parsed = json::parse(text.begin(), text.end(), check, /*allow_exceptions=*/false);
  if (!error.empty()) return InvalidArgument(OneLine("JSON: " + error));
  if (parsed.is_discarded()) return InvalidArgument("not valid JSON");
  return parsed;
}

ObjectReader::ObjectReader(const json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (!object_.is_object()) {
    status_ = InvalidArgument(fmt::format("{}: expected an object, found {}",
                                          path_.empty() ? "contract" : path_, object_.type_name()));
  }
}

std::string ObjectReader::PathOf(const std::string& field) const {
  return path_.empty() ? field : path_ + "." + field;
}

void ObjectReader::Fail(const std::string& field, const std::string& message) {
  if (status_.ok()) status_ = InvalidArgument(OneLine(PathOf(field) + ": " + message));
}

bool ObjectReader::Has(const std::string& field) const {
  return object_.is_object() && object_.contains(field);
}

const json* ObjectReader::ReadAny(const std::string& field) {
  known_.insert(field);
  return Has(field) ? &object_.at(field) : nullptr;
}

void ObjectReader::ReadIndex(const std::string& field, Index* value) {
  const json* found = ReadAny(field);
  if (found == nullptr) return;
  constexpr Index kLimit = Index{1} << 40;
  if (!found->is_number_integer() || *found < 0 || *found > kLimit) {
    return Fail(field, fmt::format("expected an integer from 0 to 2^40, found {}", found->dump()));
  }
  *value = found->get<Index>();
}

void ObjectReader::ReadNumber(const std::string& field, double* value) {
  const json* found = ReadAny(field);
  if (found == nullptr) return;
  if (!found->is_number()) {
    return Fail(field, fmt::format("expected a number, found {}", found->dump()));
  }
  *value = found->get<double>();
}

void ObjectReader::ReadBool(const std::string& field, bool* value) {
  const json* found = ReadAny(field);
  if (found == nullptr) return;
  if (!found->is_boolean()) {
    return Fail(field, fmt::format("expected true or false, found {}", found->dump()));
  }
  *value = found->get<bool>();
}

void ObjectReader::ReadText(const std::string& field, std::string* value) {
  const json* found = ReadAny(field);
  if (found == nullptr) return;
  if (!found->is_string()) {
    return Fail(field, fmt::format("expected a text, found {}", found->dump()));
  }
  *value = found->get<std::string>();
}

void ObjectReader::ReadChoice(const std::string& field,
                              const std::vector<std::string_view>& choices, int* position) {
  std::string text;
  if (ReadAny(field) == nullptr) return;
  ReadText(field, &text);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == text) {
      *position = static_cast<int>(i);
      return;
    }
  }
  Fail(field, fmt::format("expected one of {}, found '{}'", fmt::join(choices, ", "), text));
}

Status ObjectReader::Finish() {
  if (!status_.ok()) return status_;
  for (const auto& [field, value] : object_.items()) {
    if (!known_.contains(field)) {
      return InvalidArgument(OneLine(
          fmt::format("{}: unknown field (known: {})", PathOf(field), fmt::join(known_, ", "))));
    }
  }
  return Status();
}

}  // namespace attest
