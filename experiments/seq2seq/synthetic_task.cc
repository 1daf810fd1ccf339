// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/synthetic_task.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <string>
#include <utility>

namespace attest {
namespace {

// Decides the lexicon.
constexpr std::uint64_t kLexiconSeed = 12345;

// Random numbers one after the other. Sentence i has those from i * kDrawsPerSentence on; sentences
// of 100 words need a few thousand on average.
constexpr std::uint64_t kDrawsPerSentence = std::uint64_t{1} << 24;

class Draws {
 public:
  Draws(const RandomStream& stream, std::uint64_t first) : stream_(stream), next_(first) {}
  int Below(int bound) {
    return static_cast<int>(stream_.Below(next_++, static_cast<std::uint64_t>(bound)));
  }
  std::uint64_t next() const { return next_; }

 private:
  const RandomStream& stream_;
  std::uint64_t next_;
};

std::vector<int> Permutation(int size, Draws* draws) {
  std::vector<int> permutation(static_cast<std::size_t>(size));
  std::iota(permutation.begin(), permutation.end(), 0);
  for (std::size_t i = permutation.size() - 1; i > 0; --i) {
    const int j = draws->Below(static_cast<int>(i) + 1);
    std::swap(permutation[i], permutation[static_cast<std::size_t>(j)]);
  }
  return permutation;
}

// Half of the nouns, in drawn places.
std::vector<int> Half(int size, Draws* draws) {
  std::vector<int> half = Permutation(size, draws);
  for (int& place : half) place = place < size / 2 ? 1 : 0;
  return half;
}

constexpr std::array<const char*, 2> kGenders{"m", "f"};
constexpr std::array<const char*, 2> kNumbers{"sg", "pl"};

std::string SourceNoun(int noun, int number) {
  return fmt::format("noun{}{}", noun, number == 1 ? "+pl" : "");
}
std::string TargetDeterminer(int determiner, int gender, int number) {
  return fmt::format("DET{}.{}.{}", determiner, kGenders[static_cast<std::size_t>(gender)],
                     kNumbers[static_cast<std::size_t>(number)]);
}
std::string TargetAdjective(int adjective, bool second, int gender) {
  return fmt::format("ADJ{}{}.{}", adjective, second ? "b" : "",
                     kGenders[static_cast<std::size_t>(gender)]);
}
std::string TargetNoun(int noun, int number) {
  return fmt::format("NOUN{}.{}", noun, kNumbers[static_cast<std::size_t>(number)]);
}
std::string TargetVerb(int verb, bool second, int number) {
  return fmt::format("VERB{}{}.{}", verb, second ? "b" : "",
                     kNumbers[static_cast<std::size_t>(number)]);
}

// A clause as drawn, before it is put into words.
struct Phrase {
  int determiner = 0;
  int noun = 0;
  int number = 0;  // 0 singular, 1 plural
  std::array<int, SyntheticTask::kMostAdjectives> adjectives{};
  int adjective_count = 0;

  int length() const { return 2 + adjective_count; }
};

struct Clause {
  Phrase subject;
  int verb = 0;
  bool has_adverb = false;
  int adverb = 0;
  bool has_object = false;
  Phrase object;
  int conjunction = 0;  // before it; none before the first clause

  int length() const {
    return subject.length() + 1 + (has_adverb ? 1 : 0) + (has_object ? object.length() : 0);
  }
};

Phrase DrawPhrase(Draws* draws) {
  Phrase phrase;
  phrase.determiner = draws->Below(SyntheticTask::kDeterminers);
  phrase.noun = draws->Below(SyntheticTask::kNouns);
  phrase.number = draws->Below(2);
  phrase.adjective_count = draws->Below(SyntheticTask::kMostAdjectives + 1);
  for (int& adjective : phrase.adjectives) adjective = draws->Below(SyntheticTask::kAdjectives);
  return phrase;
}

Clause DrawClause(Draws* draws) {
  Clause clause;
  clause.conjunction = draws->Below(SyntheticTask::kConjunctions);
  clause.subject = DrawPhrase(draws);
  clause.verb = draws->Below(SyntheticTask::kVerbs);
  clause.has_adverb = draws->Below(2) == 0;
  clause.adverb = draws->Below(SyntheticTask::kAdverbs);
  clause.has_object = draws->Below(3) != 0;
  if (clause.has_object) clause.object = DrawPhrase(draws);
  return clause;
}

}  // namespace

// Puts clauses into words of both languages.
class SyntheticTask::Writer {
 public:
  explicit Writer(const SyntheticTask& task) : task_(task) {}

  SentencePair Write(const std::vector<Clause>& clauses) {
    for (std::size_t i = 0; i < clauses.size(); ++i) {
      if (i > 0) WriteConjunction(clauses[i].conjunction);
      WriteClause(clauses[i]);
    }
    return std::move(pair_);
  }

 private:
  void WriteConjunction(int conjunction) {
    Put(fmt::format("CONJ{}", task_.Conjunction(conjunction)),
        Read(fmt::format("conj{}", conjunction)));
  }

  void WriteClause(const Clause& clause) {
    WritePhrase(clause.subject);
    const int verb_at = Read(fmt::format("verb{}", clause.verb));
    const int adverb_at = clause.has_adverb ? Read(fmt::format("adv{}", clause.adverb)) : -1;
    if (clause.has_object) WritePhrase(clause.object);
    if (clause.has_adverb) Put(fmt::format("ADV{}", task_.Adverb(clause.adverb)), adverb_at);
    const bool second = HasTwoTranslationsAsVerb(clause.verb) && clause.has_object;
    Put(TargetVerb(task_.Verb(clause.verb), second, clause.subject.number), verb_at);
  }

  void WritePhrase(const Phrase& phrase) {
    const int gender = task_.Gender(phrase.noun);
    const int at = Read(fmt::format("det{}", phrase.determiner));
    for (int i = 0; i < phrase.adjective_count; ++i) {
      Read(fmt::format("adj{}", phrase.adjectives[static_cast<std::size_t>(i)]));
    }
    const int noun_at = Read(SourceNoun(phrase.noun, phrase.number));
    Put(TargetDeterminer(phrase.determiner, gender, phrase.number), at);
    Put(TargetNoun(task_.Noun(phrase.noun), phrase.number), noun_at);
    for (int i = phrase.adjective_count - 1; i >= 0; --i) {
      const int adjective = phrase.adjectives[static_cast<std::size_t>(i)];
      const bool second = HasTwoTranslationsAsAdjective(adjective) && task_.IsThing(phrase.noun);
      Put(TargetAdjective(task_.Adjective(adjective), second, gender), at + 1 + i);
    }
  }

  // The position of the word, which is added to the source.
  int Read(const std::string& word) {
    pair_.source.push_back(task_.source_.Number(word));
    return static_cast<int>(pair_.source.size()) - 1;
  }

  void Put(const std::string& word, int position) {
    pair_.target.push_back(task_.target_.Number(word));
    pair_.alignment.push_back(position);
  }

  const SyntheticTask& task_;
  SentencePair pair_;
};

SyntheticTask::SyntheticTask() {
  const RandomStream stream(kLexiconSeed, "seq2seq", "lexicon");
  Draws draws(stream, 0);
  adjectives_ = Permutation(kAdjectives, &draws);
  nouns_ = Permutation(kNouns, &draws);
  verbs_ = Permutation(kVerbs, &draws);
  adverbs_ = Permutation(kAdverbs, &draws);
  conjunctions_ = Permutation(kConjunctions, &draws);
  genders_ = Half(kNouns, &draws);
  things_ = Half(kNouns, &draws);

  for (int i = 0; i < kDeterminers; ++i) {
    source_.Add(fmt::format("det{}", i));
    for (const int gender : {0, 1}) {
      for (const int number : {0, 1}) target_.Add(TargetDeterminer(i, gender, number));
    }
  }
  for (int i = 0; i < kAdjectives; ++i) {
    source_.Add(fmt::format("adj{}", i));
    for (const int gender : {0, 1}) {
      target_.Add(TargetAdjective(Adjective(i), false, gender));
      if (HasTwoTranslationsAsAdjective(i))
        target_.Add(TargetAdjective(Adjective(i), true, gender));
    }
  }
  for (int i = 0; i < kNouns; ++i) {
    for (const int number : {0, 1}) {
      source_.Add(SourceNoun(i, number));
      target_.Add(TargetNoun(Noun(i), number));
    }
  }
  for (int i = 0; i < kVerbs; ++i) {
    source_.Add(fmt::format("verb{}", i));
    for (const int number : {0, 1}) {
      target_.Add(TargetVerb(Verb(i), false, number));
      if (HasTwoTranslationsAsVerb(i)) target_.Add(TargetVerb(Verb(i), true, number));
    }
  }
  for (int i = 0; i < kAdverbs; ++i) {
    source_.Add(fmt::format("adv{}", i));
    target_.Add(fmt::format("ADV{}", Adverb(i)));
  }
  for (int i = 0; i < kConjunctions; ++i) {
    source_.Add(fmt::format("conj{}", i));
    target_.Add(fmt::format("CONJ{}", Conjunction(i)));
  }
}

StatusOr<SentencePair> SyntheticTask::Draw(std::uint64_t seed, std::string_view set,
                                           std::uint64_t index, int length) const {
  return DrawFrom(RandomStream(seed, "seq2seq", set), index, length);
}

StatusOr<std::vector<SentencePair>> SyntheticTask::DrawSet(std::uint64_t seed, std::string_view set,
                                                           std::uint64_t first, std::uint64_t count,
                                                           int shortest, int longest) const {
  if (longest < shortest) {
    return InvalidArgument(fmt::format("no length between {} and {} words", shortest, longest));
  }
  const RandomStream stream(seed, "seq2seq", set);
  const RandomStream lengths(seed, "seq2seq lengths", set);
  std::vector<SentencePair> pairs;
  pairs.reserve(count);
  for (std::uint64_t index = first; index < first + count; ++index) {
    const auto choices = static_cast<std::uint64_t>(longest - shortest + 1);
    const int length = shortest + static_cast<int>(lengths.Below(index, choices));
    StatusOr<SentencePair> pair = DrawFrom(stream, index, length);
    if (!pair.ok()) return pair.status();
    pairs.push_back(*std::move(pair));
  }
  return pairs;
}

StatusOr<SentencePair> SyntheticTask::DrawFrom(const RandomStream& stream, std::uint64_t index,
                                               int length) const {
  if (length < kShortest) {
    return InvalidArgument(
        fmt::format("a sentence of {} words: the shortest has {}", length, kShortest));
  }
  const std::uint64_t first = index * kDrawsPerSentence;
  Draws draws(stream, first);
  std::vector<Clause> clauses;
  while (draws.next() - first < kDrawsPerSentence / 2) {
    clauses.assign(1, DrawClause(&draws));
    int words = clauses.back().length();
    while (words < length) {
      clauses.push_back(DrawClause(&draws));
      words += 1 + clauses.back().length();
    }
    if (words == length) return Writer(*this).Write(clauses);
  }
  return Internal(fmt::format("no sentence of {} words was drawn", length));
}

}  // namespace attest
