// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/vocabulary.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "experiments/seq2seq/sentences.h"

namespace attest {

Vocabulary::Vocabulary() : words_{"<pad>", "<s>", "</s>", "<unk>"} {}

Vocabulary Vocabulary::OfMostFrequent(std::span<const std::vector<std::string>> sentences,
                                      std::size_t size) {
  std::map<std::string, std::int64_t> counts;
  for (const std::vector<std::string>& sentence : sentences) {
    for (const std::string& word : sentence) ++counts[word];
  }
  std::vector<std::pair<std::string, std::int64_t>> order(counts.begin(), counts.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  Vocabulary vocabulary;
  for (std::size_t i = 0; i < std::min(size, order.size()); ++i) vocabulary.Add(order[i].first);
  return vocabulary;
}

int Vocabulary::Add(const std::string& word) {
  const auto [position, added] = numbers_.try_emplace(word, size());
  if (added) words_.push_back(word);
  return position->second;
}

int Vocabulary::Number(const std::string& word) const {
  const auto position = numbers_.find(word);
  return position == numbers_.end() ? kUnknownWord : position->second;
}

std::vector<int> Vocabulary::Numbers(std::span<const std::string> words) const {
  std::vector<int> numbers;
  numbers.reserve(words.size());
  for (const std::string& word : words) numbers.push_back(Number(word));
  return numbers;
}

std::string_view Vocabulary::Word(int number) const {
  const bool known = number >= 0 && number < size();
  return words_[static_cast<std::size_t>(known ? number : kUnknownWord)];
}

std::string Vocabulary::Text(std::span<const int> numbers) const {
  std::string text;
  for (const int number : numbers) {
    if (!text.empty()) text += ' ';
    text += Word(number);
  }
  return text;
}

}  // namespace attest
