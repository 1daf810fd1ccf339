// SPDX-License-Identifier: Apache-2.0
// The words of one side of a task and their numbers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attest {

// Numbers follow the order in which words are added, from kFirstWord on.
class Vocabulary {
 public:
  Vocabulary();

  // The `size` most frequent words of the sentences (all, if there are fewer); among equally
  // frequent ones those that come first in the order of bytes.
  static Vocabulary OfMostFrequent(std::span<const std::vector<std::string>> sentences,
                                   std::size_t size);

  // The number of the word, which is added if it is new.
  int Add(const std::string& word);

  // kUnknownWord for a word that was never added.
  int Number(const std::string& word) const;
  std::vector<int> Numbers(std::span<const std::string> words) const;

  // "<pad>", "<s>", "</s>" and "<unk>" below kFirstWord; "<unk>" also for numbers out of range.
  std::string_view Word(int number) const;
  // The words with blanks between them.
  std::string Text(std::span<const int> numbers) const;

  // One more than the largest number.
  int size() const { return static_cast<int>(words_.size()); }

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, int> numbers_;
};

}  // namespace attest
