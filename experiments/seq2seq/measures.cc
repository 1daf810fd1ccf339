// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/measures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <vector>

#include "core/random.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? kNaN : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Share& Share::operator+=(const Share& other) {
  hits += other.hits;
  trials += other.trials;
  return *this;
}

double Share::value() const { return Ratio(hits, trials); }

Share TokenAccuracy(std::span<const int> translation, std::span<const int> target) {
  Share share;
  for (std::size_t i = 0; i < target.size(); ++i) {
    share.Add(i < translation.size() && translation[i] == target[i]);
  }
  return share;
}

void AlignmentCounts::Add(const Links& links, const Links& sure_links,
                          const Links& possible_links) {
  claimed += static_cast<std::int64_t>(links.size());
  sure += static_cast<std::int64_t>(sure_links.size());
  for (const auto& link : links) {
    const bool is_sure = sure_links.contains(link);
    claimed_sure += is_sure ? 1 : 0;
    claimed_possible += is_sure || possible_links.contains(link) ? 1 : 0;
  }
}

AlignmentCounts& AlignmentCounts::operator+=(const AlignmentCounts& other) {
  claimed += other.claimed;
  sure += other.sure;
  claimed_sure += other.claimed_sure;
  claimed_possible += other.claimed_possible;
  return *this;
}

double AlignmentCounts::ErrorRate() const {
  return 1.0 - Ratio(claimed_sure + claimed_possible, claimed + sure);
}

std::vector<int> ArgmaxPositions(const Translation& translation, std::size_t source_length) {
  const std::vector<float>& weights = translation.weights;
  if (weights.empty() || weights.size() != translation.words.size() * source_length) return {};
  std::vector<int> positions;
  positions.reserve(translation.words.size());
  for (std::size_t i = 0; i < translation.words.size(); ++i) {
    int best = -1;
    float largest = -std::numeric_limits<float>::infinity();
    for (std::size_t j = 0; j < source_length; ++j) {
      if (weights[i * source_length + j] > largest) {
        largest = weights[i * source_length + j];
        best = static_cast<int>(j);
      }
    }
    positions.push_back(best);
  }
  return positions;
}

AttentionAccuracy& AttentionAccuracy::operator+=(const AttentionAccuracy& other) {
  on_word += other.on_word;
  near_word += other.near_word;
  on_word_right += other.on_word_right;
  on_word_wrong += other.on_word_wrong;
  links += other.links;
  return *this;
}

AttentionAccuracy MeasureAttention(const SentencePair& pair, const Translation& translation) {
  AttentionAccuracy accuracy;
  const std::vector<int> positions = ArgmaxPositions(translation, pair.source.size());
  if (positions.empty() || pair.alignment.empty()) return accuracy;
  Links claimed, known;
  for (std::size_t i = 0; i < pair.alignment.size(); ++i) {
    const int true_position = pair.alignment[i];
    if (true_position < 0) continue;
    known.emplace(true_position, static_cast<int>(i));
    if (i >= positions.size() || i >= pair.target.size()) continue;
    const bool hit = positions[i] == true_position;
    const bool near = positions[i] >= 0 && std::abs(positions[i] - true_position) <= 1;
    accuracy.on_word.Add(hit);
    accuracy.near_word.Add(near);
    const bool right = translation.words[i] == pair.target[i];
    (right ? accuracy.on_word_right : accuracy.on_word_wrong).Add(hit);
  }
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const bool unknown = i < pair.alignment.size() && pair.alignment[i] < 0;
    if (positions[i] >= 0 && !unknown) claimed.emplace(positions[i], static_cast<int>(i));
  }
  accuracy.links.Add(claimed, known, known);
  return accuracy;
}

Band BootstrapMean(std::span<const double> values, double level, int resamples) {
  if (values.empty()) return {kNaN, kNaN, kNaN};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() == 1 || resamples < 1) return {mean, mean, mean};
  const RandomStream stream(0, "bootstrap", "resample");
  std::uint64_t draw = 0;
  std::vector<double> means(static_cast<std::size_t>(resamples));
  for (double& resampled : means) {
    double sum = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += values[stream.Below(draw++, values.size())];
    resampled = sum / count;
  }
  std::sort(means.begin(), means.end());
  const double tail = (1.0 - level) / 2.0;
  const auto at = [&](double share) {
    const double last = static_cast<double>(means.size() - 1);
    return means[static_cast<std::size_t>(std::lround(share * last))];
  };
  return {mean, at(tail), at(1.0 - tail)};
}

}  // namespace attest
