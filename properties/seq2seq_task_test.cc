// SPDX-License-Identifier: Apache-2.0
// The made-up translation task: its rules, read off the printed words by a parser of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/seq2seq/synthetic_task.h"

namespace attest {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// "noun12+pl" starts with "noun" and has the number 12; "ADJ4b.m" the number 4.
bool Is(const std::string& word, const std::string& kind) { return word.starts_with(kind); }
int NumberOf(const std::string& word) {
  return std::stoi(word.substr(word.find_first_of("0123456789")));
}

// A translator of its own for printed sentences, written from the description in the header. It
// returns the target's words with the position of the source word of each.
class Translator {
 public:
  using Word = std::pair<std::string, int>;

  Translator(const SyntheticTask& task, const std::string& source)
      : task_(task), words_(Split(source, ' ')) {}

  // Nothing if the source is not of the language.
  std::optional<std::vector<Word>> Translate() {
    std::vector<Word> out;
    while (true) {
      if (!TranslateClause(&out)) return std::nullopt;
      if (at_ == words_.size()) return out;
      if (!Here("conj")) return std::nullopt;
      out.emplace_back("CONJ" + std::to_string(task_.Conjunction(NumberOf(words_[at_]))), Next());
    }
  }

 private:
  bool Here(const std::string& kind) const { return at_ < words_.size() && Is(words_[at_], kind); }
  int Next() { return static_cast<int>(at_++); }

  // The number of the phrase, "sg" or "pl"; nothing if there is none here.
  std::optional<std::string> TranslatePhrase(std::vector<Word>* out) {
    if (!Here("det")) return std::nullopt;
    const int determiner = Next();
    std::vector<int> adjectives;
    while (Here("adj")) adjectives.push_back(Next());
    if (adjectives.size() > 2 || !Here("noun")) return std::nullopt;
    const int noun_at = Next();
    const auto word = [&](int i) { return words_[static_cast<std::size_t>(i)]; };
    const int noun = NumberOf(word(noun_at));
    const std::string number = word(noun_at).ends_with("+pl") ? "pl" : "sg";
    const std::string gender = task_.Gender(noun) == 1 ? "f" : "m";
    out->emplace_back(
        "DET" + std::to_string(NumberOf(word(determiner))) + "." + gender + "." + number,
        determiner);
    out->emplace_back("NOUN" + std::to_string(task_.Noun(noun)) + "." + number, noun_at);
    for (auto i = adjectives.rbegin(); i != adjectives.rend(); ++i) {
      const int adjective = NumberOf(word(*i));
      const bool second = adjective % 4 == 0 && task_.IsThing(noun);
      out->emplace_back(
          "ADJ" + std::to_string(task_.Adjective(adjective)) + (second ? "b." : ".") + gender, *i);
    }
    return number;
  }

  bool TranslateClause(std::vector<Word>* out) {
    const std::optional<std::string> number = TranslatePhrase(out);
    if (!number || !Here("verb")) return false;
    const int verb = NumberOf(words_[at_]);
    const int verb_at = Next();
    std::optional<Word> adverb;
    if (Here("adv")) {
      const int target = task_.Adverb(NumberOf(words_[at_]));
      adverb = Word{"ADV" + std::to_string(target), Next()};
    }
    const bool has_object = Here("det");
    if (has_object && !TranslatePhrase(out)) return false;
    if (adverb) out->push_back(*adverb);
    const bool second = verb % 5 == 0 && has_object;
    out->emplace_back("VERB" + std::to_string(task_.Verb(verb)) + (second ? "b." : ".") + *number,
                      verb_at);
    return true;
  }

  const SyntheticTask& task_;
  std::vector<std::string> words_;
  std::size_t at_ = 0;
};

TEST(SyntheticTask, FollowsItsGrammarLexiconAndAgreement) {
  const SyntheticTask task;
  int inside = 0;
  for (const int length : {3, 4, 5, 7, 10, 15, 20, 30, 40, 60}) {
    for (std::uint64_t index = 0; index < 400; ++index) {
      const StatusOr<SentencePair> pair = task.Draw(1, "test", index, length);
      ASSERT_TRUE(pair.ok()) << pair.status().message();
      ASSERT_EQ(pair->source.size(), static_cast<std::size_t>(length));
      const std::string source = task.source_vocabulary().Text(pair->source);
      const auto expected = Translator(task, source).Translate();
      ASSERT_TRUE(expected.has_value()) << source;
      std::string target;
      std::vector<int> alignment;
      for (const auto& [word, position] : *expected) {
        target += (target.empty() ? "" : " ") + word;
        alignment.push_back(position);
      }
      ASSERT_EQ(task.target_vocabulary().Text(pair->target), target) << source;
      ASSERT_EQ(pair->alignment, alignment) << source;
      ++inside;
    }
  }
  EXPECT_EQ(inside, 4000);
}

TEST(SyntheticTask, AlignmentIsAPermutation) {
  const SyntheticTask task;
  const StatusOr<std::vector<SentencePair>> pairs = task.DrawSet(2, "train", 0, 2000, 3, 30);
  ASSERT_TRUE(pairs.ok());
  std::set<std::size_t> lengths;
  for (const SentencePair& pair : *pairs) {
    ASSERT_EQ(pair.source.size(), pair.target.size());
    const std::set<int> positions(pair.alignment.begin(), pair.alignment.end());
    ASSERT_EQ(positions.size(), pair.source.size());
    ASSERT_EQ(*positions.begin(), 0);
    ASSERT_EQ(*positions.rbegin(), static_cast<int>(pair.source.size()) - 1);
    for (const int word : pair.source) ASSERT_GE(word, kFirstWord);
    for (const int word : pair.target) ASSERT_GE(word, kFirstWord);
    lengths.insert(pair.source.size());
  }
  EXPECT_EQ(lengths.size(), 28U);  // every length from 3 to 30
}

// One long move a clause: the verb goes over its adverb and object.
TEST(SyntheticTask, MovesWordsWithinPhrasesAndAcrossClauses) {
  const SyntheticTask task;
  const StatusOr<std::vector<SentencePair>> pairs = task.DrawSet(3, "train", 0, 1000, 20, 20);
  ASSERT_TRUE(pairs.ok());
  std::map<int, int> moves;
  int words = 0;
  for (const SentencePair& pair : *pairs) {
    for (std::size_t i = 0; i < pair.alignment.size(); ++i) {
      ++moves[std::abs(pair.alignment[i] - static_cast<int>(i))];
      ++words;
    }
  }
  EXPECT_GT(moves[0], words / 4);               // much stays
  EXPECT_GT(moves[1] + moves[2], words / 4);    // local
  EXPECT_GT(moves[4] + moves[5], words / 100);  // across an object
  EXPECT_LE(moves.rbegin()->first, 5);
}

TEST(SyntheticTask, IsTheSameForTheSameSeedAlone) {
  const SyntheticTask one;
  const SyntheticTask another;
  const auto words = [](const SyntheticTask& task, std::uint64_t seed, const char* set,
                        std::uint64_t index) {
    const StatusOr<SentencePair> pair = task.Draw(seed, set, index, 20);
    return task.source_vocabulary().Text(pair->source);
  };
  EXPECT_EQ(words(one, 1, "train", 5), words(another, 1, "train", 5));
  EXPECT_NE(words(one, 1, "train", 5), words(one, 2, "train", 5));
  EXPECT_NE(words(one, 1, "train", 5), words(one, 1, "test", 5));
  EXPECT_NE(words(one, 1, "train", 5), words(one, 1, "train", 6));
  // A set is its sentences, wherever it starts.
  const auto all = one.DrawSet(1, "train", 0, 10, 3, 30);
  const auto later = one.DrawSet(1, "train", 6, 4, 3, 30);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ((*all)[6 + i].source, (*later)[i].source);
}

// The very words, so that another compiler or machine is seen to draw others.
TEST(SyntheticTask, FirstSentence) {
  const SyntheticTask task;
  const StatusOr<SentencePair> pair = task.Draw(0, "test", 0, 12);
  EXPECT_EQ(task.source_vocabulary().Text(pair->source),
            "det0 noun6+pl verb3 adv1 det1 adj4 adj5 noun12+pl conj2 det2 noun4 verb8");
  EXPECT_EQ(task.target_vocabulary().Text(pair->target),
            "DET0.m.pl NOUN29.pl DET1.f.pl NOUN22.pl ADJ14.f ADJ11.f ADV3 VERB11.pl CONJ1 "
            "DET2.m.sg NOUN23.sg VERB4.sg");
}

// The shares of words in long sentences follow from the grammar: each class is drawn uniformly.
TEST(SyntheticTask, DrawsWordsOfAClassEquallyOften) {
  const SyntheticTask task;
  EXPECT_EQ(task.source_vocabulary().size(), kFirstWord + 109);
  EXPECT_EQ(task.target_vocabulary().size(), kFirstWord + 12 + 40 + 60 + 48 + 6 + 4);
  const StatusOr<std::vector<SentencePair>> pairs = task.DrawSet(4, "train", 0, 4000, 25, 30);
  ASSERT_TRUE(pairs.ok());
  std::map<std::string, std::map<int, double>> counts;  // class: number: how often
  std::map<std::string, double> totals;
  for (const SentencePair& pair : *pairs) {
    for (const int number : pair.source) {
      const std::string word(task.source_vocabulary().Word(number));
      const std::string kind = word.substr(0, word.find_first_of("0123456789"));
      ++counts[kind][NumberOf(word)];
      ++totals[kind];
    }
  }
  const std::map<std::string, int> sizes{{"det", 3},   {"adj", 16}, {"noun", 30},
                                         {"verb", 20}, {"adv", 6},  {"conj", 4}};
  for (const auto& [kind, size] : sizes) {
    ASSERT_EQ(counts[kind].size(), static_cast<std::size_t>(size)) << kind;
    const double expected = totals[kind] / size;
    double chi_squared = 0.0;
    for (const auto& [number, count] : counts[kind]) {
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    // Mean size - 1, deviation sqrt(2 (size - 1)); five of them above.
    EXPECT_LT(chi_squared, size - 1 + 5.0 * std::sqrt(2.0 * (size - 1))) << kind;
  }
  EXPECT_EQ(totals["det"], totals["noun"]);
  // A clause has 5/3 phrases, as many adjectives, 1 verb, 1/2 adverb; rejection shifts it a little.
  EXPECT_NEAR(totals["noun"] / totals["verb"], 5.0 / 3.0, 0.05);
  EXPECT_NEAR(totals["adj"] / totals["noun"], 1.0, 0.05);
  EXPECT_NEAR(totals["adv"] / totals["verb"], 0.5, 0.05);
}

TEST(SyntheticTask, RefusesLengthsThatNoSentenceHas) {
  const SyntheticTask task;
  EXPECT_EQ(task.Draw(0, "test", 0, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(task.Draw(0, "test", 0, -1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(task.DrawSet(0, "test", 0, 5, 2, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(task.DrawSet(0, "test", 0, 5, 9, 8).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(task.Draw(0, "test", 0, 100).ok());
}

TEST(Vocabulary, KeepsTheMostFrequentWords) {
  const std::vector<std::vector<std::string>> sentences{{"b", "a", "b"}, {"c", "a", "b", "d"}};
  const Vocabulary vocabulary = Vocabulary::OfMostFrequent(sentences, 3);
  EXPECT_EQ(vocabulary.size(), kFirstWord + 3);
  EXPECT_EQ(vocabulary.Number("b"), kFirstWord);
  EXPECT_EQ(vocabulary.Number("a"), kFirstWord + 1);
  EXPECT_EQ(vocabulary.Number("c"), kFirstWord + 2);  // as often as d, before it
  EXPECT_EQ(vocabulary.Number("d"), kUnknownWord);
  EXPECT_EQ(vocabulary.Word(kFirstWord + 1), "a");
  EXPECT_EQ(vocabulary.Word(1000), "<unk>");
  EXPECT_EQ(vocabulary.Word(-1), "<unk>");
  EXPECT_EQ(vocabulary.Text(std::vector<int>{kStartWord, kFirstWord, kEndWord}), "<s> b </s>");
  EXPECT_EQ(Vocabulary::OfMostFrequent(sentences, 100).size(), kFirstWord + 4);
}

}  // namespace
}  // namespace attest
