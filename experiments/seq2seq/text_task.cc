// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/text_task.h"

#include <algorithm>
#include <array>
#include <map>

namespace attest {
namespace {

// Places of the words with one lexicon entry: from `first` on, `count` of them, in `runs` runs.
struct Places {
  int first = 0;
  int count = 0;
  int runs = 0;
};

std::map<std::string, Places> PlacesOf(const Verse& verse) {
  std::map<std::string, Places> places;
  for (std::size_t i = 0; i < verse.lexemes.size(); ++i) {
    if (verse.lexemes[i].empty()) continue;
    Places& entry = places[verse.lexemes[i]];
    if (entry.count == 0) entry.first = static_cast<int>(i);
    ++entry.count;
    if (i == 0 || verse.lexemes[i - 1] != verse.lexemes[i]) ++entry.runs;
  }
  return places;
}

void AddLinks(const VersePair& verses, TestSentence* sentence) {
  const std::map<std::string, Places> targets = PlacesOf(verses.target);
  for (const auto& [lexeme, source] : PlacesOf(verses.source)) {
    const auto position = targets.find(lexeme);
    if (position == targets.end()) continue;
    const Places& target = position->second;
    if (source.runs != 1 || target.runs != 1) continue;
    const bool sure = source.count == 1 && target.count == 1;
    for (int i = 0; i < target.count; ++i) {
      for (int j = 0; j < source.count; ++j) {
        (sure ? sentence->sure_links : sentence->possible_links)
            .emplace(source.first + j, target.first + i);
      }
    }
  }
}

Share Known(std::span<const std::vector<std::string>> sentences, const Vocabulary& vocabulary) {
  Share share;
  for (const std::vector<std::string>& sentence : sentences) {
    for (const std::string& word : sentence) share.Add(vocabulary.Number(word) != kUnknownWord);
  }
  return share;
}

}  // namespace

std::span<const std::string> HeldOutBooks() {
  static const std::array<std::string, 5> books{"esther", "ezekiel", "daniel", "acts",
                                                "revelation"};
  return books;
}

TextTask MakeTextTask(std::span<const VersePair> pairs, const TextTaskOptions& options) {
  const std::span<const std::string> held_out = HeldOutBooks();
  std::vector<const VersePair*> test;
  std::vector<std::vector<std::string>> sources, targets;
  for (const VersePair& pair : pairs) {
    if (std::find(held_out.begin(), held_out.end(), pair.source.book) != held_out.end()) {
      test.push_back(&pair);
    } else if (pair.source.words.size() <= options.longest_training_source &&
               pair.target.words.size() <= options.longest_training_target) {
      sources.push_back(pair.source.words);
      targets.push_back(pair.target.words);
    }
  }
  TextTask task;
  task.source_vocabulary = Vocabulary::OfMostFrequent(sources, options.vocabulary);
  task.target_vocabulary = Vocabulary::OfMostFrequent(targets, options.vocabulary);
  task.source_known = Known(sources, task.source_vocabulary);
  task.target_known = Known(targets, task.target_vocabulary);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    task.train.push_back({task.source_vocabulary.Numbers(sources[i]),
                          task.target_vocabulary.Numbers(targets[i]),
                          {}});
  }
  for (const VersePair* pair : test) {
    TestSentence sentence;
    sentence.pair.source = task.source_vocabulary.Numbers(pair->source.words);
    sentence.pair.target = task.target_vocabulary.Numbers(pair->target.words);
    AddLinks(*pair, &sentence);
    task.test.push_back(std::move(sentence));
  }
  return task;
}

std::vector<const TestSentence*> OfLengths(const TextTask& task, std::size_t shortest,
                                           std::size_t longest, std::size_t most) {
  std::vector<const TestSentence*> all;
  for (const TestSentence& sentence : task.test) {
    const std::size_t length = sentence.pair.source.size();
    if (length >= shortest && length <= longest) all.push_back(&sentence);
  }
  if (all.size() <= most) return all;
  std::vector<const TestSentence*> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

}  // namespace attest
