// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/parallel_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

namespace attest {
namespace {

bool IsDigit(std::uint32_t c) { return c >= '0' && c <= '9'; }

// Latin with its extensions, Greek with its accents; neither the signs of multiplication and
// division nor the two ordinal marks.
bool IsLetter(std::uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= 0xC0 && c <= 0x24F && c != 0xD7 && c != 0xF7) || (c >= 0x370 && c <= 0x3FF) ||
         (c >= 0x1F00 && c <= 0x1FFF);
}

std::uint32_t LowerCase(std::uint32_t c) {
  const bool upper = (c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7);
  return upper ? c + 0x20 : c;
}

constexpr std::uint32_t kApostrophe = '\'';
constexpr std::uint32_t kRightQuote = 0x2019;  // also an apostrophe

bool IsLeftOut(std::uint32_t c) {
  return c <= ' ' || (c >= 0x7F && c <= 0xA0) || c == '"' || c == '[' || c == ']' ||
         c == kApostrophe || c == 0xAB || c == 0xBB || (c >= 0x2018 && c <= 0x201F) || c == 0xFEFF;
}

std::vector<std::uint32_t> DecodeUtf8(std::string_view text) {
  std::vector<std::uint32_t> points;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80 ? 0 : lead < 0xC2 ? -1 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (more < 0 || lead > 0xF4) continue;
    std::uint32_t point = more == 0 ? lead : lead & (0x3FU >> more);
    int read = 0;
    while (read < more && i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) {
      point = (point << 6U) | (static_cast<unsigned char>(text[i++]) & 0x3FU);
      ++read;
    }
    if (read == more) points.push_back(point);
  }
  return points;
}

void AppendUtf8(std::uint32_t point, std::string* text) {
  const auto byte = [&](std::uint32_t value) { text->push_back(static_cast<char>(value)); };
  if (point < 0x80) {
    byte(point);
  } else if (point < 0x800) {
    byte(0xC0 | (point >> 6U));
    byte(0x80 | (point & 0x3FU));
  } else if (point < 0x10000) {
    byte(0xE0 | (point >> 12U));
    byte(0x80 | ((point >> 6U) & 0x3FU));
    byte(0x80 | (point & 0x3FU));
  } else {
    byte(0xF0 | (point >> 18U));
    byte(0x80 | ((point >> 12U) & 0x3FU));
    byte(0x80 | ((point >> 6U) & 0x3FU));
    byte(0x80 | (point & 0x3FU));
  }
}

std::optional<int> ParseNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// The line up to the next line feed, which is dropped from the text.
std::string_view TakeLine(std::string_view* text) {
  const std::size_t end = text->find('\n');
  std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// "Genesis 1:1" taken apart; nothing for headings.
std::optional<Verse> ParseReference(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::size_t blank = text.rfind(' ');
  if (colon == std::string_view::npos || blank == std::string_view::npos || blank > colon) {
    return std::nullopt;
  }
  const std::optional<int> chapter = ParseNumber(text.substr(blank + 1, colon - blank - 1));
  const std::optional<int> number = ParseNumber(text.substr(colon + 1));
  if (!chapter || !number) return std::nullopt;
  Verse verse;
  verse.book = BookName(text.substr(0, blank));
  verse.chapter = *chapter;
  verse.verse = *number;
  return verse;
}

void AddWords(std::string_view text, const std::string& lexeme, Verse* verse) {
  for (std::string& word : SplitWords(text)) {
    verse->words.push_back(std::move(word));
    verse->lexemes.push_back(lexeme);
  }
}

// The five entities of XML; others stay as they are.
std::string Unescape(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
      {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}}};
  std::string out;
  while (!text.empty()) {
    bool found = false;
    for (const auto& [entity, character] : kEntities) {
      if (!text.starts_with(entity)) continue;
      out += character;
      text.remove_prefix(entity.size());
      found = true;
      break;
    }
    if (found) continue;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

// The first Strong's number of a tag like <w lemma="strong:H7225 strong:H0853">.
std::string LexemeOf(std::string_view tag) {
  const std::size_t at = tag.find("strong:");
  if (at == std::string_view::npos) return "";
  tag.remove_prefix(at + 7);
  return std::string(tag.substr(0, tag.find_first_of("\" '")));
}

// Words of OSIS markup.
void AddMarkup(std::string_view markup, Verse* verse) {
  int left_out = 0;  // depth of elements whose text is no part of the verse
  std::string lexeme;
  while (!markup.empty()) {
    const std::size_t tag_at = markup.find('<');
    if (left_out == 0) AddWords(Unescape(markup.substr(0, tag_at)), lexeme, verse);
    if (tag_at == std::string_view::npos) return;
    const std::size_t tag_end = markup.find('>', tag_at);
    if (tag_end == std::string_view::npos) return;
    std::string_view tag = markup.substr(tag_at + 1, tag_end - tag_at - 1);
    markup.remove_prefix(tag_end + 1);
    const bool closes = tag.starts_with('/');
    if (closes) tag.remove_prefix(1);
    const bool is_empty = tag.ends_with('/');
    const std::string_view name = tag.substr(0, tag.find_first_of(" /"));
    if (name == "w") lexeme = closes || is_empty ? "" : LexemeOf(tag);
    if ((name == "note" || name == "title" || name == "speaker") && !is_empty) {
      if (!closes) ++left_out;
      if (closes && left_out > 0) --left_out;
    }
  }
}

StatusOr<std::vector<Verse>> NoneIsAnError(std::vector<Verse> verses, std::string_view text,
                                           const char* format) {
  if (!verses.empty()) return verses;
  return InvalidArgument(fmt::format("no verse in {} bytes of {}", text.size(), format));
}

}  // namespace

std::vector<std::string> SplitWords(std::string_view utf8) {
  const std::vector<std::uint32_t> points = DecodeUtf8(utf8);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < points.size();) {
    if (IsLeftOut(points[i])) {
      ++i;
      continue;
    }
    std::string word;
    if (IsLetter(points[i])) {
      while (i < points.size() && IsLetter(points[i])) {
        AppendUtf8(LowerCase(points[i++]), &word);
        const bool joined = i + 1 < points.size() && IsLetter(points[i + 1]) &&
                            (points[i] == kApostrophe || points[i] == kRightQuote);
        if (joined) {
          word += '\'';
          ++i;
        }
      }
    } else if (IsDigit(points[i])) {
      while (i < points.size() && IsDigit(points[i])) AppendUtf8(points[i++], &word);
    } else {
      AppendUtf8(points[i++], &word);
    }
    words.push_back(std::move(word));
  }
  return words;
}

std::string Verse::reference() const { return fmt::format("{} {}:{}", book, chapter, verse); }

std::string BookName(std::string_view name) {
  std::string number;
  const std::size_t blank = name.find(' ');
  if (blank != std::string_view::npos && blank <= 3 &&
      name.find_first_not_of('I') == blank) {  // I, II or III
    number = fmt::format("{} ", blank);
    name.remove_prefix(blank + 1);
  }
  if (const std::size_t of = name.find(" of John"); of != std::string_view::npos) {
    name = name.substr(0, of);
  }
  for (const char c : name) number += static_cast<char>(LowerCase(static_cast<unsigned char>(c)));
  return number;
}

StatusOr<std::vector<Verse>> ParseImp(std::string_view text) {
  std::vector<Verse> verses;
  std::optional<Verse> current;
  std::string markup;
  const auto finish = [&] {
    if (current && current->chapter > 0 && current->verse > 0) {
      AddMarkup(markup, &*current);
      if (!current->words.empty()) verses.push_back(*std::move(current));
    }
    markup.clear();
  };
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = TakeLine(&rest);
    if (line.starts_with("$$$")) {
      finish();
      current = ParseReference(line.substr(3));
    } else {
      markup += line;
      markup += ' ';
    }
  }
  finish();
  return NoneIsAnError(std::move(verses), text, "imp");
}

StatusOr<std::vector<Verse>> ParseBiblePrint(std::string_view text) {
  std::vector<Verse> verses;
  std::string book;
  int chapter = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = TakeLine(&rest);
    const std::size_t start = line.find_first_not_of(' ');
    if (start == std::string_view::npos) continue;
    if (start == 0) {
      // A chapter's heading, "1 Samuel 3".
      const std::size_t blank = line.rfind(' ');
      const std::optional<int> number =
          blank == std::string_view::npos ? std::nullopt : ParseNumber(line.substr(blank + 1));
      if (number) {
        book = BookName(line.substr(0, blank));
        chapter = *number;
        continue;
      }
    }
    line.remove_prefix(start);
    const std::size_t blank = line.find(' ');
    const std::optional<int> number = ParseNumber(line.substr(0, blank));
    if (number && blank != std::string_view::npos && start > 0 && !book.empty()) {
      Verse verse;
      verse.book = book;
      verse.chapter = chapter;
      verse.verse = *number;
      AddWords(line.substr(blank), "", &verse);
      verses.push_back(std::move(verse));
    } else if (!verses.empty()) {
      AddWords(line, "", &verses.back());
    }
  }
  std::erase_if(verses, [](const Verse& verse) { return verse.words.empty(); });
  return NoneIsAnError(std::move(verses), text, "the print of bible");
}

std::vector<VersePair> JoinVerses(const std::vector<Verse>& source,
                                  const std::vector<Verse>& target, std::size_t most_words) {
  std::map<std::string, const Verse*> by_reference;
  for (const Verse& verse : target) by_reference.emplace(verse.reference(), &verse);
  std::vector<VersePair> pairs;
  for (const Verse& verse : source) {
    const auto other = by_reference.find(verse.reference());
    if (other == by_reference.end()) continue;
    const std::size_t m = verse.words.size();
    const std::size_t n = other->second->words.size();
    const bool fits = m <= most_words && n <= most_words && m <= 2 * n && n <= 2 * m;
    if (fits) pairs.push_back({verse, *other->second});
  }
  return pairs;
}

}  // namespace attest
