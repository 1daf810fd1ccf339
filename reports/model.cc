// SPDX-License-Identifier: Apache-2.0
// Verdicts and their order.
#include "reports/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "reports/text.h"

namespace attest::reports {
namespace {

// `name`, or name_2, name_3 ... when it is taken, also where upper and lower case are the same.
std::string Unique(const std::string& name, std::set<std::string>& taken) {
  const auto lower = [](std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return text;
  };
  std::string candidate = name;
  for (int i = 2; !taken.insert(lower(candidate)).second; ++i) {
    candidate = fmt::format("{}_{}", name, i);
  }
  return candidate;
}

// A NaN error is as bad as an infinite one.
double SortKey(std::optional<double> ratio) {
  if (!ratio) return -1;
  return std::isnan(*ratio) ? HUGE_VAL : *ratio;
}

std::string ErrorPhrase(const Json& finding) {
  const std::optional<double> ratio = NumberOf(Field(Field(finding, "worst"), "bound_ratio"));
  if (!ratio) return "";
  if (!std::isfinite(*ratio)) return "; the error is not finite";
  if (!(*ratio > 1)) return "";
  return fmt::format("; the error is {} times its bound", FormatRatio(*ratio));
}

// The worst first; equal ones in order of insertion.
using RankedPointers = std::multimap<double, Pointer, std::greater<>>;

void AddFindings(const Entry& audit, RankedPointers& pointers) {
  std::size_t number = 0;
  for (const Json& finding : Items(*audit.record, "findings")) {
    ++number;
    std::string where = TextOf(Field(finding, "case"));
    const std::string tensor = TextOf(Field(finding, "tensor"));
    if (!where.empty() && !tensor.empty()) where += ", ";
    where += tensor;
    if (!where.empty()) where = " (" + where + ")";
    const double key = SortKey(NumberOf(Field(Field(finding, "worst"), "bound_ratio")));
    pointers.emplace(key, Pointer{AuditName(*audit.record),
                                  TextOr(finding, "title") + where + ErrorPhrase(finding),
                                  fmt::format("{}:finding-{}", audit.id, number)});
  }
}

void AddRest(const Entry& audit, std::vector<Pointer>& pointers) {
  const std::string name = AuditName(*audit.record);
  const std::int64_t crashed = CountOf(Field(*audit.record, "cases"), "crashed");
  if (crashed > 0) {
    pointers.push_back({name, Counted(crashed, "case", "cases") + " crashed or hung", audit.id});
  }
  std::int64_t violated = 0;
  for (const Json& law : Items(*audit.record, "laws")) {
    violated += CountOf(law, "violations") > 0 ? 1 : 0;
  }
  if (violated > 0) {
    pointers.push_back(
        {name, Counted(violated, "law does", "laws do") + " not hold", audit.id + ":laws"});
  }
  if (CountOf(Field(*audit.record, "cases"), "run") == 0) {
    pointers.push_back({name, "no case was run", audit.id});
  }
}

void AddClosest(const Report& report, std::vector<Pointer>& pointers) {
  const Entry* closest = nullptr;
  WorstRatio worst;
  for (const Entry& audit : report.audits) {
    WorstRatio candidate = WorstRatioOf(*audit.record);
    if (candidate.ratio && SortKey(candidate.ratio) > SortKey(worst.ratio)) {
      worst = std::move(candidate);
      closest = &audit;
    }
  }
  if (closest == nullptr) return;
  pointers.push_back({AuditName(*closest->record),
                      fmt::format("comes closest to its bound: error / bound = {} in {}, {}",
                                  FormatRatio(*worst.ratio), worst.case_name, worst.tensor),
                      closest->id});
}

}  // namespace

StatusOr<Report> ReadRecords(const Json& records) {
  if (!records.is_array()) return InvalidArgument("a report needs an array of run records");
  Report report;
  // The page's own ids.
  std::set<std::string> taken = {"main",    "summary",  "experiments", "implementations",
                                 "reading", "manifest", "reproduce"};
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Json& record = records[i];
    const bool is_audit = Field(record, "attest_result") == 1;
    const bool is_experiment = Field(record, "attest_experiment") == 1;
    if (is_audit == is_experiment) {
      return InvalidArgument(fmt::format(
          "run record {} has neither \"attest_result\": 1 nor \"attest_experiment\": 1", i));
    }
    const Json& name = Field(is_audit ? Field(record, "implementation") : record, "name");
    const std::string id = Unique(SafeName(TextOf(name)), taken);
    (is_audit ? report.audits : report.experiments).push_back({&record, id});
  }
  return report;
}

std::string AuditName(const Json& audit) { return TextOr(Field(audit, "implementation"), "name"); }

std::string ExperimentTitle(const Json& experiment) {
  const std::string title = TextOf(Field(experiment, "title"));
  return title.empty() ? TextOr(experiment, "name") : title;
}

std::int64_t FindingCount(const Json& audit) {
  return static_cast<std::int64_t>(Items(audit, "findings").size());
}

Verdict AuditVerdict(const Json& audit) {
  const std::string verdict = TextOf(Field(audit, "verdict"));
  if (verdict == "findings" || FindingCount(audit) > 0) return {"findings", Tone::kBad};
  if (verdict == "conforms") return {"conforms", Tone::kGood};
  return {"no verdict", Tone::kNeutral};
}

Verdict ExperimentVerdict(const Json& experiment) {
  const std::string verdict = TextOf(Field(experiment, "verdict"));
  if (verdict == "reproduced") return {verdict, Tone::kGood};
  if (verdict == "reproduced with limits") return {verdict, Tone::kCaution};
  if (verdict == "not reproduced" || verdict == "refuted") return {verdict, Tone::kBad};
  return {verdict.empty() ? "no verdict" : verdict, Tone::kNeutral};
}

WorstRatio WorstRatioOf(const Json& audit) {
  WorstRatio worst;
  for (const Json& result : Items(audit, "case_results")) {
    for (const Json& output : Items(result, "outputs")) {
      const std::optional<double> ratio = NumberOf(Field(output, "max_bound_ratio"));
      if (!ratio || (worst.ratio && SortKey(ratio) <= SortKey(worst.ratio))) continue;
      worst = {ratio, TextOr(result, "case"), TextOr(output, "tensor")};
    }
  }
  return worst;
}

Verdict Headline(const Report& report) {
  std::int64_t findings = 0;
  std::int64_t with_findings = 0;
  std::int64_t without_verdict = 0;
  const auto audits = static_cast<std::int64_t>(report.audits.size());
  for (const Entry& audit : report.audits) {
    const Verdict verdict = AuditVerdict(*audit.record);
    findings += FindingCount(*audit.record);
    with_findings += verdict.tone == Tone::kBad ? 1 : 0;
    without_verdict += verdict.tone == Tone::kNeutral ? 1 : 0;
  }
  const std::string all = Counted(audits, "implementation", "implementations");
  if (with_findings > 0) {
    const std::string count = findings == 0 ? "Findings" : Counted(findings, "finding", "findings");
    return {fmt::format("{} in {} of {}", count, with_findings, all), Tone::kBad};
  }
  if (without_verdict > 0) {
    return {fmt::format("No verdict on {} of {}", without_verdict, all), Tone::kNeutral};
  }
  if (audits == 1) return {"The implementation conforms", Tone::kGood};
  if (audits > 1) return {fmt::format("All {} conform", all), Tone::kGood};
  if (report.experiments.empty()) return {"This report holds no run records", Tone::kNeutral};
  for (const Tone tone : {Tone::kBad, Tone::kNeutral, Tone::kCaution}) {
    std::int64_t count = 0;
    for (const Entry& experiment : report.experiments) {
      count += ExperimentVerdict(*experiment.record).tone == tone ? 1 : 0;
    }
    if (count == 0) continue;
    const char* text = tone == Tone::kBad       ? "{} of {} did not hold"
                       : tone == Tone::kCaution ? "{} of {} held with limits only"
                                                : "No verdict on {} of {}";
    return {fmt::format(
                fmt::runtime(text), count,
                Counted(static_cast<std::int64_t>(report.experiments.size()), "claim", "claims")),
            tone};
  }
  return {
      report.experiments.size() == 1 ? "The claim was reproduced" : "All claims were reproduced",
      Tone::kGood};
}

std::vector<std::string> SummarySentences(const Report& report) {
  std::vector<std::string> sentences;
  if (!report.audits.empty()) {
    std::int64_t run = 0;
    std::int64_t conforming = 0;
    std::vector<std::string> suites;
    for (const Entry& audit : report.audits) {
      run += CountOf(Field(*audit.record, "cases"), "run");
      conforming += AuditVerdict(*audit.record).tone == Tone::kGood ? 1 : 0;
      for (const Json& suite : Items(*audit.record, "suites")) {
        const std::string name = TextOf(suite);
        if (std::find(suites.begin(), suites.end(), name) == suites.end()) suites.push_back(name);
      }
    }
    const auto audits = static_cast<std::int64_t>(report.audits.size());
    const std::string in_suites =
        suites.empty() ? ""
                       : fmt::format("{} {}, ", suites.size() == 1 ? "suite" : "suites",
                                     fmt::join(suites, ", "));
    sentences.push_back(fmt::format("{} audited ({}{} in all); {} of {} {}.",
                                    Counted(audits, "implementation was", "implementations were"),
                                    in_suites, Counted(run, "case run", "case runs"), conforming,
                                    audits, conforming == 1 ? "conforms" : "conform"));
  }
  if (!report.experiments.empty()) {
    std::vector<std::pair<std::string, int>> counts;
    for (const Entry& experiment : report.experiments) {
      const std::string verdict = ExperimentVerdict(*experiment.record).text;
      const auto same = [&](const auto& count) { return count.first == verdict; };
      const auto found = std::find_if(counts.begin(), counts.end(), same);
      if (found == counts.end()) {
        counts.emplace_back(verdict, 1);
      } else {
        ++found->second;
      }
    }
    std::vector<std::string> parts;
    for (const auto& [verdict, count] : counts) {
      parts.push_back(fmt::format("{} {}", count, verdict));
    }
    sentences.push_back(fmt::format(
        "{} tested by experiment: {}.",
        Counted(static_cast<std::int64_t>(report.experiments.size()), "claim was", "claims were"),
        fmt::join(parts, ", ")));
  }
  return sentences;
}

std::vector<Pointer> LookAtFirst(const Report& report, std::size_t limit) {
  RankedPointers findings;
  for (const Entry& audit : report.audits) AddFindings(audit, findings);
  std::vector<Pointer> pointers;
  for (auto& [key, pointer] : findings) {
    // Findings must not crowd out everything else.
    if (pointers.size() == (limit + 1) / 2) break;
    pointers.push_back(std::move(pointer));
  }
  for (const Entry& audit : report.audits) AddRest(audit, pointers);
  for (const Entry& experiment : report.experiments) {
    const Verdict verdict = ExperimentVerdict(*experiment.record);
    if (verdict.tone != Tone::kBad) continue;
    pointers.push_back(
        {ExperimentTitle(*experiment.record), "claim " + verdict.text, experiment.id});
  }
  if (pointers.empty()) AddClosest(report, pointers);
  if (pointers.size() > limit) pointers.resize(limit);
  return pointers;
}

}  // namespace attest::reports
