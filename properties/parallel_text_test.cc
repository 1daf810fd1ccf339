// SPDX-License-Identifier: Apache-2.0
// Reading verses: small texts written here in the formats of mod2imp and bible, and broken ones.
#include "experiments/seq2seq/parallel_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "experiments/seq2seq/text_task.h"

namespace attest {
namespace {

using Words = std::vector<std::string>;

TEST(SplitWords, LowersLettersAndSplitsPunctuationOff) {
  EXPECT_EQ(
      SplitWords("The LORD's house, 30 cubits: high; and [so]."),
      (Words{"the", "lord's", "house", ",", "30", "cubits", ":", "high", ";", "and", "so", "."}));
  EXPECT_EQ(SplitWords("“God’s people’ said, ‘Go’—”"),
            (Words{"god's", "people", "said", ",", "go", "—"}));
  EXPECT_EQ(SplitWords("¡ÉL Niño! Ñ × ½"), (Words{"¡", "él", "niño", "!", "ñ", "×", "½"}));
  EXPECT_EQ(SplitWords(""), Words{});
  EXPECT_EQ(SplitWords(" '\" \t"), Words{});
}

TEST(SplitWords, SkipsWhatIsNoUtf8) {
  EXPECT_EQ(SplitWords("a\xFF\xC3 b\xE2\x80"), (Words{"a", "b"}));
  EXPECT_EQ(SplitWords(std::string("a\0b", 3)), (Words{"a", "b"}));
}

TEST(BookName, IsTheSameInAllTexts) {
  EXPECT_EQ(BookName("I Samuel"), "1 samuel");
  EXPECT_EQ(BookName("1 Samuel"), "1 samuel");
  EXPECT_EQ(BookName("III John"), "3 john");
  EXPECT_EQ(BookName("Revelation of John"), BookName("Revelation"));
  EXPECT_EQ(BookName("Isaiah"), "isaiah");
  EXPECT_EQ(BookName("Song of Solomon"), "song of solomon");
  EXPECT_EQ(BookName(""), "");
}

constexpr const char* kImp =
    "$$$[ Module Heading ]\n\n"
    "$$$Ruth 0:0\n<title>About Ruth</title> An introduction.\n"
    "$$$Ruth 1:0\n<chapter n=\"1\"/>A heading.\n"
    "$$$Ruth 1:1\n"
    "<w lemma=\"strong:H0001\">The dog</w><note place=\"foot\"><reference>1:1 </reference>or "
    "<w lemma=\"strong:H0009\">hound</w></note><w lemma=\"strong:H0002 strong:H0853\">saw</w> "
    "bread &amp; water.<lb/>\n<l sID=\"a\"/>It ran.\n"
    "$$$Ruth 1:2\n<title type=\"psalm\">A song.</title>\n"
    "$$$II Kings 3:4\r\nThey “ran”.\r\n";

TEST(ParseImp, StripsMarkupNotesTitlesAndIntroductions) {
  const StatusOr<std::vector<Verse>> verses = ParseImp(kImp);
  ASSERT_TRUE(verses.ok());
  ASSERT_EQ(verses->size(), 2U);
  const Verse& ruth = (*verses)[0];
  EXPECT_EQ(ruth.reference(), "ruth 1:1");
  EXPECT_EQ(ruth.words, (Words{"the", "dog", "saw", "bread", "&", "water", ".", "it", "ran", "."}));
  EXPECT_EQ(ruth.lexemes, (Words{"H0001", "H0001", "H0002", "", "", "", "", "", "", ""}));
  EXPECT_EQ((*verses)[1].reference(), "2 kings 3:4");
  EXPECT_EQ((*verses)[1].words, (Words{"they", "ran", "."}));
}

TEST(ParseImp, TakesWhatBrokenMarkupLeaves) {
  const auto words = [](const std::string& markup) {
    const StatusOr<std::vector<Verse>> verses = ParseImp("$$$Ruth 1:1\nfirst " + markup);
    EXPECT_TRUE(verses.ok());
    return verses.ok() ? (*verses)[0].words : Words{};
  };
  EXPECT_EQ(words("<w lemma=\"strong:H"), Words{"first"});
  EXPECT_EQ(words("<note>never closed <w>last</w>"), Words{"first"});
  EXPECT_EQ(words("</note></title> last"), (Words{"first", "last"}));
  EXPECT_EQ(words("<note/> last"), (Words{"first", "last"}));
  EXPECT_EQ(words("<note><note>a</note>b</note>last"), (Words{"first", "last"}));
  EXPECT_EQ(words("<> < > </> last"), (Words{"first", "last"}));
  EXPECT_EQ(words("a > b"), (Words{"first", "a", ">", "b"}));
  EXPECT_EQ(words("<w>no number</w> &unknown;"),
            (Words{"first", "no", "number", "&", "unknown", ";"}));
}

// Every beginning of a right text is read or refused, and no text is made up.
TEST(ParseImp, SurvivesEveryTruncation) {
  const std::string whole(kImp);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const StatusOr<std::vector<Verse>> verses = ParseImp(whole.substr(0, size));
    if (!verses.ok()) continue;
    for (const Verse& verse : *verses) {
      ASSERT_EQ(verse.words.size(), verse.lexemes.size());
      ASSERT_FALSE(verse.words.empty());
      ASSERT_EQ(std::count(verse.words.begin(), verse.words.end(), "hound"), 0) << size;
    }
  }
}

TEST(ParseImp, RefusesTextsWithoutVerses) {
  for (const char* text : {"", "\n", "words alone\n", "$$$", "$$$Ruth\nx", "$$$Ruth 1:x\nx",
                           "$$$ 1:1", "$$$Ruth 1:99999999999999999999\nx", "$$$Ruth 1:0\nx",
                           "$$$Ruth -1:1\nx", "$$$Ruth 1:1\n<w>"}) {
    const StatusOr<std::vector<Verse>> verses = ParseImp(text);
    EXPECT_EQ(verses.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseBiblePrint, ReadsChaptersVersesAndTheirSecondLines) {
  const StatusOr<std::vector<Verse>> verses = ParseBiblePrint(
      "\nRuth 1\n\n  1 The dog ran\nover the hill.\n  2 30 men\n  saw it.\n\n1 Samuel 2\n\n"
      "  10 He said, Go.\n");
  ASSERT_TRUE(verses.ok());
  ASSERT_EQ(verses->size(), 3U);
  EXPECT_EQ((*verses)[0].reference(), "ruth 1:1");
  EXPECT_EQ((*verses)[0].words, (Words{"the", "dog", "ran", "over", "the", "hill", "."}));
  EXPECT_EQ((*verses)[1].reference(), "ruth 1:2");
  EXPECT_EQ((*verses)[1].words, (Words{"30", "men", "saw", "it", "."}));
  EXPECT_EQ((*verses)[2].reference(), "1 samuel 2:10");
  EXPECT_EQ((*verses)[2].lexemes.size(), (*verses)[2].words.size());
}

TEST(ParseBiblePrint, RefusesTextsWithoutVerses) {
  for (const char* text : {"", "\n\n", "Ruth 1\n", "  1 a verse of no book\n", "Ruth 1\n  1\n",
                           "  99999999999 x\n", "bible: not found\n"}) {
    EXPECT_EQ(ParseBiblePrint(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

Verse MakeVerse(const std::string& book, int number, int words) {
  Verse verse{book, 1, number, {}, {}};
  for (int i = 0; i < words; ++i) verse.words.push_back(book + std::to_string(i));
  verse.lexemes.resize(verse.words.size());
  return verse;
}

TEST(JoinVerses, JoinsOnTheReferenceAndDropsWhatDoesNotFit) {
  const std::vector<Verse> source{
      MakeVerse("a", 1, 4),  MakeVerse("a", 2, 4),  MakeVerse("a", 3, 4), MakeVerse("a", 4, 4),
      MakeVerse("a", 5, 90), MakeVerse("a", 6, 91), MakeVerse("a", 7, 90)};
  const std::vector<Verse> target{
      MakeVerse("a", 7, 91), MakeVerse("a", 1, 2),  MakeVerse("a", 2, 1),  MakeVerse("a", 3, 8),
      MakeVerse("a", 4, 9),  MakeVerse("a", 5, 90), MakeVerse("a", 6, 90), MakeVerse("b", 1, 4)};
  std::vector<int> joined;
  for (const VersePair& pair : JoinVerses(source, target)) {
    EXPECT_EQ(pair.source.reference(), pair.target.reference());
    joined.push_back(pair.source.verse);
  }
  EXPECT_EQ(joined, (std::vector<int>{1, 3, 5}));
}

TEST(MakeTextTask, HoldsWholeBooksOut) {
  std::vector<VersePair> pairs;
  for (int i = 1; i <= 5; ++i) {
    pairs.push_back({MakeVerse("ruth", i, 10 * i), MakeVerse("ruth", i, 11 * i)});
    pairs.push_back({MakeVerse("acts", i, 10 * i), MakeVerse("acts", i, 11 * i)});
  }
  const TextTask task = MakeTextTask(
      pairs, {.vocabulary = 20, .longest_training_source = 40, .longest_training_target = 43});
  EXPECT_EQ(task.train.size(), 3U);  // 10, 20 and 30 words; 40 have 44 in the target
  EXPECT_EQ(task.test.size(), 5U);
  EXPECT_EQ(task.source_vocabulary.size(), kFirstWord + 20);
  EXPECT_EQ(task.source_known.value(), 50.0 / 60.0);
  EXPECT_EQ(task.source_vocabulary.Number("acts1"), kUnknownWord);
  for (const TestSentence& sentence : task.test) {
    EXPECT_EQ(std::count(sentence.pair.source.begin(), sentence.pair.source.end(), kUnknownWord),
              static_cast<long>(sentence.pair.source.size()));
  }
  EXPECT_EQ(OfLengths(task, 20, 40, 10).size(), 3U);
  const std::vector<const TestSentence*> some = OfLengths(task, 1, 90, 2);
  ASSERT_EQ(some.size(), 2U);
  EXPECT_EQ(some[0]->pair.source.size(), 10U);
  EXPECT_EQ(some[1]->pair.source.size(), 30U);
  EXPECT_TRUE(OfLengths(task, 60, 90, 10).empty());
}

TEST(MakeTextTask, LinksWordsOfOneLexiconEntry) {
  Verse source{"acts", 1, 1, {"a", "b", "c", "d", "e", "f"}, {"G1", "G2", "G2", "G3", "", "G3"}};
  Verse target{"acts", 1, 1, {"x", "y", "z", "w"}, {"G2", "G1", "G3", ""}};
  const TextTask task = MakeTextTask(std::vector<VersePair>{{source, target}});
  EXPECT_EQ(task.test[0].sure_links, (Links{{0, 1}}));
  EXPECT_EQ(task.test[0].possible_links, (Links{{1, 0}, {2, 0}}));  // G3 has two runs
}

// Where the packages are installed their counts are known; where not, the message says what to do.
TEST(ReadParallelText, GivesThousandsOfVersesOrSaysHowToInstallThem) {
  for (const ParallelText which :
       {ParallelText::kKingJamesToWorldEnglish, ParallelText::kWorldEnglishToReinaValera}) {
    const StatusOr<std::vector<VersePair>> pairs = ReadParallelText(which);
    if (!pairs.ok()) {
      EXPECT_EQ(pairs.status().code(), StatusCode::kNotFound);
      EXPECT_NE(pairs.status().message().find("make text"), std::string::npos);
      EXPECT_EQ(pairs.status().message().find('\n'), std::string::npos);
      continue;
    }
    EXPECT_GT(pairs->size(), 30500U);
    EXPECT_LT(pairs->size(), 31103U);
    const TextTask task = MakeTextTask(*pairs);
    EXPECT_GT(task.train.size(), 19000U);
    EXPECT_GT(task.test.size(), 3000U);
  }
}

}  // namespace
}  // namespace attest
