// SPDX-License-Identifier: Apache-2.0
#include "properties/kernel_validation/kernel_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/build_info.h"
#include "core/run_record.h"
#include "optimized/targets.h"
#include "reference/certify.h"

namespace attest {
namespace {

using Clock = std::chrono::steady_clock;

ValidationTally RunCase(const Family& family, Index index, const KernelValidationOptions& options,
                        KernelRunner* runner) {
  ValidationTally refused;
  refused.cases = refused.refused = 1;
  const StatusOr<Case> problem = DrawKernelCase(family, options.seed, index);
  if (!problem.ok()) {
    refused.first_refusal = problem.status().message();
    return refused;
  }
  const StatusOr<Expectation> expected = runner->Certify(*problem);
  if (!expected.ok()) {
    refused.first_refusal = fmt::format("{}: {}", problem->name, expected.status().message());
    return refused;
  }
  ValidationTally tally = runner->Run(*problem, *expected, index);
  tally.cases = 1;
  tally.cases_by_dtype[std::string(NameOf(problem->contract.dtype))] = 1;
  return tally;
}

// Hands out cases in order and adds their tallies in order, whichever thread is done first.
class Schedule {
 public:
  Schedule(const KernelValidationOptions& options, KernelRunner* runner)
      : options_(options), runner_(runner), start_(Clock::now()) {}

  void Work() {
    for (;;) {
      Index job = 0;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (finished_ || next_ >= options_.most_cases || Seconds() >= options_.seconds) return;
        job = next_++;
      }
      const auto count = static_cast<Index>(options_.families.size());
      const Family& family = *options_.families[static_cast<std::size_t>(job % count)];
      ValidationTally tally =
          RunCase(family, options_.first_index + job / count, options_, runner_);
      const std::lock_guard<std::mutex> lock(mutex_);
      done_.emplace(job, std::move(tally));
      AddWhatIsNext();
    }
  }

  KernelValidation Finish() {
    result_.seconds = Seconds();
    return std::move(result_);
  }

 private:
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void AddWhatIsNext() {
    const auto count = static_cast<Index>(options_.families.size());
    while (!finished_ && !done_.empty() && done_.begin()->first == added_) {
      result_.tally.Add(done_.begin()->second);
      ++result_.cases_by_family[options_.families[static_cast<std::size_t>(added_ % count)]->name];
      done_.erase(done_.begin());
      ++added_;
      finished_ = added_ >= count && result_.tally.fewest_elements() >= options_.elements;
    }
    if (options_.progress) {
      options_.progress(result_.tally.fewest_elements(), result_.tally.violation_count());
    }
  }

  const KernelValidationOptions& options_;
  KernelRunner* runner_;
  const Clock::time_point start_;
  std::mutex mutex_;
  Index next_ = 0;
  Index added_ = 0;
  bool finished_ = false;
  std::map<Index, ValidationTally> done_;
  KernelValidation result_;
};

}  // namespace

std::vector<std::string> KernelsToValidate() {
  std::vector<std::string> names;
  for (const KernelInfo& kernel : Kernels()) {
    if (!kernel.specimen) names.emplace_back(kernel.name);
  }
  return names;
}

StatusOr<KernelValidation> ValidateKernels(const KernelValidationOptions& options) {
  StatusOr<std::unique_ptr<KernelRunner>> runner =
      KernelRunner::Make(options.kernels, options.tamper);
  if (!runner.ok()) return runner.status();
  Schedule schedule(options, runner->get());
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t) threads.emplace_back([&] { schedule.Work(); });
  schedule.Work();
  for (std::thread& thread : threads) thread.join();
  return schedule.Finish();
}

nlohmann::ordered_json ToJson(const KernelValidation& validation,
                              const KernelValidationOptions& options) {
  nlohmann::ordered_json json{
      {"attest_kernel_validation", 1}, {"seed", options.seed},      {"threads", options.threads},
      {"seconds", validation.seconds}, {"version", kAttestVersion}, {"git", kGitState},
      {"compiler", kCompiler},         {"flags", kCompileFlags},    {"cpu", CpuName()}};
  std::map<std::string, std::string> libraries = ReferenceLibraries();
  libraries.merge(OptimizedLibraries());
  json["libraries"] = libraries;
  json["ok"] = validation.ok();
  json["cases_by_family"] = validation.cases_by_family;
  json.update(ToJson(validation.tally));
  return json;
}

}  // namespace attest
