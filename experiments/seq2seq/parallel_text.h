// SPDX-License-Identifier: Apache-2.0
// Verses of the Bible in several translations, read at run time from Debian packages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace attest {

// Lower-cased words. Letters joined by apostrophes are one word, as are runs of digits; every other
// visible character is a word of its own, but quotation marks and square brackets are left out, for
// one translation has them and the other has not. Letters are those of the Latin and Greek scripts;
// bytes that are no UTF-8 are skipped.
std::vector<std::string> SplitWords(std::string_view utf8);

struct Verse {
  std::string book;  // "1 samuel", "revelation": lower case, numbers in digits
  int chapter = 0;
  int verse = 0;
  std::vector<std::string> words;
  // For each word the lexicon entry (Strong's number) of the Hebrew or Greek word it renders, ""
  // where the text does not say.
  std::vector<std::string> lexemes;

  // "1 samuel 3:7".
  std::string reference() const;
};

// The book of "I Samuel", "1 Samuel" or "Revelation of John" as above.
std::string BookName(std::string_view name);

// What mod2imp prints of a SWORD module: "$$$Genesis 1:1" lines, each before a verse in OSIS
// markup. Notes, titles and speakers are left out, tags are dropped, verse and chapter 0
// (introductions) and verses without words are skipped. Markup that ends too early ends the verse.
// InvalidArgument for a text without any verse.
StatusOr<std::vector<Verse>> ParseImp(std::string_view text);

// What the command bible of Debian's bible-kjv prints: "Genesis 1" before each chapter, and verses
// as "  1 In the beginning ...", which may go on in lines without a number.
StatusOr<std::vector<Verse>> ParseBiblePrint(std::string_view text);

struct VersePair {
  Verse source;
  Verse target;
};

// Verses that both have, in the order of `source`, unless one has more than `most_words` words or
// the lengths' ratio is outside 1/2 to 2: there the translations number verses differently.
std::vector<VersePair> JoinVerses(const std::vector<Verse>& source,
                                  const std::vector<Verse>& target, std::size_t most_words = 90);

enum class ParallelText {
  kKingJamesToWorldEnglish,    // English of 1611 to modern English
  kWorldEnglishToReinaValera,  // English to Spanish (1909)
};

// Reads the installed translations; all three texts are in the public domain. NotFound names the
// command that installs them (`make text`).
StatusOr<std::vector<VersePair>> ReadParallelText(ParallelText which);

}  // namespace attest
