// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "experiments/seq2seq/sentences.h"

namespace attest {
namespace {

using Ngrams = std::map<std::vector<int>, std::int64_t>;

Ngrams CountNgrams(std::span<const int> words, std::size_t n) {
  Ngrams ngrams;
  for (std::size_t i = 0; i + n <= words.size(); ++i) {
    const std::span<const int> ngram = words.subspan(i, n);
    if (std::find(ngram.begin(), ngram.end(), kUnknownWord) != ngram.end()) continue;
    ++ngrams[std::vector<int>(ngram.begin(), ngram.end())];
  }
  return ngrams;
}

// For each n-gram the most that one reference has of it.
Ngrams MostOf(std::span<const std::span<const int>> references, std::size_t n) {
  Ngrams most;
  for (const std::span<const int> reference : references) {
    for (const auto& [ngram, count] : CountNgrams(reference, n)) {
      most[ngram] = std::max(most[ngram], count);
    }
  }
  return most;
}

std::int64_t Size(std::span<const int> words) { return static_cast<std::int64_t>(words.size()); }

void AddSentence(std::span<const int> hypothesis, std::span<const std::span<const int>> references,
                 BleuCounts* counts) {
  std::int64_t closest = references.empty() ? 0 : Size(references[0]);
  for (const std::span<const int> reference : references) {
    const std::int64_t distance = std::abs(Size(reference) - Size(hypothesis));
    const std::int64_t best = std::abs(closest - Size(hypothesis));
    if (distance < best || (distance == best && Size(reference) < closest)) {
      closest = Size(reference);
    }
  }
  counts->hypothesis_length += Size(hypothesis);
  counts->reference_length += closest;
  for (std::size_t n = 1; n <= counts->matches.size(); ++n) {
    counts->totals[n - 1] += std::max<std::int64_t>(0, Size(hypothesis) - static_cast<int>(n) + 1);
    const Ngrams most = MostOf(references, n);
    for (const auto& [ngram, count] : CountNgrams(hypothesis, n)) {
      const auto position = most.find(ngram);
      if (position != most.end()) counts->matches[n - 1] += std::min(count, position->second);
    }
  }
}

}  // namespace

void BleuCounts::Add(std::span<const int> hypothesis,
                     std::span<const std::vector<int>> references) {
  const std::vector<std::span<const int>> spans(references.begin(), references.end());
  AddSentence(hypothesis, spans, this);
}

void BleuCounts::Add(std::span<const int> hypothesis, std::span<const int> reference) {
  AddSentence(hypothesis, std::span(&reference, 1), this);
}

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (std::size_t i = 0; i < matches.size(); ++i) {
    matches[i] += other.matches[i];
    totals[i] += other.totals[i];
  }
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  return *this;
}

BleuScore BleuCounts::Score(BleuSmoothing smoothing) const {
  BleuScore score;
  score.hypothesis_length = hypothesis_length;
  score.reference_length = reference_length;
  if (hypothesis_length > 0) {
    score.brevity_penalty = std::exp(std::min(
        0.0, 1.0 - static_cast<double>(reference_length) / static_cast<double>(hypothesis_length)));
  }
  bool defined = matches[0] > 0;
  double logarithms = 0.0;
  double halves = 1.0;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    auto matched = static_cast<double>(matches[i]);
    if (matches[i] == 0 && smoothing == BleuSmoothing::kExponential) matched = halves *= 0.5;
    if (totals[i] == 0 || matched == 0.0) {
      defined = false;
      continue;
    }
    const double precision = matched / static_cast<double>(totals[i]);
    score.precisions[i] = 100.0 * precision;
    logarithms += std::log(precision);
  }
  if (defined) {
    const double mean = std::exp(logarithms / static_cast<double>(matches.size()));
    score.score = 100.0 * score.brevity_penalty * mean;
  }
  return score;
}

}  // namespace attest
