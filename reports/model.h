// SPDX-License-Identifier: Apache-2.0
// What all formats of a report say alike: the records in order, their verdicts, what comes first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "reports/fields.h"

namespace attest::reports {

// A record, with a name that is unique in the report and safe as an HTML id and a file name.
struct Entry {
  const Json* record;
  std::string id;
};

// The records of a report; they must outlive it.
struct Report {
  std::vector<Entry> audits;
  std::vector<Entry> experiments;
};

// How a verdict is coloured and marked.
enum class Tone { kGood, kCaution, kBad, kNeutral };

struct Verdict {
  std::string text;
  Tone tone;
};

// Something that deserves attention, with the id of the part of the page that shows it.
struct Pointer {
  std::string subject;
  std::string text;
  std::string id;
};

// Sorts the records; InvalidArgument names the first that is no audit and no experiment.
StatusOr<Report> ReadRecords(const Json& records);

// "conforms", "findings" or "no verdict". A record that lists findings has findings, whatever its
// verdict says.
Verdict AuditVerdict(const Json& audit);
Verdict ExperimentVerdict(const Json& experiment);

// The implementation's or the experiment's name for people.
std::string AuditName(const Json& audit);
std::string ExperimentTitle(const Json& experiment);

// How many findings the record lists.
std::int64_t FindingCount(const Json& audit);

// The largest error / bound of any output of any case, and where it is.
struct WorstRatio {
  std::optional<double> ratio;
  std::string case_name;
  std::string tensor;
};
WorstRatio WorstRatioOf(const Json& audit);

// The verdict on the whole: the worst of all audits, in one short sentence.
Verdict Headline(const Report& report);

// What was run and how it ended, one sentence each.
std::vector<std::string> SummarySentences(const Report& report);

// At most `limit` things to look at first: findings by error / bound, crashes, broken laws, claims
// that did not hold; when there are none, what came closest to its bound.
std::vector<Pointer> LookAtFirst(const Report& report, std::size_t limit);

}  // namespace attest::reports
