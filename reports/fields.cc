// SPDX-License-Identifier: Apache-2.0
// Tolerant access to JSON.
#include "reports/fields.h"

#include <cmath>
#include <limits>

#include "reports/text.h"

namespace attest::reports {
namespace {

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool FitsCount(const Json& value) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return !value.is_number_unsigned() || value.get<std::uint64_t>() <= kMax;
}

}  // namespace

const Json& Field(const Json& object, std::string_view key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(std::string(key));
  return found == object.end() ? null : *found;
}

const Json& Items(const Json& object, std::string_view key) {
  static const Json none = Json::array();
  const Json& items = Field(object, key);
  return items.is_array() ? items : none;
}

std::string TextOf(const Json& value) {
  if (value.is_number_integer() && FitsCount(value)) {
    return FormatCount(value.get<std::int64_t>());
  }
  if (value.is_number()) return FormatNumber(value.get<double>());
  return ExactTextOf(value);
}

std::string TextOr(const Json& object, std::string_view key) {
  std::string text = TextOf(Field(object, key));
  return text.empty() ? std::string(kDash) : text;
}

std::string ExactTextOf(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return FormatExact(value.get<double>());
  return Dump(value);
}

std::optional<double> NumberOf(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::int64_t CountOf(const Json& object, std::string_view key) {
  const Json& value = Field(object, key);
  if (!value.is_number_integer() || !FitsCount(value)) return 0;
  return std::max<std::int64_t>(value.get<std::int64_t>(), 0);
}

std::optional<double> Worse(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  if (std::isnan(*a) || std::isnan(*b)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(*a, *b);
}

std::string NumberOrDash(std::optional<double> value) {
  return value ? FormatNumber(*value) : std::string(kDash);
}

}  // namespace attest::reports
