// SPDX-License-Identifier: Apache-2.0
// Pairs of sentences as numbers of words: what tasks hand to models and models to measures.
#pragma once

#include <vector>

namespace attest {

// Numbers that every vocabulary reserves; words come after them.
inline constexpr int kPaddingWord = 0;  // fills batches; in no sentence
inline constexpr int kStartWord = 1;    // what a decoder reads before its first word
inline constexpr int kEndWord = 2;      // what a decoder writes after its last word
inline constexpr int kUnknownWord = 3;  // a word outside the vocabulary
inline constexpr int kFirstWord = 4;

struct SentencePair {
  // Without start and end words.
  std::vector<int> source;
  std::vector<int> target;
  // The position in `source` that target[i] renders, -1 where none is known; empty: none known.
  std::vector<int> alignment;
};

// What a model writes for one source.
struct Translation {
  std::vector<int> words;  // without the end word
  // Attention weights, row-major [words.size(), source.size()]; empty for models without attention.
  std::vector<float> weights;
};

}  // namespace attest
