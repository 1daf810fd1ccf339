// SPDX-License-Identifier: Apache-2.0
// A translation task from parallel verses: vocabularies, training and test sentences.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/seq2seq/measures.h"
#include "experiments/seq2seq/parallel_text.h"
#include "experiments/seq2seq/sentences.h"
#include "experiments/seq2seq/vocabulary.h"

namespace attest {

// The books that tests are taken from, whole: Esther, Ezekiel, Daniel, Acts and Revelation, a tenth
// of the verses. Narrative, prophecy and letters of all lengths from both testaments; none of them
// tells again, verse by verse, what another book tells (as Kings and Chronicles, the first three
// gospels, or Isaiah 36 to 39 do), so that no test sentence has a near copy in training. Single
// quotations of other books remain.
std::span<const std::string> HeldOutBooks();

struct TextTaskOptions {
  std::size_t vocabulary = 2000;  // words of each side, the reserved ones not counted
  std::size_t longest_training_source = 40;
  std::size_t longest_training_target = 50;
};

struct TestSentence {
  SentencePair pair;
  // Links of words with the same lexicon entry: sure where one word of each side has it, possible
  // where a run of words on each side has it. An entry with several runs in a verse gives none.
  Links sure_links;
  Links possible_links;
};

struct TextTask {
  Vocabulary source_vocabulary;  // of training sentences
  Vocabulary target_vocabulary;
  std::vector<SentencePair> train;  // without alignment
  std::vector<TestSentence> test;
  // Shares of the training sentences' words that are in the vocabularies.
  Share source_known;
  Share target_known;
};

TextTask MakeTextTask(std::span<const VersePair> pairs, const TextTaskOptions& options = {});

// Test sentences of `shortest` to `longest` source words, at most `most` of them, evenly spread
// over the test set.
std::vector<const TestSentence*> OfLengths(const TextTask& task, std::size_t shortest,
                                           std::size_t longest, std::size_t most);

}  // namespace attest
