// SPDX-License-Identifier: Apache-2.0
#include "properties/reference_validation/validation.h"

#include <fmt/format.h>
#include <mpfr.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/build_info.h"
#include "core/run_record.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Processor time of the calling thread.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr Index kLongRow = 1000;

// Most cases climb the whole ladder; rungs that nearly never get work that way are given some cases
// of their own.
CertifyOptions OptionsOf(Index index, const ValidationOptions& options) {
  CertifyOptions certify = options.certify;
  if (index % 4 == 1) certify.first_rung = Rung::kDoubleDouble;
  if (index % 16 == 2) certify.first_rung = Rung::kBall;
  return certify;
}

FamilyTally RunCase(const Family& family, Index index, const ValidationOptions& options) {
  FamilyTally tally;
  tally.name = family.name;
  tally.cases = 1;
  const auto refuse = [&](const Status& status) {
    tally.refused = 1;
    tally.first_refusal = status.message();
    tally.first_faulty_index = index;
  };
  double start = CpuSeconds();
  const StatusOr<Case> problem = DrawCase(family, options.seed, index);
  tally.draw_seconds = CpuSeconds() - start;
  if (!problem.ok()) {
    refuse(problem.status());
    return tally;
  }
  start = CpuSeconds();
  StatusOr<Certified> certified = Certify(*problem, OptionsOf(index, options));
  tally.certify_seconds = CpuSeconds() - start;
  if (!certified.ok()) {
    refuse(certified.status());
    return tally;
  }
  if (options.tamper) options.tamper(*problem, &*certified);
  start = CpuSeconds();
  tally.verdict = Judge(*problem, *certified);
  tally.witness_seconds = CpuSeconds() - start;
  if (problem->contract.shape.kv_len >= kLongRow) tally.long_elements = tally.verdict.total();
  if (!tally.verdict.faults.empty()) tally.first_faulty_index = index;
  for (FaultyElement& example : tally.verdict.examples) example.index = index;
  return tally;
}

Index FaultsOf(const FamilyTally& tally) {
  Index faults = tally.refused;
  for (const auto& [fault, count] : tally.verdict.faults) faults += count;
  return faults;
}

void AddTo(FamilyTally* sum, const FamilyTally& tally) {
  sum->verdict.Add(tally.verdict);
  sum->cases += tally.cases;
  sum->long_elements += tally.long_elements;
  sum->refused += tally.refused;
  if (sum->first_refusal.empty()) sum->first_refusal = tally.first_refusal;
  if (sum->first_faulty_index < 0) sum->first_faulty_index = tally.first_faulty_index;
  sum->draw_seconds += tally.draw_seconds;
  sum->certify_seconds += tally.certify_seconds;
  sum->witness_seconds += tally.witness_seconds;
}

// Hands out cases in order and adds their tallies in order, whichever thread is done first.
class Schedule {
 public:
  explicit Schedule(const ValidationOptions& options) : options_(options), start_(Clock::now()) {
    for (const Family* family : options.families) {
      result_.families.emplace_back().name = family->name;
    }
  }

  void Work() {
    for (;;) {
      Index job = 0;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (elements_ >= options_.elements || SecondsSince(start_) >= options_.seconds) return;
        job = next_++;
      }
      const auto count = static_cast<Index>(options_.families.size());
      const Family& family = *options_.families[static_cast<std::size_t>(job % count)];
      FamilyTally tally = RunCase(family, options_.first_index + job / count, options_);
      const std::lock_guard<std::mutex> lock(mutex_);
      done_.emplace(job, std::move(tally));
      AddWhatIsNext();
    }
  }

  Validation Finish() {
    result_.seconds = SecondsSince(start_);
    return std::move(result_);
  }

 private:
  void AddWhatIsNext() {
    while (!done_.empty() && done_.begin()->first == added_ && elements_ < options_.elements) {
      const FamilyTally& tally = done_.begin()->second;
      AddTo(&result_.families[static_cast<std::size_t>(added_) % result_.families.size()], tally);
      // A refused case counts as one element, so that a reference that refuses everything ends.
      elements_ += std::max<Index>(1, tally.verdict.total());
      faults_ += FaultsOf(tally);
      done_.erase(done_.begin());
      ++added_;
    }
    if (options_.progress) options_.progress(elements_, faults_);
  }

  const ValidationOptions& options_;
  const Clock::time_point start_;
  std::mutex mutex_;
  Index next_ = 0;
  Index added_ = 0;
  Index elements_ = 0;
  Index faults_ = 0;
  std::map<Index, FamilyTally> done_;
  Validation result_;
};

nlohmann::ordered_json ToJson(const FamilyTally& tally) {
  const Verdict& verdict = tally.verdict;
  const auto count = [&](Fault fault) {
    const auto found = verdict.faults.find(fault);
    return found == verdict.faults.end() ? Index{0} : found->second;
  };
  nlohmann::ordered_json json{{"family", tally.name},
                              {"cases", tally.cases},
                              {"elements", verdict.total()},
                              {"wrong", count(Fault::kWrongNearest)},
                              {"missed_enclosures", count(Fault::kMissed)},
                              {"undecided", count(Fault::kUndecided)},
                              {"witness_too_coarse", count(Fault::kUnresolved)},
                              {"refused_cases", tally.refused},
                              {"exact_ties", verdict.ties},
                              {"elements_of_1000_keys_or_more", tally.long_elements},
                              {"elements_by_output", verdict.elements}};
  for (const auto& [name, rung] : verdict.rungs) {
    json["rungs"][name] = {{"elements", rung.elements},
                           {"largest_error_over_radius", NumberToJson(rung.largest_ratio)}};
  }
  json["largest_witness_error_in_spacings"] = NumberToJson(verdict.largest_slack);
  json["processor_seconds"] = {{"draw", tally.draw_seconds},
                               {"certify", tally.certify_seconds},
                               {"witness", tally.witness_seconds}};
  if (!tally.first_refusal.empty()) json["first_refusal"] = tally.first_refusal;
  for (const FaultyElement& example : verdict.examples) {
    json["examples"].push_back({{"fault", NameOf(example.fault)},
                                {"index", example.index},
                                {"output", example.output},
                                {"element", example.element},
                                {"got", fmt::format("{:a}", example.got)},
                                {"expected", fmt::format("{:a}", example.expected)},
                                {"detail", example.detail}});
  }
  return json;
}

}  // namespace

FamilyTally Validation::Total() const {
  FamilyTally total;
  total.name = "all";
  for (const FamilyTally& tally : families) AddTo(&total, tally);
  total.verdict.examples.clear();  // they say nothing without their family
  return total;
}

bool Validation::ok() const { return FaultsOf(Total()) == 0; }

Validation Validate(const ValidationOptions& options) {
  Schedule schedule(options);
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t) {
    threads.emplace_back([&] {
      schedule.Work();
      mpfr_free_cache();  // the witness's, of this thread
    });
  }
  schedule.Work();
  for (std::thread& thread : threads) thread.join();
  return schedule.Finish();
}

nlohmann::ordered_json ToJson(const Validation& validation, const ValidationOptions& options) {
  nlohmann::ordered_json json{{"attest_reference_validation", 1},
                              {"seed", options.seed},
                              {"threads", options.threads},
                              {"seconds", validation.seconds},
                              {"version", kAttestVersion},
                              {"git", kGitState},
                              {"compiler", kCompiler},
                              {"flags", kCompileFlags},
                              {"cpu", CpuName()},
                              {"libraries", ReferenceLibraries()},
                              {"witness", "textbook formula over MPFR, 100 decimal digits"},
                              {"ok", validation.ok()},
                              {"mixture_faults", MixtureFaults(validation)},
                              {"total", ToJson(validation.Total())}};
  json["total"].erase("family");
  for (const FamilyTally& tally : validation.families) json["families"].push_back(ToJson(tally));
  return json;
}

std::vector<std::string> MixtureFaults(const Validation& validation) {
  const FamilyTally total = validation.Total();
  Index with_gradients = 0;
  Index weights = 0;
  for (const auto& [output, count] : total.verdict.elements) {
    if (output == "lse" || output.starts_with("grad_")) with_gradients += count;
    if (output == "weights") weights += count;
  }
  const Index all = total.verdict.total();
  std::vector<std::string> faults;
  if (10 * total.long_elements < all) {
    faults.push_back(fmt::format("{} of {} elements have 1000 keys or more, fewer than a tenth",
                                 total.long_elements, all));
  }
  if (10 * with_gradients < all) {
    faults.push_back(fmt::format("{} of {} elements are gradients or LSEs, fewer than a tenth",
                                 with_gradients, all));
  }
  if (3 * weights > all) {
    faults.push_back(fmt::format("{} of {} elements are weights, more than a third", weights, all));
  }
  return faults;
}

}  // namespace attest
