// SPDX-License-Identifier: Apache-2.0
// A made-up translation task: any length, exact alignment, as many fresh sentences as wanted.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "core/status.h"
#include "experiments/seq2seq/sentences.h"
#include "experiments/seq2seq/vocabulary.h"

namespace attest {

// The source language is SVO with adjectives before the noun, the target SOV with adjectives after
// it. A lexicon drawn from a fixed seed, the same for every run, gives the word of each word.
//
//   noun phrase:  Det Adj{0,1,2} N         ->  Det[gender, number] N Adj[gender], reversed
//   clause:       NP V [Adv] [NP]          ->  NP [NP] [Adv] V[number of the subject]
//   sentence:     clause (Conj clause)*    ->  the same, clause by clause
//
// Nouns stand in the singular or plural; the gender of a noun is a matter of the target lexicon.
// Every fifth verb has two translations: one in clauses with an object, one in clauses without.
// Every fourth adjective has two: one for things, one for living beings, by the noun's lexicon
// entry. So a word is moved within its phrase and across its clause, and to render it one must know
// the phrase's noun, the subject or the presence of an object.
//
// Printed, source words are det2, adj11, noun7, noun7+pl, verb13, adv5, conj3. Target words carry
// what they agree with, and the lexicon's numbers: DET2.f.pl, ADJ4.m, ADJ4b.m (second translation),
// NOUN21.pl, VERB8.sg, VERB8b.sg, ADV1, CONJ0.
class SyntheticTask {
 public:
  static constexpr int kDeterminers = 3;
  static constexpr int kAdjectives = 16;
  static constexpr int kNouns = 30;
  static constexpr int kVerbs = 20;
  static constexpr int kAdverbs = 6;
  static constexpr int kConjunctions = 4;
  static constexpr int kMostAdjectives = 2;  // of one noun
  static constexpr int kShortest = 3;        // words of the shortest sentence: Det N V

  SyntheticTask();

  const Vocabulary& source_vocabulary() const { return source_; }
  const Vocabulary& target_vocabulary() const { return target_; }

  // The gender of a noun (0 m, 1 f), whether it is a thing, and its number in the target language.
  int Gender(int noun) const { return genders_[static_cast<std::size_t>(noun)]; }
  bool IsThing(int noun) const { return things_[static_cast<std::size_t>(noun)] != 0; }
  // Lexicon entries: the target's number of a source adjective, noun, verb, adverb, conjunction.
  int Adjective(int i) const { return adjectives_[static_cast<std::size_t>(i)]; }
  int Noun(int i) const { return nouns_[static_cast<std::size_t>(i)]; }
  int Verb(int i) const { return verbs_[static_cast<std::size_t>(i)]; }
  int Adverb(int i) const { return adverbs_[static_cast<std::size_t>(i)]; }
  int Conjunction(int i) const { return conjunctions_[static_cast<std::size_t>(i)]; }
  static bool HasTwoTranslationsAsAdjective(int adjective) { return adjective % 4 == 0; }
  static bool HasTwoTranslationsAsVerb(int verb) { return verb % 5 == 0; }

  // Sentence `index` of the set named `set` under a seed: a pure function of its arguments, the
  // same on every machine. The source has exactly `length` words; the alignment names the source
  // word of every target word. Clauses are drawn until the length is met, by rejection, so that
  // every sentence of that length keeps its probability. InvalidArgument below kShortest.
  StatusOr<SentencePair> Draw(std::uint64_t seed, std::string_view set, std::uint64_t index,
                              int length) const;

  // `count` sentences with lengths drawn uniformly from [shortest, longest].
  StatusOr<std::vector<SentencePair>> DrawSet(std::uint64_t seed, std::string_view set,
                                              std::uint64_t first, std::uint64_t count,
                                              int shortest, int longest) const;

 private:
  class Writer;

  StatusOr<SentencePair> DrawFrom(const RandomStream& stream, std::uint64_t index,
                                  int length) const;

  Vocabulary source_;
  Vocabulary target_;
  std::vector<int> genders_, things_;
  std::vector<int> adjectives_, nouns_, verbs_, adverbs_, conjunctions_;
};

}  // namespace attest
