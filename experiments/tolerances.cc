// SPDX-License-Identifier: Apache-2.0
// Which faults pass under the pass rules of public projects, and which right results fail.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "audit/suite.h"
#include "core/digest.h"
#include "experiments/experiment.h"
#include "experiments/mutation_subjects.h"
#include "experiments/random_cases.h"
#include "experiments/record.h"
#include "experiments/tolerance_subjects.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// Of a quick run: every fault runs one of so many cases of the suite, and of the others as many as
// the bound takes to find it.
constexpr std::size_t kQuickStride = 8;

// Judged cases as they are, and, for a subject that declares it, with another empty-row policy.
class CaseSet {
 public:
  Status Prepare(std::vector<Case> problems, int threads, ExpectationCache* cache) {
    std::vector<std::optional<StatusOr<JudgedCase>>> made(problems.size());
    ThreadPool pool(threads);
    pool.Run(problems.size(), [&](std::size_t i, std::size_t /*thread*/) {
      made[i] = JudgedCase::Make(std::move(problems[i]), cache);
    });
    for (std::optional<StatusOr<JudgedCase>>& judged : made) {
      if (!judged->ok()) return judged->status();
      cases_.push_back(*std::move(*judged));
    }
    return Status();
  }

  // One of `stride` cases and, where the bound finds nothing in them, the others until it does.
  StatusOr<RuleCounts> Count(const Subject& subject, std::size_t stride,
                             ExpectationCache* cache) const {
    RuleCounts counts;
    counts.tells.resize(PassRules().size());
    counts.rejects.resize(PassRules().size());
    for (std::size_t i = 0; i < cases_.size(); i += stride) {
      if (Status s = CountOne(cases_[i], subject, cache, &counts); !s.ok()) return s;
    }
    for (std::size_t i = 0; i < cases_.size() && counts.bound == 0; ++i) {
      if (i % stride == 0) continue;
      if (Status s = CountOne(cases_[i], subject, cache, &counts); !s.ok()) return s;
    }
    return counts;
  }

  std::string Digests() const {
    std::string digests;
    for (const JudgedCase& judged : cases_) digests += Sha256(judged.problem().tensors);
    return digests;
  }
  std::size_t size() const { return cases_.size(); }

 private:
  // A case whose convention for empty rows is another than the subject's is judged by that.
  static Status CountOne(const JudgedCase& judged, const Subject& subject, ExpectationCache* cache,
                         RuleCounts* counts) {
    const std::optional<EmptyRow> policy = subject.info().empty_row;
    if (!policy || *policy == judged.problem().contract.empty_row) {
      return judged.Count(subject, counts);
    }
    Case problem = judged.problem();
    problem.contract.empty_row = *policy;
    const StatusOr<JudgedCase> other = JudgedCase::Make(std::move(problem), cache);
    return other.ok() ? other->Count(subject, counts) : other.status();
  }

  std::vector<JudgedCase> cases_;
};

struct Row {
  MutationSubject subject;
  RuleCounts random;
  RuleCounts suite;
};

// Everything that is counted, over all faults and controls.
struct Totals {
  Index faults_found = 0;     // by the judge, on random data
  Index faults_missed = 0;    // by the judge on random data, but the bound finds them in the suite
  Index missed_by_judge = 0;  // of these, found by the bound on the same random data
  Index suite_found = 0;      // on the suite
  Index suite_missed = 0;     // on the suite, where the bound finds them
  Index alone = 0;            // found on random data where the bound finds nothing
  Index random_alarms = 0;    // results of right implementations that are rejected
  Index suite_alarms = 0;     // likewise
  std::set<std::string> wrong;  // right implementations that have such results
};

class Scoreboard {
 public:
  explicit Scoreboard(const ExperimentOptions& options) : options_(options) {}

  Status Run() {
    StatusOr<std::vector<SuiteCase>> items =
        MakeSuite(options_.quick ? "quick" : "standard", options_.seed);
    if (!items.ok()) return items.status();
    std::vector<Case> problems;
    for (SuiteCase& item : *items) problems.push_back(std::move(item.problem));
    const int threads = options_.threads;
    Status s = random_.Prepare(RandomCases(!options_.quick, options_.seed), threads, &cache_);
    if (s.ok()) s = suite_.Prepare(std::move(problems), threads, &cache_);
    if (!s.ok()) return s;

    for (MutationSubject& subject : PlainSubjects()) rows_.push_back({std::move(subject), {}, {}});
    std::vector<Status> statuses(rows_.size());
    std::mutex mutex;
    std::size_t done = 0;
    ThreadPool pool(threads);
    pool.Run(rows_.size(), [&](std::size_t i, std::size_t /*thread*/) {
      statuses[i] = Examine(&rows_[i]);
      const std::lock_guard<std::mutex> lock(mutex);
      if (options_.progress) options_.progress(++done, rows_.size());
    });
    for (const Status& status : statuses) {
      if (!status.ok()) return status;
    }
    return Status();
  }

  // Of the derived bound (no rule), or of a rule.
  Totals TotalsOf(std::optional<std::size_t> rule) const {
    const auto tells = [&](const RuleCounts& counts) {
      return rule ? counts.tells[*rule] : counts.bound;
    };
    const auto rejects = [&](const RuleCounts& counts) {
      return rule ? counts.rejects[*rule] : counts.bound;
    };
    Totals totals;
    for (const Row& row : rows_) {
      if (row.subject.kind != MutationKind::kFault) {
        totals.random_alarms += rejects(row.random);
        totals.suite_alarms += rejects(row.suite);
        if (rejects(row.random) + rejects(row.suite) > 0) totals.wrong.insert(row.subject.name);
        continue;
      }
      const bool found = tells(row.random) > 0;
      const bool suite_found = tells(row.suite) > 0;
      totals.faults_found += found ? 1 : 0;
      totals.suite_found += suite_found ? 1 : 0;
      totals.alone += found && row.random.bound == 0 ? 1 : 0;
      if (row.suite.bound == 0) continue;
      totals.faults_missed += found ? 0 : 1;
      totals.missed_by_judge += !found && row.random.bound > 0 ? 1 : 0;
      totals.suite_missed += suite_found ? 0 : 1;
    }
    return totals;
  }

  const std::vector<Row>& rows() const { return rows_; }
  const CaseSet& random() const { return random_; }
  const CaseSet& suite() const { return suite_; }
  std::string digests() const { return random_.Digests() + suite_.Digests(); }

 private:
  Status Examine(Row* row) {
    // A subject for each set: some faults depend on the calls before.
    const std::size_t stride = options_.quick ? kQuickStride : 1;
    for (const bool suite : {false, true}) {
      const StatusOr<std::unique_ptr<Subject>> subject = MakeSubject(row->subject);
      if (!subject.ok()) return subject.status();
      const StatusOr<RuleCounts> counts =
          suite ? suite_.Count(**subject, stride, &cache_) : random_.Count(**subject, 1, &cache_);
      if (!counts.ok()) return counts.status();
      (suite ? row->suite : row->random) = *counts;
    }
    return Status();
  }

  const ExperimentOptions& options_;
  ExpectationCache cache_;
  CaseSet random_;
  CaseSet suite_;
  std::vector<Row> rows_;
};

std::vector<std::string> Columns(std::vector<std::string> first) {
  for (const PassRule& rule : PassRules()) first.push_back(rule.name);
  return first;
}

ordered_json CountRow(std::vector<ordered_json> first, const std::vector<Index>& counts) {
  ordered_json row(std::move(first));
  for (const Index count : counts) row.push_back(count);
  return row;
}

}  // namespace

StatusOr<ordered_json> RunTolerances(const ExperimentOptions& options) {
  Scoreboard board(options);
  if (Status s = board.Run(); !s.ok()) return s;
  const std::string inputs = board.digests();

  ordered_json rule_rows = ordered_json::array();
  ordered_json total_rows = ordered_json::array();
  ordered_json random_points = ordered_json::array();
  ordered_json suite_points = ordered_json::array();
  const auto add_total = [&](const std::string& name, const Totals& t) {
    total_rows.push_back({name, t.faults_found, t.faults_missed, t.missed_by_judge, t.alone,
                          t.suite_found, t.suite_missed, t.random_alarms, t.suite_alarms,
                          t.wrong.size()});
    random_points.push_back({total_rows.size() - 1, t.faults_found});
    suite_points.push_back({total_rows.size() - 1, t.suite_found});
  };
  const Totals bound = board.TotalsOf(std::nullopt);
  add_total("derived bound", bound);
  std::size_t blind = 0;
  Index least = bound.suite_found;
  Index most = 0;
  std::size_t alarming = 0;
  std::size_t blinder = 0;  // rules that let pass what the bound finds on the same data
  for (std::size_t rule = 0; rule < PassRules().size(); ++rule) {
    const Totals totals = board.TotalsOf(rule);
    const PassRule& text = PassRules()[rule];
    rule_rows.push_back({rule + 1, text.name, text.statement, text.source});
    add_total(text.name, totals);
    if (totals.faults_missed > 0) ++blind;
    least = std::min(least, totals.faults_missed);
    most = std::max(most, totals.faults_missed);
    if (!totals.wrong.empty()) ++alarming;
    if (totals.missed_by_judge > 0) ++blinder;
  }

  ordered_json random_rows = ordered_json::array();
  ordered_json suite_rows = ordered_json::array();
  ordered_json right_rows = ordered_json::array();
  Index faults = 0;
  for (const Row& row : board.rows()) {
    const MutationSubject& subject = row.subject;
    const RuleCounts& random = row.random;
    const RuleCounts& suite = row.suite;
    if (subject.kind == MutationKind::kFault) {
      ++faults;
      random_rows.push_back(CountRow(
          {subject.name, subject.group, random.cases, suite.bound > 0 ? "yes" : "no", random.bound},
          random.tells));
      suite_rows.push_back(
          CountRow({subject.name, subject.group, suite.cases, suite.bound}, suite.tells));
      continue;
    }
    right_rows.push_back(
        CountRow({subject.name, "random", random.cases, random.bound}, random.rejects));
    right_rows.push_back(
        CountRow({subject.name, "suite", suite.cases, suite.bound}, suite.rejects));
  }

  ordered_json record = NewRecord(
      {.name = "tolerances",
       .title = "Pass rules of public projects against the derived bound",
       .claim = "Fixed tolerances on random data let faults of attention pass that a derived bound "
                "finds on cases made for it.",
       .source = "The pass rules of eight projects, each with its file, in the first table; the "
                 "faults are those of the experiment `mutation`.",
       .rule =
           "Reproduced if every rule lets at least one fault pass on random data that the bound "
           "finds in the suite, and the bound rejects no control; reproduced with limits if "
           "more than half of the rules do. A rule finds a fault by a case whose result it "
           "rejects, unless it also rejects the plain implementation's right result."});
  const std::size_t rules = PassRules().size();
  const bool sound = bound.wrong.empty();
  record["verdict"] = sound && blind == rules      ? "reproduced"
                      : sound && 2 * blind > rules ? "reproduced with limits"
                                                   : "not reproduced";
  record["summary"] = fmt::format(
      "{} of {} rules let faults pass on random data that the bound finds in the suite: {} to {} "
      "of {} faults. The data hide {} of them from the bound as well; {} of the rules let more "
      "pass on the same data. {} of the rules reject right results of controls, the bound rejects "
      "{}.",
      blind, rules, least, most, bound.suite_found, bound.faults_missed, blinder, alarming,
      bound.random_alarms + bound.suite_alarms);
  record["faults"] = faults;
  record["tables"] = {
      {{"title", "Rules"},
       {"note",
        "ref: the reference, here the certified value; plain: a plain right implementation "
        "in the same precision. FP8 tolerances are applied to wider types as they stand."},
       {"columns", {"number", "rule", "accepts", "source"}},
       {"rows", rule_rows}},
      {{"title", "Totals"},
       {"note",
        fmt::format("{} faults; {} random cases; {} cases of the suite. Passing: not found, "
                    "though the bound finds it in the suite. False alarms: right results of "
                    "{} right implementations that are rejected.",
                    faults, board.random().size(), board.suite().size(), right_rows.size() / 2)},
       {"columns",
        {"judge", "found on random data", "pass on random data",
         "of these found by the bound there", "found where the bound finds nothing",
         "found in the suite", "pass in the suite", "false alarms, random", "false alarms, suite",
         "right implementations rejected"}},
       {"rows", total_rows}},
      {{"title", "Faults on random data"},
       {"note", "In how many cases each judge finds the fault; 0 passes."},
       {"columns", Columns({"fault", "class", "cases", "bound finds it in the suite", "bound"})},
       {"rows", random_rows}},
      {{"title", "Faults in the suite"},
       {"note", "In how many of the cases run each judge finds the fault; 0 passes."},
       {"columns", Columns({"fault", "class", "cases", "bound"})},
       {"rows", suite_rows}},
      {{"title", "Right implementations"},
       {"note", "How many right results each judge rejects: false alarms."},
       {"columns", Columns({"implementation", "inputs", "cases", "bound"})},
       {"rows", right_rows}}};
  record["plots"] = {
      {{"title", "Faults found"},
       {"note", "By the bound (0) and by the rules, numbered as in the first table."},
       {"x", {{"label", "number of the rule"}, {"scale", "linear"}}},
       {"y", {{"label", "faults found"}, {"scale", "linear"}}},
       {"series",
        {{{"name", "random data"}, {"points", random_points}},
         {{"name", "suite"}, {"points", suite_points}}}}}};
  record["notes"] = {
      "Every rule is given more than its project's tests give it: certified references, all "
      "outputs "
      "(weights and LSE too), every feature of the contract, normal and uniform inputs. Elements "
      "that the bound does not judge are left out for all; where the exact value is NaN or "
      "infinite "
      "the result must be the same for all.",
      "The plain implementation of FlashAttention's rules is the catalogue's own without a fault; "
      "for `out` in 16 bits one that rounds scores and weights to 16 bits.",
      "Faults that show only in the layout of memory, the number of threads or the bits of a "
      "second "
      "call are found by laws, not by any of these judges.",
      options.quick
          ? fmt::format("Of the suite quick, each subject runs one case in {}, and of the "
                        "others as many as the bound takes to find it.",
                        kQuickStride)
          : "All cases of the suite standard."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
