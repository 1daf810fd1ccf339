// SPDX-License-Identifier: Apache-2.0
// UTF-8 cleaning, the two escapes, and the number formats.
#include "reports/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace attest::reports {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// The length of the well-formed UTF-8 sequence at the start of `text`, and its code point; 0 when
// there is none.
std::size_t DecodeOne(std::string_view text, char32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  std::size_t length = 0;
  char32_t smallest = 0;
  if (lead < 0x80) {
    code = lead;
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2, smallest = 0x80, code = lead & 0x1Fu;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3, smallest = 0x800, code = lead & 0x0Fu;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4, smallest = 0x10000, code = lead & 0x07u;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return 0;
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < smallest || code > 0x10FFFF || surrogate ? 0 : length;
}

// Characters that would be invisible, or that would change the order of what is around them.
bool IsHarmful(char32_t code) {
  if (code == '\t' || code == '\n') return false;
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string OneLine(std::string_view text) {
  std::string line = CleanText(text);
  std::replace_if(line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

// printf's exponent without its sign + and its leading zeros.
std::string ShortExponent(std::string number) {
  const std::size_t e = number.find('e');
  if (e == std::string::npos) return number;
  std::string exponent = number.substr(e + 1);
  const bool negative = exponent.starts_with('-');
  const std::size_t digits = exponent.find_first_not_of("+-0");
  exponent = digits == std::string::npos ? "0" : exponent.substr(digits);
  return number.substr(0, e) + (negative ? "e-" : "e") + exponent;
}

std::string NonFinite(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

}  // namespace

std::string CleanText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    char32_t code = 0;
    const std::size_t length = DecodeOne(text, code);
    clean += length == 0 || IsHarmful(code) ? kReplacement : text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 8);
  for (const char c : CleanText(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string EscapeMarkdown(std::string_view text) {
  constexpr std::string_view kAnywhere = "\\`*_[]<>|~$#!&";
  std::string escaped;
  const std::string line = OneLine(text);
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool list_mark = i == 0 && std::string_view("-+=").find(line[i]) != std::string::npos;
    const bool number_mark =
        (line[i] == '.' || line[i] == ')') && i > 0 && line.find_first_not_of("0123456789") == i;
    if (list_mark || number_mark || kAnywhere.find(line[i]) != std::string::npos) escaped += '\\';
    escaped += line[i];
  }
  return escaped;
}

std::string MarkdownCode(std::string_view text) {
  const std::string line = OneLine(text);
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char c : line) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  const bool pad = line.starts_with('`') || line.ends_with('`');
  return fence + (pad ? " " : "") + line + (pad ? " " : "") + fence;
}

std::string Shorten(std::string_view text, std::size_t limit) {
  std::string clean = CleanText(text);
  if (clean.size() <= limit) return clean;
  std::size_t cut = limit;
  while (cut > 0 && (static_cast<unsigned char>(clean[cut]) & 0xC0u) == 0x80u) --cut;
  return clean.substr(0, cut) + "\u2026";
}

std::string FormatDigits(double value, int digits) {
  if (!std::isfinite(value)) return NonFinite(value);
  return ShortExponent(fmt::format("{:.{}g}", value, std::max(digits, 1)));
}

std::string FormatNumber(double value) {
  if (!std::isfinite(value)) return NonFinite(value);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return std::signbit(value) ? "-0" : "0";
  if (magnitude >= 1000 && magnitude < 999999.5) {
    return FormatCount(std::llround(value));
  }
  if (magnitude >= 1e-3 && magnitude < 1000) return FormatDigits(value, 4);
  std::string text = fmt::format("{:.3e}", value);
  const std::size_t e = text.find('e');
  std::string mantissa = text.substr(0, e);
  mantissa.erase(mantissa.find_last_not_of('0') + 1);
  if (mantissa.ends_with('.')) mantissa.pop_back();
  return ShortExponent(mantissa + text.substr(e));
}

std::string FormatExact(double value) {
  if (!std::isfinite(value)) return NonFinite(value);
  return ShortExponent(fmt::format("{}", value));
}

std::string FormatRatio(double value) {
  const std::string text = FormatNumber(value);
  if (text == "1" && value > 1) return "just over 1";
  if (text == "1" && value < 1) return "just under 1";
  return text;
}

std::string FormatCount(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  if (digits.size() - first < 5) return digits;
  for (std::size_t i = digits.size() - 3; i > first; i -= std::min<std::size_t>(i - first, 3)) {
    digits.insert(i, ",");
  }
  return digits;
}

std::string Counted(std::int64_t count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", FormatCount(count), count == 1 ? singular : plural);
}

std::string SafeName(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, 80)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool kept = letter || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    name += kept ? c : '-';
  }
  name.erase(0, std::min(name.find_first_not_of(".-"), name.size()));
  return name.empty() ? "unnamed" : name;
}

}  // namespace attest::reports
