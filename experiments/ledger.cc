// SPDX-License-Identifier: Apache-2.0
// Every claim of the attention chapter in one list, with verdict, number and where it is tested.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "experiments/experiment.h"
#include "experiments/ledger_checks.h"
#include "experiments/record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// A claim whose verdict and number are those of an experiment; an empty one stands for the claims
// that its record lists by itself: "claims": [{"claim", "verdict", "number"}].
struct TestedClaim {
  const char* claim;
  const char* experiment;
};

// The ledger while it is filled in.
class Ledger {
 public:
  explicit Ledger(const ExperimentOptions& options) : options_(options) {}

  Status Add(const TestedClaim& tested) {
    StatusOr<ordered_json> record = RecordOf(tested.experiment);
    if (!record.ok()) return record.status();
    if (*tested.claim != 0) {
      AddRow(tested.claim, (*record)["verdict"], (*record)["summary"], tested.experiment);
      return Status();
    }
    if (!record->contains("claims")) {
      return Internal(fmt::format("{}: the record lists no claims", tested.experiment));
    }
    for (const ordered_json& claim : (*record)["claims"]) {
      AddRow(claim["claim"], claim["verdict"], claim["number"], tested.experiment);
    }
    return Status();
  }

  Status Add(const StatusOr<LedgerEntry>& entry) {
    if (!entry.ok()) return entry.status();
    AddRow(entry->claim, entry->verdict, entry->number, "ledger");
    return Status();
  }

  const ordered_json& rows() const { return rows_; }
  const std::map<std::string, int>& verdicts() const { return verdicts_; }

 private:
  void AddRow(const std::string& claim, const std::string& verdict, const std::string& number,
              const std::string& experiment) {
    rows_.push_back({claim, verdict, number, experiment});
    ++verdicts_[verdict];
  }

  // The record at hand, or else one of a run.
  StatusOr<ordered_json> RecordOf(const std::string& name) {
    if (options_.finished) {
      if (const ordered_json* record = options_.finished(name); record != nullptr) return *record;
    }
    if (const auto made = made_.find(name); made != made_.end()) return made->second;
    ExperimentOptions options = options_;
    options.progress = nullptr;
    StatusOr<ordered_json> record = RunExperiment(name, options);
    if (record.ok()) made_[name] = *record;
    return record;
  }

  const ExperimentOptions& options_;
  std::map<std::string, ordered_json> made_;
  ordered_json rows_ = ordered_json::array();
  std::map<std::string, int> verdicts_;
};

}  // namespace

StatusOr<ordered_json> RunLedger(const ExperimentOptions& options) {
  Ledger ledger(options);
  ordered_json gap_rows = ordered_json::array();
  const std::vector<std::function<Status()>> steps{
      [&] { return ledger.Add(CheckWeights(options)); },
      [&] { return ledger.Add({"Computed weights lie within a bound of them", "normalisation"}); },
      [&] { return ledger.Add(CheckGaps(&gap_rows)); },
      [&] { return ledger.Add({"Dot products grow with D_k: Var(q.k) = D_k", "scaling"}); },
      [&] { return ledger.Add({"The factor 1/sqrt(D_k) restores unit variance", "scaling"}); },
      [&] {
        return ledger.Add(
            {"Without the factor softmax saturates, and its gradient vanishes", "saturation"});
      },
      [&] { return ledger.Add({"The printed worked example", "worked-example"}); },
      [&] { return ledger.Add(CheckScores()); },
      [&] { return ledger.Add(CheckMasking(options)); },
      [&] { return ledger.Add(CheckEmptyRow()); },
      [&] {
        return ledger.Add({"What a mask means is not agreed on: conventions differ", "masks"});
      },
      [&] { return ledger.Add(CheckConvexity(options)); },
      [&] {
        return ledger.Add(
            {"Attention gives direct paths: gradients do not fall with distance", "path-length"});
      },
      [&] { return ledger.Add({"", "long-sentences"}); },
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (options.progress) options.progress(i, steps.size());
    if (Status s = steps[i](); !s.ok()) return s;
  }
  if (options.progress) options.progress(steps.size(), steps.size());

  ordered_json record = NewRecord(
      {.name = "ledger",
       .title = "Ledger of claims",
       .claim = "What introductions to attention say of it is true as it is said.",
       .source = "The claims that textbook chapters on attention share; each experiment names the "
                 "paper its own comes from.",
       .rule = "Reproduced if every claim is; reproduced with limits if some are, or are only with "
               "limits; each claim by the rule of its experiment, or here by certified values."});
  const auto count = [&](const char* verdict) {
    const auto found = ledger.verdicts().find(verdict);
    return found == ledger.verdicts().end() ? 0 : found->second;
  };
  const int all = static_cast<int>(ledger.rows().size());
  const int reproduced = count("reproduced");
  record["verdict"] = reproduced == all                                  ? "reproduced"
                      : reproduced + count("reproduced with limits") > 0 ? "reproduced with limits"
                                                                         : "not reproduced";
  std::string others;
  for (const auto& [verdict, claims] : ledger.verdicts()) {
    if (verdict != "reproduced") others += fmt::format(", {} {}", claims, verdict);
  }
  record["summary"] = fmt::format("{} claims: {} reproduced{}.", all, reproduced, others);
  record["tables"] = {
      {{"title", "Claims"},
       {"note", "The experiment named on the right holds the tables; `ledger` means this one."},
       {"columns", {"claim", "verdict", "number", "experiment"}},
       {"rows", ledger.rows()}},
      {{"title", "What softmax does to gaps"},
       {"note",
        "Two keys: the lower score is the level, the other is higher by the difference. Certified "
        "weights."},
       {"columns",
        {"difference of the scores", "level", "ratio of the scores", "ratio of the weights",
         "difference of the weights"}},
       {"rows", gap_rows}}};
  AddManifest(options, "", &record);
  return record;
}

}  // namespace attest
