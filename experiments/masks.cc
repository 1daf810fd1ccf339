// SPDX-License-Identifier: Apache-2.0
// Where two conventions for masks give the same call different outputs without any error.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/digest.h"
#include "experiments/experiment.h"
#include "experiments/mask_conventions.h"
#include "experiments/record.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// Outputs differ when they are further apart than this, relative to the largest |v| of the call.
constexpr double kVisible = 1e-3;

struct Result {
  std::vector<double> out;
  std::string text;  // the rows, to six digits
  bool finite = true;
};

StatusOr<Result> ResultOf(const Case& problem) {
  StatusOr<Certified> certified = Certify(problem);
  if (!certified.ok()) return certified.status();
  Result result;
  for (const CertifiedValue& value : certified->outputs.at("out").values) {
    result.out.push_back(value.hi);
    result.finite = result.finite && std::isfinite(value.hi);
    result.text += fmt::format("{}{:.6g}", result.text.empty() ? "" : " ", value.hi);
  }
  return result;
}

// The largest difference over the largest |v|; NaN where one of them is NaN and the other is not.
double DistanceOf(const Result& a, const Result& b, const Case& problem) {
  double largest_v = 0.0;
  for (const double v : ToDoubles(problem.tensors.at("v"))) {
    largest_v = std::max(largest_v, std::fabs(v));
  }
  double distance = 0.0;
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    if (std::isnan(a.out[i]) && std::isnan(b.out[i])) continue;
    const double difference = std::fabs(a.out[i] - b.out[i]);
    if (std::isnan(difference)) return difference;
    distance = std::max(distance, difference);
  }
  return distance / largest_v;
}

// Outputs of one call over the size of the sentinel, in three types.
StatusOr<ordered_json> SentinelSeries(const MaskInput& input,
                                      const std::vector<std::vector<int>>& hidden) {
  ordered_json series = ordered_json::array();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    ordered_json points = ordered_json::array();
    for (int exponent = 0; exponent <= 38; ++exponent) {
      const double size = std::ldexp(1.0, exponent);
      Case problem = SentinelCase(input, hidden, -size, dtype);
      if (Status s = FinishCase(&problem); !s.ok()) return s;
      const StatusOr<Result> result = ResultOf(problem);
      if (!result.ok()) return result.status();
      if (result->finite) points.push_back({size, result->out[0]});
    }
    series.push_back({{"name", NameOf(dtype)}, {"points", points}});
  }
  return series;
}

}  // namespace

StatusOr<ordered_json> RunMasks(const ExperimentOptions& options) {
  const StatusOr<std::vector<MaskQuestion>> questions = MaskQuestions();
  if (!questions.ok()) return questions.status();

  ordered_json reading_rows = ordered_json::array();
  ordered_json pair_rows = ordered_json::array();
  ordered_json total_rows = ordered_json::array();
  std::string inputs;
  Index readings = 0;
  Index silent_pairs = 0;
  bool every_question = true;  // has a silent difference
  bool controls_agree = true;
  for (const MaskQuestion& question : *questions) {
    std::vector<Result> results;
    for (const MaskReading& reading : question.readings) {
      StatusOr<Result> result = ResultOf(reading.problem);
      if (!result.ok()) return result.status();
      inputs += Sha256(reading.problem.tensors);
      reading_rows.push_back({question.name, question.call, reading.name, result->text,
                              result->finite ? "finite" : "NaN", reading.source});
      results.push_back(*std::move(result));
    }
    Index same = 0;
    Index silent = 0;
    Index loud = 0;
    for (std::size_t a = 0; a < results.size(); ++a) {
      for (std::size_t b = a + 1; b < results.size(); ++b) {
        const double distance =
            DistanceOf(results[a], results[b], question.readings.front().problem);
        const bool differs = !(distance <= kVisible);
        const bool quiet = differs && results[a].finite && results[b].finite;
        ++(quiet ? silent : (differs ? loud : same));
        if (!differs) continue;
        pair_rows.push_back({question.name, question.readings[a].name, question.readings[b].name,
                             results[a].text, results[b].text,
                             std::isnan(distance) ? ordered_json("NaN") : ordered_json(distance),
                             quiet ? "silent" : "NaN"});
      }
    }
    total_rows.push_back(
        {question.name, question.control ? "agree" : "differ", results.size(), same, silent, loud});
    readings += static_cast<Index>(results.size());
    silent_pairs += question.control ? 0 : silent;
    if (question.control) {
      controls_agree = controls_agree && silent + loud == 0;
    } else {
      every_question = every_question && silent > 0;
    }
  }

  ordered_json record = NewRecord(
      {.name = "masks",
       .title = "Conventions for masks, and where they differ silently",
       .claim =
           "Conventions for masks in common use read the same call differently and answer with "
           "finite, plausible numbers: nothing but the numbers says so.",
       .source =
           "The documentation or code of the projects named with each reading; public reports "
           "where two of them met.",
       .rule = fmt::format(
           "Reproduced if, in every question, two readings give finite outputs that differ by more "
           "than {} of the largest |v|, while in every control all readings agree within that; "
           "reproduced with limits if only the controls fail.",
           kVisible)});
  record["verdict"] = every_question ? (controls_agree ? "reproduced" : "reproduced with limits")
                                     : "not reproduced";
  record["summary"] =
      fmt::format("{} readings of {} calls: {} pairs of conventions differ silently. {}.", readings,
                  questions->size(), silent_pairs,
                  controls_agree ? "Where they are meant to agree they do"
                                 : "They also differ where they are meant to agree");
  record["silent_differences"] = silent_pairs;
  record["tables"] = {
      {{"title", "What each convention gives"},
       {"note", "Certified outputs, one number a row (and batch entry), to six digits."},
       {"columns", {"question", "call", "reading", "out", "kind", "who"}},
       {"rows", reading_rows}},
      {{"title", "Pairs that differ"},
       {"note", "Silent: both are finite everywhere. Difference over the largest |v|."},
       {"columns", {"question", "one", "other", "its out", "the other's", "difference", "kind"}},
       {"rows", pair_rows}},
      {{"title", "Pairs"},
       {"note", "Pairs of readings; those meant to agree are the controls."},
       {"columns", {"question", "meant to", "readings", "same", "silent", "NaN against numbers"}},
       {"rows", total_rows}}};

  // A row whose keys are all hidden, and a hidden key of score 0 before scores near -12000.
  const StatusOr<ordered_json> all =
      SentinelSeries({{2}, {0.5, -1, 1, 0.25}, {1, 2, 4, 8}}, {{1, 1, 1, 1}});
  if (!all.ok()) return all.status();
  const StatusOr<ordered_json> low =
      SentinelSeries({{1}, {-12032, -12096, 0}, {1, 2, 64}}, {{0, 0, 1}});
  if (!low.ok()) return low.status();
  record["plots"] = {
      {{"title", "A row without an allowed key"},
       {"note",
        "Small sentinels leave the softmax of the hidden scores, large ones round it to the "
        "mean of v (3.75); a line ends where the sentinel is infinite and the row NaN."},
       {"x", {{"label", "-sentinel"}, {"scale", "log"}}},
       {"y", {{"label", "out"}, {"scale", "linear"}}},
       {"series", *all}},
      {{"title", "A hidden key before scores near -12000"},
       {"note", "The hidden key's value is 64, the right output 1."},
       {"x", {{"label", "-sentinel"}, {"scale", "log"}}},
       {"y", {{"label", "out"}, {"scale", "linear"}}},
       {"series", *low}}};
  record["notes"] = {
      "Sums of score and sentinel are rounded to the type that is named; softmax and the product "
      "with v are exact from there on, so a difference is that of the convention.",
      "An empty row of zeros counts as finite: it raises no error, and it is what some declare.",
      "A convention is a translation of the call to a contract (docs/contract.md); the contracts "
      "are "
      "in the source."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
