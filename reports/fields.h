// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a run record without trusting that they exist or have the expected type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace attest::reports {

using Json = nlohmann::ordered_json;

// The member `key`, or null when `object` is no object or has no such member.
const Json& Field(const Json& object, std::string_view key);

// The array member `key`, or an empty array.
const Json& Items(const Json& object, std::string_view key);

// A string's text, a number as people read it (see FormatNumber and FormatCount), true or false;
// nothing for null and for the empty string; anything else as JSON.
std::string TextOf(const Json& value);

// TextOf the member, or a dash when that is empty.
std::string TextOr(const Json& object, std::string_view key);

// As TextOf, but with every digit of a number and without grouping: for seeds and raw values.
std::string ExactTextOf(const Json& value);

// A number, or the number that "NaN", "Infinity" or "-Infinity" stands for.
std::optional<double> NumberOf(const Json& value);

// A whole number that is not negative, 0 for anything else.
std::int64_t CountOf(const Json& object, std::string_view key);

// The worse of two errors: NaN is worse than any number, and any number is worse than nothing.
std::optional<double> Worse(std::optional<double> a, std::optional<double> b);

// FormatNumber, or a dash.
std::string NumberOrDash(std::optional<double> value);

}  // namespace attest::reports
