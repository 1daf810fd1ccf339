// SPDX-License-Identifier: Apache-2.0
// BLEU against values published with other implementations.
#include "experiments/seq2seq/bleu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "experiments/seq2seq/sentences.h"
#include "experiments/seq2seq/vocabulary.h"

namespace attest {
namespace {

// Numbers of the words between blanks, the same for the same word in all sentences of a test.
class Words {
 public:
  std::vector<int> operator()(const std::string& text) {
    std::istringstream stream(text);
    std::vector<int> numbers;
    for (std::string word; stream >> word;) numbers.push_back(vocabulary_.Add(word));
    return numbers;
  }

 private:
  Vocabulary vocabulary_;
};

// The example of sacreBLEU's README; its tests have the scores for both tokenisations.
TEST(Bleu, IsWhatSacrebleuGivesForItsExample) {
  Words words;
  BleuCounts blanks;
  blanks.Add(words("The dog bit the man."),
             std::vector{words("The dog bit the man."), words("The dog had bit the man.")});
  blanks.Add(words("It wasn't surprising."),
             std::vector{words("It was not unexpected."), words("No one was surprised.")});
  blanks.Add(words("The man had just bitten him."),
             std::vector{words("The man bit him first."), words("The man had bitten the dog.")});
  EXPECT_NEAR(blanks.Score().score, 49.1919566, 1e-6);

  BleuCounts split;
  split.Add(words("The dog bit the man ."),
            std::vector{words("The dog bit the man ."), words("The dog had bit the man .")});
  split.Add(words("It wasn't surprising ."),
            std::vector{words("It was not unexpected ."), words("No one was surprised .")});
  split.Add(words("The man had just bitten him ."),
            std::vector{words("The man bit him first ."), words("The man had bitten the dog .")});
  for (const BleuSmoothing smoothing : {BleuSmoothing::kNone, BleuSmoothing::kExponential}) {
    const BleuScore score = split.Score(smoothing);
    EXPECT_NEAR(score.score, 48.530827, 1e-6);
    EXPECT_NEAR(score.precisions[0], 82.4, 0.05);
    EXPECT_NEAR(score.precisions[1], 50.0, 0.05);
    EXPECT_NEAR(score.precisions[2], 45.5, 0.05);
    EXPECT_NEAR(score.precisions[3], 37.5, 0.05);
    EXPECT_NEAR(score.brevity_penalty, 0.943, 0.0005);
    EXPECT_EQ(score.hypothesis_length, 17);
    EXPECT_EQ(score.reference_length, 18);
  }
}

// Another case of sacreBLEU's tests: a score from counts alone.
TEST(Bleu, IsWhatSacrebleuGivesForCounts) {
  const BleuCounts counts{.matches = {9, 7, 5, 3},
                          .totals = {10, 8, 6, 4},
                          .hypothesis_length = 11,
                          .reference_length = 11};
  EXPECT_NEAR(counts.Score().score, 83.75922397, 1e-8);
  const BleuCounts no_fours{.matches = {6, 5, 4, 0},
                            .totals = {6, 5, 4, 3},
                            .hypothesis_length = 6,
                            .reference_length = 6};
  EXPECT_EQ(no_fours.Score().score, 0.0);
}

// The documentation of NLTK's corpus_bleu and sentence_bleu, printed to four digits.
TEST(Bleu, IsWhatNltkDocuments) {
  Words words;
  const std::vector<int> guide = words(
      "It is a guide to action which ensures that the military always obeys the commands of the "
      "party");
  const std::vector references{
      words("It is a guide to action that ensures that the military will forever heed Party "
            "commands"),
      words("It is the guiding principle which guarantees the military forces always being under "
            "the command of the Party"),
      words("It is the practical guide for the army always to heed the directions of the party")};
  BleuCounts one;
  one.Add(guide, references);
  EXPECT_NEAR(one.Score().score, 50.45, 0.01);

  BleuCounts two = one;
  BleuCounts second;
  second.Add(words("he read the book because he was interested in world history"),
             words("he was interested in world history because he read the book"));
  two += second;
  EXPECT_NEAR(two.Score().score, 59.20, 0.01);
}

// Counts from sacreBLEU's tests; the score by hand from the definition of the smoothing, where the
// first precision of 0 is that of half a match.
TEST(Bleu, HalvesTheMatchesThatAreMissing) {
  Words words;
  BleuCounts counts;
  counts.Add(words("am I am a character sequence"), words("I am a symbol string sequence a a"));
  EXPECT_EQ(counts.matches, (std::array<std::int64_t, 4>{4, 2, 1, 0}));
  EXPECT_EQ(counts.totals, (std::array<std::int64_t, 4>{6, 5, 4, 3}));
  EXPECT_EQ(counts.Score().score, 0.0);
  const double product = (4.0 / 6.0) * (2.0 / 5.0) * (1.0 / 4.0) * (0.5 / 3.0);
  EXPECT_NEAR(counts.Score(BleuSmoothing::kExponential).score,
              100.0 * std::exp(1.0 - 8.0 / 6.0) * std::pow(product, 0.25), 1e-9);

  BleuCounts unigrams;
  unigrams.Add(words("b a d c"), words("a b c d"));
  const double smoothed = (4.0 / 4.0) * (0.5 / 3.0) * (0.25 / 2.0) * (0.125 / 1.0);
  EXPECT_NEAR(unigrams.Score(BleuSmoothing::kExponential).score, 100.0 * std::pow(smoothed, 0.25),
              1e-9);
}

// The example of Papineni et al. 2002, section 2.1: a modified unigram precision of 2/7.
TEST(Bleu, ClipsCountsByTheReferences) {
  Words words;
  BleuCounts counts;
  counts.Add(words("the the the the the the the"),
             std::vector{words("the cat is on the mat"), words("there is a cat on the mat")});
  EXPECT_EQ(counts.matches[0], 2);
  EXPECT_EQ(counts.totals[0], 7);
  EXPECT_EQ(counts.matches[1], 0);
}

// The closest length, the shorter one of two at the same distance.
TEST(Bleu, TakesTheClosestReferencesLength) {
  Words words;
  BleuCounts counts;
  counts.Add(words("a b c d"), std::vector{words("a b c d e f"), words("a b"), words("a b c d e")});
  EXPECT_EQ(counts.reference_length, 5);
  counts.Add(words("a b c d"), std::vector{words("a b c d e"), words("a b c")});
  EXPECT_EQ(counts.reference_length, 5 + 3);
}

TEST(Bleu, OfTheReferenceIsAHundred) {
  Words words;
  const std::vector<int> sentence = words("a b c d e");
  BleuCounts counts;
  counts.Add(sentence, sentence);
  EXPECT_DOUBLE_EQ(counts.Score().score, 100.0);
  // One word fewer: the precisions stay, the penalty is e^(1 - 5/4).
  BleuCounts shorter;
  shorter.Add(words("a b c d"), sentence);
  EXPECT_NEAR(shorter.Score().score, 100.0 * std::exp(-0.25), 1e-9);
  // One word more: no bonus.
  BleuCounts longer;
  longer.Add(words("a b c d e f"), sentence);
  EXPECT_EQ(longer.Score().brevity_penalty, 1.0);
}

TEST(Bleu, UnknownWordsMatchNothing) {
  BleuCounts counts;
  const std::vector<int> sentence{4, 5, kUnknownWord, 6, 7, 8, 9};
  counts.Add(sentence, sentence);
  EXPECT_EQ(counts.matches, (std::array<std::int64_t, 4>{6, 4, 2, 1}));
  EXPECT_EQ(counts.totals, (std::array<std::int64_t, 4>{7, 6, 5, 4}));
}

TEST(Bleu, OfNothingIsZero) {
  EXPECT_EQ(BleuCounts{}.Score().score, 0.0);
  BleuCounts counts;
  counts.Add({}, std::vector<int>{4, 5});
  EXPECT_EQ(counts.Score(BleuSmoothing::kExponential).score, 0.0);
  counts.Add(std::vector<int>{4, 5}, std::span<const std::vector<int>>());
  EXPECT_EQ(counts.Score(BleuSmoothing::kExponential).score, 0.0);
  EXPECT_EQ(counts.reference_length, 2);
}

}  // namespace
}  // namespace attest
