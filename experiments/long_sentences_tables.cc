// SPDX-License-Identifier: Apache-2.0
// Tables and plots of the experiment long-sentences.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/run_record.h"
#include "experiments/long_sentences.h"

namespace attest {
namespace {

using nlohmann::ordered_json;
using Value = std::function<double(const LengthResult&)>;

constexpr std::size_t kMostSeries = 8;  // of one plot

double Words(const LengthResult& at) { return at.words.value(); }
double Sentences(const LengthResult& at) { return at.sentences.value(); }
double OnWord(const LengthResult& at) { return at.forced.on_word.value(); }
double ErrorRate(const LengthResult& at) { return at.forced.links.ErrorRate(); }
double WrongSource(const LengthResult& at) { return at.wrong_source.Score().score; }

// A number that is missing where nothing was counted.
ordered_json Cell(double value) { return std::isnan(value) ? ordered_json() : ordered_json(value); }

ordered_json Series(const std::string& name, const ResultGroup& group, const Value& value) {
  ordered_json points = ordered_json::array();
  for (const int length : group.Lengths()) {
    const double mean = group.Mean(length, value).mean;
    if (!std::isnan(mean)) points.push_back({length, mean});
  }
  return {{"name", name}, {"points", points}};
}

double BleuOf(const LengthResult& at) { return at.bleu.Score().score; }

// One or more plots of a value over the length, a line for each group that has it.
void AddPlots(const std::string& title, const std::string& note, const std::string& axis,
              std::span<const ResultGroup> groups, const Value& value,
              const std::function<std::string(const TrainingJob&)>& name, ordered_json* record) {
  ordered_json all = ordered_json::array();
  for (const ResultGroup& group : groups) {
    ordered_json series = Series(name(group.job), group, value);
    if (!series["points"].empty()) all.push_back(std::move(series));
  }
  for (std::size_t first = 0; first < all.size(); first += kMostSeries) {
    ordered_json some = ordered_json::array();
    for (std::size_t i = first; i < std::min(first + kMostSeries, all.size()); ++i) {
      some.push_back(all[i]);
    }
    (*record)["plots"].push_back({{"title", title + (first == 0 ? "" : ", further models")},
                                  {"note", note},
                                  {"x", {{"label", "words of the source"}, {"scale", "linear"}}},
                                  {"y", {{"label", axis}, {"scale", "linear"}}},
                                  {"series", some}});
  }
}

void AddTable(const std::string& title, const std::string& note, const ordered_json& columns,
              const ordered_json& rows, ordered_json* record) {
  if (rows.empty()) return;
  (*record)["tables"].push_back(
      {{"title", title}, {"note", note}, {"columns", columns}, {"rows", rows}});
}

std::string ModelName(const TrainingJob& job) { return job.model; }
std::string WidthName(const TrainingJob& job) { return fmt::format("width {}", job.decoder); }

void AddCurves(std::span<const ResultGroup> groups, ordered_json* record) {
  ordered_json rows = ordered_json::array();
  ordered_json alignment = ordered_json::array();
  for (const ResultGroup& group : groups) {
    for (const int length : group.Lengths()) {
      const Band bleu = group.Bleu(length);
      rows.push_back({group.job.model, length, length <= 30 ? "yes" : "no", group.results.size(),
                      Cell(bleu.mean), Cell(bleu.low), Cell(bleu.high),
                      Cell(group.Mean(length, Words).mean),
                      Cell(group.Mean(length, Sentences).mean)});
      const auto mean = [&](const Value& value) { return Cell(group.Mean(length, value).mean); };
      if (mean(OnWord).is_null()) continue;
      alignment.push_back(
          {group.job.model, length, mean(OnWord),
           mean([](const LengthResult& at) { return at.forced.near_word.value(); }),
           mean(ErrorRate), mean([](const LengthResult& at) { return at.greedy.on_word.value(); }),
           mean([](const LengthResult& at) { return at.greedy.on_word_right.value(); }),
           mean([](const LengthResult& at) { return at.greedy.on_word_wrong.value(); })});
    }
  }
  AddTable("Synthetic task by length", "Means over seeds, with the band of BLEU.",
           {"model", "words", "length seen in training", "seeds", "BLEU", "low", "high",
            "next word right", "sentences right"},
           rows, record);
  AddTable("Alignment by length, synthetic task",
           "Shares of target words whose largest weight is on the source word they render, or at "
           "most one word off; alignment error rate of the largest weights, every true link being "
           "sure (Och and Ney 2003). Greedy: on written words, those that are right and those that "
           "are wrong.",
           {"model", "words", "on the word", "within one", "error rate", "greedy", "right words",
            "wrong words"},
           alignment, record);
  AddPlots("BLEU by length", "Trained on 3 to 30 words; means over seeds.", "BLEU-4", groups,
           BleuOf, ModelName, record);
  AddPlots("Alignment by length", "Largest weight on the true source word.", "share of words",
           groups, OnWord, ModelName, record);
  AddPlots("Next word right", "After the right words before.", "share of words", groups, Words,
           ModelName, record);
  AddPlots("Sentences right", "Translated without any error.", "share of sentences", groups,
           Sentences, ModelName, record);
}

void AddWidths(std::span<const JobResult> results, ordered_json* record) {
  std::vector<ResultGroup> widths = GroupsOf(results, "width");
  if (widths.empty()) return;
  for (const ResultGroup& group : GroupsOf(results, "curves")) {
    if (group.job.model == "fixed") widths.insert(widths.begin(), group);
  }
  ordered_json rows = ordered_json::array();
  for (const ResultGroup& group : widths) {
    for (const int length : group.Lengths()) {
      const Band bleu = group.Bleu(length);
      rows.push_back({group.job.decoder, group.job.learning_rate, length, group.results.size(),
                      Cell(bleu.mean), Cell(bleu.low), Cell(bleu.high)});
    }
  }
  AddTable("Fixed context by width",
           "States of the decoder; the encoder has half in each direction.",
           {"width", "learning rate", "words", "seeds", "BLEU", "low", "high"}, rows, record);
  AddPlots("Fixed context by width", "A wider context moves the decline to longer sentences.",
           "BLEU-4", widths, BleuOf, WidthName, record);
}

void AddScaling(std::span<const JobResult> results, ordered_json* record) {
  ordered_json rows = ordered_json::array();
  std::map<bool, ordered_json> points{{true, ordered_json::array()},
                                      {false, ordered_json::array()}};
  for (const ResultGroup& group : GroupsOf(results, "scaling")) {
    double loss = 0.0;
    for (const JobResult* result : group.results) {
      if (!result->losses.empty()) loss += result->losses.back();
    }
    loss /= static_cast<double>(group.results.size());
    rows.push_back({group.job.attention, group.job.scaled ? "with" : "without",
                    group.results.size(), Cell(group.Bleu(10).mean), Cell(group.Bleu(30).mean),
                    Cell(group.Mean(30, OnWord).mean), Cell(loss)});
    points[group.job.scaled].push_back({group.job.attention, group.Bleu(30).mean});
  }
  if (rows.empty()) return;
  AddTable(
      "Training with and without 1/sqrt(D_k)",
      "The model qkv. No paper has this ablation; Vaswani et al. 2017 argue for the factor in "
      "footnote 4.",
      {"D_k", "1/sqrt(D_k)", "seeds", "BLEU at 10", "BLEU at 30", "on the word at 30", "last loss"},
      rows, record);
  (*record)["plots"].push_back({{"title", "BLEU at 30 words by D_k"},
                                {"note", "Model qkv, means over seeds."},
                                {"x", {{"label", "D_k"}, {"scale", "log"}}},
                                {"y", {{"label", "BLEU-4"}, {"scale", "linear"}}},
                                {"series",
                                 {{{"name", "with 1/sqrt(D_k)"}, {"points", points[true]}},
                                  {{"name", "without"}, {"points", points[false]}}}}});
}

void AddText(std::span<const JobResult> results, ordered_json* record) {
  const std::vector<ResultGroup> groups = GroupsOf(results, "text");
  ordered_json rows = ordered_json::array();
  std::map<std::string, std::vector<ResultGroup>> by_task;
  for (const ResultGroup& group : groups) {
    by_task[group.job.task].push_back(group);
    for (const int length : group.Lengths()) {
      const Band bleu = group.Bleu(length);
      const auto mean = [&](const Value& value) { return Cell(group.Mean(length, value).mean); };
      const LengthResult* const first = group.results[0]->Find(length);
      rows.push_back({group.job.task, group.job.model, fmt::format("{}-{}", length - 9, length),
                      length <= 40 ? "yes" : "no", first == nullptr ? 0 : first->sentences.trials,
                      group.results.size(), Cell(bleu.mean), Cell(bleu.low), Cell(bleu.high),
                      mean(WrongSource), mean(Words), mean(OnWord), mean(ErrorRate)});
    }
  }
  AddTable("Verses by length",
           "kjv-web: King James to World English Bible; web-rv: World English Bible to "
           "Reina-Valera 1909. Five books held out. Wrong source: the same model on the source of "
           "another verse. Copy: the source's words. On a linked word, error rate: of the largest "
           "weights against words that render the same Hebrew or Greek word (web-rv alone; links "
           "are partly machine-made).",
           {"text", "model", "words", "length seen in training", "verses", "seeds", "BLEU", "low",
            "high", "BLEU of wrong source", "next word right", "on a linked word", "error rate"},
           rows, record);
  for (const auto& [task, models] : by_task) {
    AddPlots("Verses, " + task, "Trained on at most 40 words; means over seeds.", "BLEU-4", models,
             BleuOf, ModelName, record);
  }
}

void AddPublished(std::span<const JobResult> results, ordered_json* record) {
  const auto at_length = [&](const std::string& part, const std::string& task,
                             const std::string& model, int length) {
    for (const ResultGroup& group : GroupsOf(results, part)) {
      if (group.job.model == model && group.job.task == task) return Cell(group.Bleu(length).mean);
    }
    return ordered_json();
  };
  const auto error_rate = [&](const std::string& model) {
    for (const ResultGroup& group : GroupsOf(results, "curves")) {
      if (group.job.model == model) return Cell(group.Mean(30, ErrorRate).mean);
    }
    return ordered_json();
  };
  const auto synthetic = [&](const std::string& model) {
    return at_length("curves", "synthetic", model, 30);
  };
  const char* const order = "the order of the two, not the values: other languages, data and sizes";
  const ordered_json all = {
      {"Bahdanau 2015, table 1", "RNNencdec-30, all test sentences", 13.93, "fixed, web-rv, 21-30",
       at_length("text", "web-rv", "fixed", 30), order},
      {"Bahdanau 2015, table 1", "RNNsearch-30, all test sentences", 21.50,
       "bahdanau, web-rv, 21-30", at_length("text", "web-rv", "bahdanau", 30), order},
      {"Bahdanau 2015, table 1", "RNNencdec-50, all test sentences", 17.82, "fixed, 30 words",
       synthetic("fixed"), order},
      {"Bahdanau 2015, table 1", "RNNsearch-50, all test sentences", 26.75, "bahdanau, 30 words",
       synthetic("bahdanau"), order},
      {"Cho 2014b, table 1", "RNNenc, all test sentences", 13.92, "fixed, 30 words",
       synthetic("fixed"), "the decline with length alone (their figure has no table)"},
      {"Cho 2014b, table 1", "RNNenc, 10 to 20 words", 20.99, "fixed, 15 words",
       at_length("curves", "synthetic", "fixed", 15),
       "the decline with length alone (their figure has no table)"},
      {"Luong 2015, table 4", "global, dot", 18.6, "dot, 30 words", synthetic("dot"), order},
      {"Luong 2015, table 4", "global, general", 17.3, "general, 30 words", synthetic("general"),
       order},
      {"Luong 2015, table 4", "global, location", 18.1, "location, 30 words", synthetic("location"),
       order},
      {"Luong 2015, table 4", "local-p, general", 19.0, "local-p, 30 words", synthetic("local-p"),
       order},
      {"Luong 2015, table 6", "alignment error rate, global (location)", 0.39, "location, 30 words",
       error_rate("location"),
       "nothing: theirs is against human links, ours against the generator's"},
      {"Luong 2015, table 6", "alignment error rate, local-m (general)", 0.34, "local-m, 30 words",
       error_rate("local-m"),
       "nothing: theirs is against human links, ours against the generator's"},
      {"Luong 2015, table 6", "alignment error rate, local-p (general)", 0.36, "local-p, 30 words",
       error_rate("local-p"),
       "nothing: theirs is against human links, ours against the generator's"}};
  ordered_json rows = ordered_json::array();
  for (const ordered_json& row : all) {
    if (!row[4].is_null()) rows.push_back(row);  // what this run has
  }
  AddTable("Published numbers beside ours",
           "BLEU of WMT'14 news, English to French (Bahdanau, Cho) and to German (Luong, before "
           "unknown words are replaced), by models of about 1,000 states.",
           {"source", "what", "published", "ours, what", "ours", "what can be compared"}, rows,
           record);
}

}  // namespace

Band ResultGroup::Mean(int length, const Value& value) const {
  std::vector<double> values;
  for (const JobResult* result : results) {
    if (const LengthResult* at = result->Find(length)) values.push_back(value(*at));
  }
  return BootstrapMean(values);
}

Band ResultGroup::Bleu(int length) const { return Mean(length, BleuOf); }

std::vector<int> ResultGroup::Lengths() const {
  std::vector<int> lengths;
  for (const LengthResult& at : results.front()->lengths) lengths.push_back(at.length);
  return lengths;
}

std::vector<ResultGroup> GroupsOf(std::span<const JobResult> results, const std::string& part) {
  const auto key = [](TrainingJob job) {
    job.seed = 0;
    return job.ToJson();
  };
  std::vector<ResultGroup> groups;
  for (const JobResult& result : results) {
    if (result.job.part != part) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const ResultGroup& group) {
      return key(group.job) == key(result.job);
    });
    if (same != groups.end()) {
      same->results.push_back(&result);
    } else {
      groups.push_back({result.job, {&result}});
    }
  }
  return groups;
}

void AddLengthTables(std::span<const JobResult> results, ordered_json* record) {
  AddCurves(GroupsOf(results, "curves"), record);
  AddWidths(results, record);
  AddScaling(results, record);
  AddText(results, record);
  AddPublished(results, record);
}

}  // namespace attest
