// SPDX-License-Identifier: Apache-2.0
// Text and numbers as reports print them: escaped for HTML and Markdown, rounded for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attest::reports {

// What stands for a value that is not there.
inline constexpr std::string_view kDash = "\u2013";

// `text` as valid UTF-8 without control characters (other than tab and newline) and without
// characters that reorder text; each offending byte or character becomes U+FFFD.
std::string CleanText(std::string_view text);

// Clean text for element content and for quoted attributes.
std::string EscapeHtml(std::string_view text);

// Clean text on one line in which no character has a meaning to Markdown, for paragraphs, list
// items and table cells.
std::string EscapeMarkdown(std::string_view text);

// A Markdown code span on one line; not for table cells.
std::string MarkdownCode(std::string_view text);

// At most `limit` bytes of `text` (cut between characters), with an ellipsis if it was longer.
std::string Shorten(std::string_view text, std::size_t limit);

// Four significant digits, all digits of the integer part; scientific below 1e-3 and from 1e6 on;
// "NaN", "Infinity", "-Infinity".
std::string FormatNumber(double value);

// `digits` significant digits as printf's %g, with a short exponent: 1e-5, not 1e-05.
std::string FormatDigits(double value, int digits);

// The shortest decimal that reads back as `value`.
std::string FormatExact(double value);

// An error divided by its bound: as FormatNumber, but what exceeds 1 never prints as 1.
std::string FormatRatio(double value);

// All digits, in groups of three from 10,000 on.
std::string FormatCount(std::int64_t value);

// `count` and the noun in singular or plural: "1 case", "2 cases".
std::string Counted(std::int64_t count, std::string_view singular, std::string_view plural);

// `text` reduced to letters, digits, '_', '-' and '.', not beginning with '.' or '-', at most 80
// bytes: safe as a file name, in a URL and as an HTML id. Never empty.
std::string SafeName(std::string_view text);

}  // namespace attest::reports
