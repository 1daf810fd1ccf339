// SPDX-License-Identifier: Apache-2.0
// Errors of exp, 2^x, ln and tanh of floats: the kernels' in every mode and on every SIMD target,
// Highway's, the C library's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"
#include "experiments/exact_function.h"
#include "experiments/experiment.h"
#include "experiments/function_subjects.h"
#include "experiments/record.h"
#include "experiments/ulp_scan.h"
#include "optimized/targets.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr double kClaimedUlp = 0.75;
constexpr std::uint32_t kQuickStride = 1u << 10;
constexpr std::uint32_t kThinStride = 1u << 6;  // full: where one float takes too long

struct Line {
  FunctionSubject subject;
  UlpTally tally;
};

// What is to be run: one function, some subjects, some floats. `keep` says whose tallies count;
// others are there to compare bits with.
struct Pass {
  const FunctionQuestion* question;
  std::vector<FunctionSubject> subjects;
  std::vector<bool> keep;
  std::vector<FloatRange> ranges;
};

std::vector<Pass> PassesOf(const FunctionQuestion& question, bool quick) {
  const std::vector<FunctionSubject> subjects = SubjectsOf(question);
  std::vector<FloatRange> sample = EveryFloat(quick ? kQuickStride : kThinStride);
  for (const float x : question.witnesses) {
    const FloatRange window = WindowAround(x);
    const bool known = std::any_of(sample.begin(), sample.end(), [&](const FloatRange& range) {
      return range.first == window.first;
    });
    if (!known) sample.push_back(window);
  }
  if (quick) return {{&question, subjects, std::vector<bool>(subjects.size(), true), sample}};
  Pass all{&question, {}, {}, AllFloats()};
  Pass thin{&question, {}, {}, sample};
  for (const FunctionSubject& subject : subjects) {
    const bool slow = TakesLong(subject);
    if (!slow) {
      all.subjects.push_back(subject);
      all.keep.push_back(true);
    }
    // The first target is what bits are compared with.
    if (slow || subject.target == RunnableTargets().front()) {
      thin.subjects.push_back(subject);
      thin.keep.push_back(slow);
    }
  }
  return {all, thin};
}

std::string Hex(float x) { return fmt::format("{:a}", x); }

// By |x| for x below 0, and the line of exp, every variant on the first target, Highway's on SSE4.
ordered_json ExpSeries(const std::vector<Line>& lines) {
  ordered_json series = ordered_json::array();
  for (const Line& line : lines) {
    const std::string& target = line.subject.target;
    const bool highway = line.subject.library == "Highway";
    if (!target.empty() && target != RunnableTargets().front() && !(highway && target == "SSE4")) {
      continue;
    }
    ordered_json points = ordered_json::array();
    for (int exponent = -14; exponent <= 6; ++exponent) {
      const double error = line.tally.by_binade[static_cast<std::size_t>(256 + 127 + exponent)];
      points.push_back({std::ldexp(1.0, exponent), std::round(error * 1e6) / 1e6});
    }
    series.push_back({{"name", fmt::format("{} {}{}{}", line.subject.library, line.subject.variant,
                                           target.empty() ? "" : ", ", target)},
                      {"points", points}});
  }
  return series;
}

}  // namespace

StatusOr<ordered_json> RunExponentials(const ExperimentOptions& options) {
  std::vector<Pass> passes;
  for (const FunctionQuestion& question : FunctionQuestions()) {
    for (Pass& pass : PassesOf(question, options.quick)) passes.push_back(std::move(pass));
  }
  std::size_t all = 0;
  std::string inputs;
  for (const Pass& pass : passes) {
    for (const FloatRange& range : pass.ranges) {
      all += range.count;
      inputs += fmt::format("{} {} {}\n", range.first, range.stride, range.count);
    }
  }
  std::size_t done = 0;
  std::vector<std::vector<Line>> lines(FunctionQuestions().size());
  for (const Pass& pass : passes) {
    StatusOr<std::vector<UlpTally>> tallies =
        ScanFunction(pass.question->function, pass.subjects, pass.ranges, options.threads,
                     [&](std::uint64_t floats) {
                       done += floats;
                       if (options.progress) options.progress(done, all);
                     });
    if (!tallies.ok()) return tallies.status();
    auto& of_function = lines[static_cast<std::size_t>(pass.question - FunctionQuestions().data())];
    for (std::size_t s = 0; s < pass.subjects.size(); ++s) {
      if (pass.keep[s]) of_function.push_back({pass.subjects[s], (*tallies)[s]});
    }
  }

  ordered_json error_rows = ordered_json::array();
  ordered_json claim_rows = ordered_json::array();
  ordered_json calibration_rows = ordered_json::array();
  const bool known_library = CLibrary() == "glibc 2.36";
  bool calibrated = true;
  bool same_bits = true;
  double worst_exp = 0.0;
  float worst_at = 0.0f;
  double reproducible_exp = 0.0;
  double accurate_exp = 0.0;
  double highway_exp = 0.0;
  for (std::size_t q = 0; q < FunctionQuestions().size(); ++q) {
    const FunctionQuestion& question = FunctionQuestions()[q];
    struct Variant {
      std::string name;
      double largest = 0.0;
      float at = 0.0f;
      std::uint64_t differs = 0;
      std::string elsewhere{};  // targets with other bits
    };
    std::vector<Variant> variants;
    for (const Line& line : lines[q]) {
      const UlpTally& tally = line.tally;
      error_rows.push_back({line.subject.library, line.subject.variant,
                            line.subject.target.empty() ? "-" : line.subject.target, tally.inputs,
                            fmt::format("{:.6f}", tally.largest), Hex(tally.at), Hex(tally.got),
                            Hex(tally.wanted), tally.wrong, tally.differs});
      if (line.subject.library == "Highway" && question.function == ExactFunction::kExp) {
        highway_exp = std::max(highway_exp, tally.largest);
      }
      if (line.subject.library == CLibrary()) {
        // As published, to their digits.
        const std::size_t digits = question.published.size() - 2;
        const bool maximum = fmt::format("{:.{}f}", tally.largest, digits) == question.published;
        const double wrong = static_cast<double>(tally.wrong);
        const double published = static_cast<double>(question.published_wrong);
        const bool count = options.quick || question.published_wrong == 0 ||
                           std::fabs(wrong - published) <= 1e-3 * published;
        if (known_library) calibrated = calibrated && maximum && count;
        calibration_rows.push_back(
            {CLibrary(), question.c_name, question.published, fmt::format("{:.6f}", tally.largest),
             Hex(tally.at),
             question.published_wrong == 0 ? ordered_json("-")
                                           : ordered_json(question.published_wrong),
             options.quick ? ordered_json("sample") : ordered_json(tally.wrong),
             known_library ? (maximum && count ? "met" : "missed") : "not judged"});
      }
      if (line.subject.library != "Attest") continue;
      auto variant = std::find_if(variants.begin(), variants.end(),
                                  [&](const Variant& v) { return v.name == line.subject.variant; });
      if (variant == variants.end()) {
        variants.push_back({line.subject.variant});
        variant = variants.end() - 1;
      }
      if (tally.largest > variant->largest) {
        variant->largest = tally.largest;
        variant->at = tally.at;
      }
      variant->differs += tally.differs;
      if (tally.differs > 0) {
        variant->elsewhere += (variant->elsewhere.empty() ? "" : ", ") + line.subject.target;
      }
    }
    for (const Variant& variant : variants) {
      claim_rows.push_back(
          {variant.name, fmt::format("{:.6f}", variant.largest), Hex(variant.at),
           variant.largest <= kClaimedUlp ? "yes" : "no",
           variant.elsewhere.empty() ? "the same everywhere" : "others on " + variant.elsewhere});
      const bool reproducible = variant.name.ends_with("reproducible");
      if (reproducible) same_bits = same_bits && variant.differs == 0;
      if (question.function != ExactFunction::kExp) continue;
      if (variant.largest > worst_exp) {
        worst_exp = variant.largest;
        worst_at = variant.at;
      }
      if (reproducible) reproducible_exp = variant.largest;
      if (variant.name.ends_with("accurate")) accurate_exp = variant.largest;
    }
  }

  ordered_json record = NewRecord(
      {.name = "exponentials",
       .title = "How accurate exp, 2^x, ln and tanh of floats are",
       .claim =
           "The exponential of the kernels errs by at most 0.75 ULP in every mode, and in mode "
           "Reproducible every function has the same bits on every SIMD target.",
       .source =
           "Of the project itself, against Highway 1.0.3 (contrib/math, documented as ULP = 1 "
           "by the distance of integers). The meter is calibrated on glibc by the figures of "
           "ARM-software/optimized-routines (math/expf.c, exp2f.c, logf.c: 0.502, 0.502, "
           "0.818) and Gladman et al. 2025 (tanhf: 2.19).",
       .rule = fmt::format(
           "Refuted if one float is certified for which exp errs by more than {} ULP in any mode "
           "on any target, or if bits of Reproducible differ between targets; else reproduced, and "
           "with limits where only a sample was run. Not reproduced if the C library is glibc 2.36 "
           "and its largest errors are not the published ones to their printed digits (all floats: "
           "or wrong results of expf and exp2f differ from 170635 and 168353 by more than 0.1%): "
           "the meter is wrong. "
           "Other functions and modes are held against the same {} ULP in a table, without a say.",
           kClaimedUlp, kClaimedUlp)});
  if (!calibrated) {
    record["verdict"] = "not reproduced";
  } else if (worst_exp > kClaimedUlp || !same_bits) {
    record["verdict"] = "refuted";
  } else {
    record["verdict"] = options.quick ? "reproduced with limits" : "reproduced";
  }
  record["summary"] = fmt::format(
      "exp errs by up to {:.6f} ULP, at {}: Accurate {:.6f}, Reproducible {:.6f}; Highway's "
      "{:.6f}. Reproducible has {} on {} targets. The meter is {}.",
      worst_exp, Hex(worst_at), accurate_exp, reproducible_exp, highway_exp,
      same_bits ? "the same bits" : "different bits", RunnableTargets().size(),
      !known_library ? "not calibrated (another C library)" : (calibrated ? "calibrated" : "off"));
  record["tables"] = {
      {{"title", "The claim, by function and mode"},
       {"note", "Largest error on any target. Bits are compared with those of the first target."},
       {"columns", {"function, mode", "largest error (ULP)", "at", "at most 0.75", "bits"}},
       {"rows", claim_rows}},
      {{"title", "Errors"},
       {"note",
        "ULP = |got - exact| / ulp(exact), correct rounding is at most 0.5; subnormal results "
        "count in 2^-149, infinity as 2^128. Largest errors are certified; 'wrong' is not "
        "correctly "
        "rounded; 'differs' counts bits unlike those of the same function on the first target. "
        "2^x in softmax answers for x <= 127.5, Fast for x > -126.5; Highway for its documented "
        "ranges."},
       {"columns",
        {"library", "function, mode", "target", "floats", "largest error (ULP)", "at", "got",
         "wanted", "wrong", "differs"}},
       {"rows", error_rows}},
      {{"title", "Calibration"},
       {"note", "The C library's functions against what is published of them."},
       {"columns",
        {"library", "function", "published largest (ULP)", "measured", "at", "published wrong",
         "measured wrong", "verdict"}},
       {"rows", calibration_rows}}};
  record["plots"] = {{{"title", "Largest error of exp by binade of -x"},
                      {"note", "From |x| to 2|x|, below zero."},
                      {"x", {{"label", "|x|"}, {"scale", "log"}}},
                      {"y", {{"label", "ULP"}, {"scale", "linear"}}},
                      {"series", ExpSeries(lines.front())}}};
  record["notes"] = {
      options.quick
          ? fmt::format("A sample: every {}th float of every binade, and the 65,536 floats around "
                        "each of the arguments where all floats showed a largest error. 'Wrong' "
                        "counts those alone. --full runs all 2^32 floats.",
                        kQuickStride)
          : fmt::format("All 2^32 floats; where multiply-adds are emulated, and on targets below "
                        "SSE4, which do what SSE4 does, every {}th and the windows of the sample.",
                        kThinStride),
      "Exact values: Taylor polynomials around certified values, 2^-52 relative; where that leaves "
      "a rounding open, and for the largest errors, the reference certifies.",
      "Nothing is drawn: the seed has no influence."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
