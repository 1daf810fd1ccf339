// SPDX-License-Identifier: Apache-2.0
// The mutation score: every fault of the catalogue, every control and every built-in kernel before
// the suites of the audit, which do not know which of them they face.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "audit/suite.h"
#include "experiments/experiment.h"
#include "experiments/mutation_subjects.h"
#include "experiments/record.h"
#include "optimized/targets.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// Seeds by which nothing right may be flagged, in a full run that does not say how many.
constexpr std::uint64_t kFullSeeds = 2;
// Audits of smaller cases on the way to the smallest.
constexpr Index kQuickCalls = 20;
constexpr Index kFullCalls = 1000;

std::string CodesOf(const MutationRow& row) {
  std::string codes;
  for (const auto& [code, cases] : row.codes) codes += (codes.empty() ? "" : ", ") + code;
  return codes;
}

StatusOr<std::unique_ptr<Auditor>> MakeAuditor(const std::string& suite, std::uint64_t seed) {
  StatusOr<std::vector<SuiteCase>> cases = MakeSuite(suite, seed);
  if (!cases.ok()) return cases.status();
  AuditOptions options;
  options.seed = seed;
  return std::make_unique<Auditor>(*std::move(cases), options);
}

// All rows, on several threads; of the kernels only those of one SIMD target at a time, because a
// target is forced for the whole process.
class Scoreboard {
 public:
  explicit Scoreboard(const ExperimentOptions& options)
      : options_(options), seeds_(SeedsOf(options)) {}

  // Quick: every fault up to its first failing case, every control by the suite quick. Full: every
  // case for every fault; controls by quick and standard; kernels, and for more seeds controls too,
  // by quick.
  Status Run() {
    std::vector<MutationSubject> faults;
    std::vector<MutationSubject> controls;
    for (MutationSubject& subject : PlainSubjects()) {
      (subject.kind == MutationKind::kFault ? faults : controls).push_back(std::move(subject));
    }
    std::vector<MutationSubject> kernels;
    if (!options_.quick) kernels = KernelSubjects();
    all_ = faults.size() + seeds_ * (controls.size() + kernels.size());
    const AuditExtent extent = options_.quick ? AuditExtent::kFirstFailure : AuditExtent::kAllCases;
    for (std::uint64_t seed = 0; seed < seeds_; ++seed) {
      StatusOr<std::unique_ptr<Auditor>> quick = MakeAuditor("quick", options_.seed + seed);
      if (!quick.ok()) return quick.status();
      StatusOr<std::unique_ptr<Auditor>> standard = MakeAuditor("standard", options_.seed + seed);
      if (!standard.ok()) return standard.status();
      const std::vector<Auditor*> both{quick->get(), standard->get()};
      const std::vector<Auditor*> only_quick{quick->get()};
      // What quick misses goes on to standard.
      if (seed == 0) {
        if (Status s = Examine(faults, seed, both, extent); !s.ok()) return s;
      }
      const std::vector<Auditor*>& suites = seed == 0 && !options_.quick ? both : only_quick;
      if (Status s = Examine(controls, seed, suites, AuditExtent::kAllCases); !s.ok()) return s;
      if (Status s = ExamineKernels(kernels, seed, only_quick); !s.ok()) return s;
    }
    return Status();
  }

  std::uint64_t seeds() const { return seeds_; }
  const std::vector<MutationRow>& rows() const { return rows_; }
  // Findings on what is right, as "name, seed S: codes".
  const std::vector<std::string>& false_alarms() const { return false_alarms_; }

 private:
  static std::uint64_t SeedsOf(const ExperimentOptions& options) {
    if (options.seeds > 0) return static_cast<std::uint64_t>(options.seeds);
    return options.quick ? 1 : kFullSeeds;
  }

  // Kernels in the order of KernelSubjects().
  Status ExamineKernels(const std::vector<MutationSubject>& kernels, std::uint64_t seed,
                        const std::vector<Auditor*>& suites) {
    for (auto first = kernels.begin(); first != kernels.end();) {
      const auto last = std::find_if(first, kernels.end(), [&](const MutationSubject& kernel) {
        return kernel.group != first->group;
      });
      const StatusOr<ScopedTarget> target = ScopedTarget::Force(first->group);
      if (!target.ok()) return target.status();
      const Status status = Examine({first, last}, seed, suites, AuditExtent::kAllCases);
      if (!status.ok()) return status;
      first = last;
    }
    return Status();
  }

  Status Examine(const std::vector<MutationSubject>& subjects, std::uint64_t seed,
                 const std::vector<Auditor*>& suites, AuditExtent extent) {
    std::vector<StatusOr<MutationRow>> rows(subjects.size(), StatusOr<MutationRow>(MutationRow{}));
    std::mutex mutex;
    ThreadPool pool(options_.threads);
    pool.Run(subjects.size(), [&](std::size_t i, std::size_t /*thread*/) {
      rows[i] =
          ExamineMutation(subjects[i], suites, extent, options_.quick ? kQuickCalls : kFullCalls);
      const std::lock_guard<std::mutex> lock(mutex);
      if (options_.progress) options_.progress(++done_, all_);
    });
    for (StatusOr<MutationRow>& row : rows) {
      if (!row.ok()) return row.status();
      if (row->subject.kind != MutationKind::kFault && !row->suite.empty()) {
        false_alarms_.push_back(
            fmt::format("{}, seed {}: {}", row->subject.name, options_.seed + seed, CodesOf(*row)));
      }
      if (seed == 0) rows_.push_back(*std::move(row));
    }
    return Status();
  }

  const ExperimentOptions& options_;
  const std::uint64_t seeds_;
  std::vector<MutationRow> rows_;
  std::vector<std::string> false_alarms_;
  std::size_t done_ = 0;
  std::size_t all_ = 0;
};

}  // namespace

StatusOr<ordered_json> RunMutation(const ExperimentOptions& options) {
  Scoreboard board(options);
  if (Status s = board.Run(); !s.ok()) return s;

  Index faults = 0;
  Index killed = 0;
  Index killed_by_quick = 0;
  Index controls = 0;
  Index kernels = 0;
  ordered_json survivors = ordered_json::array();
  ordered_json matrix = ordered_json::array();
  ordered_json fault_rows = ordered_json::array();
  ordered_json right_rows = ordered_json::array();
  std::map<std::string, std::set<std::string>> killers;  // code: faults
  std::vector<double> seconds;
  for (const MutationRow& row : board.rows()) {
    matrix.push_back(ToJson(row));
    Index cases = 0;
    for (const auto& [family, count] : row.families) cases += count;
    if (row.subject.kind != MutationKind::kFault) {
      ++(row.subject.kind == MutationKind::kControl ? controls : kernels);
      right_rows.push_back({row.subject.name, row.subject.behaviour, row.subject.reference,
                            row.cases_run, row.suite.empty() ? "none" : CodesOf(row)});
      continue;
    }
    ++faults;
    seconds.push_back(row.seconds);
    killed += row.suite.empty() ? 0 : 1;
    killed_by_quick += row.suite == "quick" ? 1 : 0;
    if (row.suite.empty()) survivors.push_back(row.subject.name);
    for (const auto& [code, count] : row.codes) killers[code].insert(row.subject.name);
    fault_rows.push_back({row.subject.name, row.subject.group, row.subject.behaviour,
                          row.subject.reference, row.suite.empty() ? "survives" : row.suite, cases,
                          row.codes.size(), row.smallest});
  }
  ordered_json law_rows = ordered_json::array();
  for (const FindingKind& kind : FindingKinds()) {
    Index alone = 0;
    for (const MutationRow& row : board.rows()) {
      const bool fault = row.subject.kind == MutationKind::kFault;
      alone += fault && row.codes.size() == 1 && row.codes.contains(kind.code) ? 1 : 0;
    }
    law_rows.push_back({kind.code, kind.title, killers[kind.code].size(), alone});
  }

  ordered_json record = NewRecord(
      {.name = "mutation",
       .title = "Mutation score of the audit",
       .claim = "An audit by derived bounds and laws tells faulty implementations from right ones "
                "without a tuned tolerance.",
       .source = "Faults and controls that were reported in public in real implementations, each "
                 "with its reference, and some that everybody knows.",
       .rule =
           "Reproduced if the suite standard finds something in every fault, the suite quick in "
           "at least 90% of them, and neither in a control or a built-in kernel."});
  const std::size_t alarms = board.false_alarms().size();
  const bool holds = killed == faults && 10 * killed_by_quick >= 9 * faults && alarms == 0;
  record["verdict"] = holds ? "reproduced" : "not reproduced";
  std::sort(seconds.begin(), seconds.end());
  record["summary"] = fmt::format(
      "{} of {} faults killed, {} of them by the suite quick; {} false alarms on {} controls{}.",
      killed, faults, killed_by_quick, alarms, controls,
      options.quick ? std::string()
                    : fmt::format(" and {} pairs of kernel and SIMD target, {} seeds", kernels,
                                  board.seeds()));
  record["faults"] = faults;
  record["killed"] = killed;
  record["killed_by_quick"] = killed_by_quick;
  record["controls"] = controls;
  record["kernels"] = kernels;
  record["false_alarms"] = alarms;
  record["survivors"] = survivors;
  record["alarms"] = board.false_alarms();
  record["tables"] = {
      {{"title", "Faults"},
       {"note",
        "The suite that finds it, how many of its cases fail, how many kinds of findings "
        "there are, and the smallest case that was found on the way to a minimal one."},
       {"columns",
        {"fault", "class", "behaviour", "reported in", "killed by", "cases failed", "kinds",
         "smallest case"}},
       {"rows", fault_rows}},
      {{"title", "What kills"},
       {"note", "How many faults each kind of finding shows, and how many it alone shows."},
       {"columns", {"finding", "statement", "faults", "alone"}},
       {"rows", law_rows}},
      {{"title", "Controls and kernels"},
       {"note", "Right implementations; findings here would be false alarms."},
       {"columns", {"implementation", "why it is right", "reported in", "cases run", "findings"}},
       {"rows", right_rows}}};
  AddManifest(options, "", &record);
  // Times differ from run to run, so they are not part of what the manifest's digest covers.
  record["matrix"] = matrix;
  if (!seconds.empty()) {
    record["notes"].push_back(fmt::format(
        "Audits of a fault took {:.1f} s (median) to {:.1f} s with certified values at hand; one "
        "pass over the suite quick, or over quick and standard where quick found nothing.",
        seconds[seconds.size() / 2], seconds.back()));
  }
  return record;
}

}  // namespace attest
