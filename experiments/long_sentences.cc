// SPDX-License-Identifier: Apache-2.0
// Long sentences: what a fixed context loses with length, and attention keeps.
#include "experiments/long_sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/digest.h"
#include "experiments/record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr int kShort = 5;  // between these lengths the rule compares
constexpr int kLong = 30;
constexpr int kLongest = 60;
constexpr double kLost = 0.80;
constexpr double kKept = 0.95;

// The group with the name; nullptr if there is none.
const ResultGroup* Find(std::span<const ResultGroup> groups, const std::string& model) {
  for (const ResultGroup& group : groups) {
    if (group.job.model == model) return &group;
  }
  return nullptr;
}

double LeastKept(const ResultGroup& group) {
  const double start = group.Bleu(kShort).mean;
  double least = std::numeric_limits<double>::infinity();
  for (const int length : group.Lengths()) {
    const double kept = group.Bleu(length).mean / start;
    // A NaN stays: it keeps nothing.
    if (length <= kLong && !(kept >= least)) least = kept;
  }
  return least;
}

std::string TextOfLosses(const ResultGroup& group) {
  return fmt::format("{:.1f} at {} words, {:.1f} at {}", group.Bleu(kShort).mean, kShort,
                     group.Bleu(kLong).mean, kLong);
}

// One claim of the ledger.
ordered_json ClaimOf(const std::string& claim, bool holds, const std::string& number) {
  return {
      {"claim", claim}, {"verdict", holds ? "reproduced" : "not reproduced"}, {"number", number}};
}

// The parts of the record's claim that stand alone, each with its own verdict.
ordered_json ClaimsOf(const std::vector<JobResult>& results, const ResultGroup& fixed,
                      const ResultGroup& bahdanau, const LengthVerdict& judged) {
  ordered_json claims = ordered_json::array();
  claims.push_back(ClaimOf("A context of fixed size loses long sentences",
                           judged.fixed_lost >= kLost, "BLEU " + TextOfLosses(fixed) + "."));
  claims.push_back(ClaimOf("Attention restores them", judged.bahdanau_kept >= kKept,
                           "BLEU " + TextOfLosses(bahdanau) + ", trained to 30 words."));
  // One word in kLong would be chance.
  const double aligned =
      bahdanau.Mean(kLong, [](const LengthResult& at) { return at.forced.on_word.value(); }).mean;
  claims.push_back(ClaimOf(
      "Alignment is learned without being taught", aligned >= 0.5,
      fmt::format("At {} words the largest weight lies on the true source word for {:.0f}% of the "
                  "target words (chance: {:.0f}%).",
                  kLong, 100 * aligned, 100.0 / kLong)));
  const std::vector<ResultGroup> widths = GroupsOf(results, "width");
  if (widths.empty()) return claims;
  bool all_lose = true;
  bool later = true;  // each width has more at kLong than the one before
  double before = fixed.Bleu(kLong).mean;
  std::string number = fmt::format("BLEU at {} and {} words: width {} {:.1f} and {:.1f}", kLong,
                                   kLongest, fixed.job.decoder, before, fixed.Bleu(kLongest).mean);
  for (const ResultGroup& group : widths) {
    const double now = group.Bleu(kLong).mean;
    later = later && now > before;
    before = now;
    all_lose = all_lose && group.Bleu(kLongest).mean <= (1 - kLost) * group.Bleu(kShort).mean;
    number +=
        fmt::format(", {} {:.1f} and {:.1f}", group.job.decoder, now, group.Bleu(kLongest).mean);
  }
  claims.push_back(
      ClaimOf("Widening a fixed context only postpones the loss", later && all_lose, number + "."));
  return claims;
}

}  // namespace

LengthVerdict JudgeLengths(std::span<const ResultGroup> groups) {
  LengthVerdict judged;
  judged.verdict = "not reproduced";
  const ResultGroup* const fixed = Find(groups, "fixed");
  const ResultGroup* const bahdanau = Find(groups, "bahdanau");
  if (fixed == nullptr || bahdanau == nullptr) return judged;
  judged.fixed_lost = 1.0 - fixed->Bleu(kLong).mean / fixed->Bleu(kShort).mean;
  judged.bahdanau_kept = LeastKept(*bahdanau);
  judged.least_model = "bahdanau";
  judged.least_kept = judged.bahdanau_kept;
  for (const ResultGroup& group : groups) {
    if (group.job.model == "fixed" || group.job.model == "last-state") continue;
    const double kept = LeastKept(group);
    if (!(kept >= judged.least_kept)) {
      judged.least_kept = kept;
      judged.least_model = group.job.model;
    }
  }
  if (judged.fixed_lost >= kLost && judged.bahdanau_kept >= kKept) {
    judged.verdict = judged.least_kept >= kKept ? "reproduced" : "reproduced with limits";
  }
  return judged;
}

ordered_json LongSentencesRecord(const ExperimentOptions& options,
                                 const std::vector<JobResult>& results,
                                 const std::string& missing) {
  const std::vector<ResultGroup> groups = GroupsOf(results, "curves");
  const LengthVerdict judged = JudgeLengths(groups);
  ordered_json record = NewRecord(
      {.name = "long-sentences",
       .title = "Translation of long sentences with a fixed context and with attention",
       .claim =
           "An encoder-decoder that hands its decoder one vector of fixed size translates worse "
           "the longer the sentence is; one with attention does not, within the lengths of its "
           "training.",
       .source = "Cho et al. 2014, On the Properties of Neural Machine Translation (the decline); "
                 "Bahdanau, Cho and Bengio 2015, figure 2 (attention); Luong, Pham and Manning "
                 "2015 (its variants).",
       .rule = fmt::format(
           "On the synthetic task, trained on 3 to {1} words, by BLEU-4 without smoothing and its "
           "mean over seeds: reproduced if the fixed model loses at least {2:.0f}% of its BLEU "
           "from "
           "{0} words to {1}, and every variant of attention has at every tested length up to {1} "
           "at least {3:.0f}% of its BLEU at {0}. With limits if, of these variants, bahdanau "
           "does. The control last-state is no variant of attention. Lengths beyond {1} are shown, "
           "not judged, as are widths, D_k and real text.",
           kShort, kLong, 100 * kLost, 100 * kKept)});
  record["verdict"] = judged.verdict;
  ordered_json curves = ordered_json::object();
  ordered_json seeds = ordered_json::array();
  for (const ResultGroup& group : groups) {
    ordered_json& curve = curves[group.job.model] = ordered_json::object();
    for (const int length : group.Lengths()) {
      curve[std::to_string(length)] = group.Bleu(length).mean;
    }
    for (const JobResult* result : group.results) {
      if (std::find(seeds.begin(), seeds.end(), result->job.seed) == seeds.end()) {
        seeds.push_back(result->job.seed);
      }
    }
  }
  record["curves"] = curves;
  record["seeds"] = seeds;
  const ResultGroup* const fixed = Find(groups, "fixed");
  const ResultGroup* const bahdanau = Find(groups, "bahdanau");
  if (fixed != nullptr && bahdanau != nullptr) {
    record["summary"] = fmt::format(
        "BLEU, mean over {} seed{}: fixed {}, a loss of {:.0f}%; bahdanau {}. Least share of the "
        "BLEU "
        "at {} words that a variant of attention keeps up to {}: {:.1f}% ({}).",
        seeds.size(), seeds.size() == 1 ? "" : "s", TextOfLosses(*fixed), 100 * judged.fixed_lost,
        TextOfLosses(*bahdanau), kShort, kLong, 100 * judged.least_kept, judged.least_model);
    record["claims"] = ClaimsOf(results, *fixed, *bahdanau, judged);
  }
  AddLengthTables(results, &record);
  record["notes"] = {
      "The synthetic task: source clauses S V (adverb) (O), target S (O) (adverb) V, adjectives "
      "after their noun in reversed order, agreement in gender and number, and words with two "
      "translations that the rest of the clause decides. Sentences of exactly the given length; "
      "training sentences are always drawn afresh (docs/long_sentences.md).",
      "Bands are percentiles of the bootstrap over seeds, 95%; with as few seeds as here they are "
      "narrower than that. The test sentences are the same for all seeds.",
      "BLEU-4 of the corpus as sacreBLEU defines it, without smoothing: 0 where no four words in a "
      "row are right. Words outside the vocabulary match nothing.",
      "Next word: the share of target words, end words included, that have the largest probability "
      "after the right words before. Alignment is measured there as well, so that every word has a "
      "true source; greedy: on what the model writes.",
      "All models have the same schedule and learning rate, chosen without a search; the fixed "
      "model's loss is still falling when it ends. So the shape of the curves is the result, not "
      "their level.",
      "The same seed gives the same figures on one SIMD target; another one adds in another order, "
      "and training amplifies that."};
  if (options.quick) {
    record["notes"].push_back(
        "Quick: one seed, 800 steps, fixed and bahdanau alone. --full trains all variants with "
        "five "
        "seeds, and other widths, D_k and real text.");
  }
  if (!missing.empty()) record["notes"].push_back("Real text is left out: " + missing + ".");
  std::string inputs;
  for (const JobResult& result : results) inputs += result.job.ToJson().dump();
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
