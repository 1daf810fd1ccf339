// SPDX-License-Identifier: Apache-2.0
// A trained model on test sentences by length, and its results as JSON.
#include <algorithm>
#include <utility>

#include "experiments/long_sentences.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// What a model may write for the longest of these sources.
int MostWords(std::span<const std::vector<int>> sources) {
  std::size_t longest = 0;
  for (const std::vector<int>& source : sources) longest = std::max(longest, source.size());
  return static_cast<int>(longest + longest / 2 + 5);
}

// The largest weights, given the target's words, against the links of a sentence. Where no position
// is known for a target word, links of lexicon entries may be; words without either do not count.
AttentionAccuracy MeasureForced(const TestSentence& sentence, std::vector<float> weights) {
  const SentencePair& pair = sentence.pair;
  const std::size_t wanted = pair.target.size() * pair.source.size();
  if (weights.size() < wanted || weights.empty()) return {};
  weights.resize(wanted);
  const Translation forced{pair.target, std::move(weights)};
  if (!pair.alignment.empty()) return MeasureAttention(pair, forced);
  AttentionAccuracy accuracy;
  Links known = sentence.sure_links;
  known.insert(sentence.possible_links.begin(), sentence.possible_links.end());
  const std::vector<int> positions = ArgmaxPositions(forced, pair.source.size());
  Links claimed;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const int word = static_cast<int>(i);
    const bool linked = std::any_of(known.begin(), known.end(),
                                    [&](const auto& link) { return link.second == word; });
    if (!linked) continue;
    accuracy.on_word.Add(known.contains({positions[i], word}));
    if (positions[i] >= 0) claimed.emplace(positions[i], word);
  }
  accuracy.links.Add(claimed, sentence.sure_links, sentence.possible_links);
  return accuracy;
}

ordered_json Numbers(const Share& share) { return {share.hits, share.trials}; }

ordered_json Numbers(const BleuCounts& counts) {
  ordered_json numbers = counts.matches;
  for (const std::int64_t total : counts.totals) numbers.push_back(total);
  numbers.push_back(counts.hypothesis_length);
  numbers.push_back(counts.reference_length);
  return numbers;
}

ordered_json Numbers(const AttentionAccuracy& accuracy) {
  return {
      accuracy.on_word.hits,       accuracy.on_word.trials,       accuracy.near_word.hits,
      accuracy.near_word.trials,   accuracy.on_word_right.hits,   accuracy.on_word_right.trials,
      accuracy.on_word_wrong.hits, accuracy.on_word_wrong.trials, accuracy.links.claimed,
      accuracy.links.sure,         accuracy.links.claimed_sure,   accuracy.links.claimed_possible};
}

// Reads the numbers of one field, all of them or none.
class FieldReader {
 public:
  FieldReader(const ordered_json& json, const char* field, std::size_t count) {
    const auto at = json.find(field);
    ok_ = at != json.end() && at->is_array() && at->size() == count;
    for (std::size_t i = 0; ok_ && i < count; ++i) {
      ok_ = (*at)[i].is_number_integer();
      if (ok_) numbers_.push_back((*at)[i].get<std::int64_t>());
    }
    if (!ok_) numbers_.assign(count, 0);
  }

  bool ok() const { return ok_; }
  std::int64_t Next() { return numbers_[next_++]; }
  void Read(Share* share) {
    share->hits = Next();
    share->trials = Next();
  }

 private:
  bool ok_ = false;
  std::vector<std::int64_t> numbers_;
  std::size_t next_ = 0;
};

bool Read(const ordered_json& json, const char* field, Share* share) {
  FieldReader reader(json, field, 2);
  reader.Read(share);
  return reader.ok();
}

bool Read(const ordered_json& json, const char* field, BleuCounts* counts) {
  FieldReader reader(json, field, 10);
  for (std::int64_t& match : counts->matches) match = reader.Next();
  for (std::int64_t& total : counts->totals) total = reader.Next();
  counts->hypothesis_length = reader.Next();
  counts->reference_length = reader.Next();
  return reader.ok();
}

bool Read(const ordered_json& json, const char* field, AttentionAccuracy* accuracy) {
  FieldReader reader(json, field, 12);
  reader.Read(&accuracy->on_word);
  reader.Read(&accuracy->near_word);
  reader.Read(&accuracy->on_word_right);
  reader.Read(&accuracy->on_word_wrong);
  accuracy->links.claimed = reader.Next();
  accuracy->links.sure = reader.Next();
  accuracy->links.claimed_sure = reader.Next();
  accuracy->links.claimed_possible = reader.Next();
  return reader.ok();
}

StatusOr<LengthResult> MeasureLength(TrainedModel* model, const TestSet& set, std::size_t aligned) {
  LengthResult result;
  result.length = set.length;
  std::vector<std::vector<int>> sources, wrong_sources;
  std::vector<SentencePair> pairs;
  for (std::size_t i = 0; i < set.sentences.size(); ++i) {
    sources.push_back(set.sentences[i].pair.source);
    wrong_sources.push_back(set.sentences[(i + 1) % set.sentences.size()].pair.source);
    pairs.push_back(set.sentences[i].pair);
  }
  if (sources.empty()) return result;
  const int most = MostWords(sources);
  const StatusOr<std::vector<Translation>> written = model->Translate(sources, most);
  if (!written.ok()) return written.status();
  const StatusOr<std::vector<Translation>> wrong = model->Translate(wrong_sources, most);
  if (!wrong.ok()) return wrong.status();
  if (written->size() != pairs.size() || wrong->size() != pairs.size()) {
    return Internal("a model did not translate every sentence");
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Translation& translation = (*written)[i];
    result.bleu.Add(translation.words, pairs[i].target);
    result.wrong_source.Add((*wrong)[i].words, pairs[i].target);
    result.sentences.Add(translation.words == pairs[i].target);
    if (i >= aligned) continue;
    result.greedy += MeasureAttention(pairs[i], translation);
    StatusOr<std::vector<float>> weights = model->Weights(pairs[i]);
    if (!weights.ok()) return weights.status();
    result.forced += MeasureForced(set.sentences[i], *std::move(weights));
  }
  const StatusOr<Share> words = model->PredictWords(pairs);
  if (!words.ok()) return words.status();
  result.words = *words;
  return result;
}

}  // namespace

StatusOr<std::vector<LengthResult>> MeasureModel(TrainedModel* model, std::span<const TestSet> sets,
                                                 std::size_t aligned) {
  std::vector<LengthResult> results;
  for (const TestSet& set : sets) {
    StatusOr<LengthResult> result = MeasureLength(model, set, aligned);
    if (!result.ok()) return result.status();
    results.push_back(*std::move(result));
  }
  return results;
}

const LengthResult* JobResult::Find(int length) const {
  for (const LengthResult& result : lengths) {
    if (result.length == length) return &result;
  }
  return nullptr;
}

ordered_json ToJson(const JobResult& result) {
  ordered_json lengths = ordered_json::array();
  for (const LengthResult& at : result.lengths) {
    lengths.push_back({{"length", at.length},
                       {"bleu", Numbers(at.bleu)},
                       {"wrong_source", Numbers(at.wrong_source)},
                       {"words", Numbers(at.words)},
                       {"sentences", Numbers(at.sentences)},
                       {"forced", Numbers(at.forced)},
                       {"greedy", Numbers(at.greedy)}});
  }
  return {{"job", result.job.ToJson()}, {"losses", result.losses}, {"lengths", lengths}};
}

StatusOr<JobResult> JobResultFromJson(const ordered_json& json, const TrainingJob& job) {
  const Status wrong = InvalidArgument("not the result of a training");
  if (!json.is_object() || !json.contains("losses") || !json["losses"].is_array() ||
      !json.contains("lengths") || !json["lengths"].is_array()) {
    return wrong;
  }
  JobResult result;
  result.job = job;
  for (const ordered_json& loss : json["losses"]) {
    if (!loss.is_number()) return wrong;
    result.losses.push_back(loss.get<double>());
  }
  for (const ordered_json& at : json["lengths"]) {
    if (!at.is_object() || !at.contains("length") || !at["length"].is_number_integer()) {
      return wrong;
    }
    LengthResult length;
    length.length = at["length"].get<int>();
    if (!Read(at, "bleu", &length.bleu) || !Read(at, "wrong_source", &length.wrong_source) ||
        !Read(at, "words", &length.words) || !Read(at, "sentences", &length.sentences) ||
        !Read(at, "forced", &length.forced) || !Read(at, "greedy", &length.greedy)) {
      return wrong;
    }
    result.lengths.push_back(length);
  }
  return result;
}

}  // namespace attest
