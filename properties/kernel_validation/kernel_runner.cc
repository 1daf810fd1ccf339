// SPDX-License-Identifier: Apache-2.0
#include "properties/kernel_validation/kernel_runner.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "audit/builtin.h"
#include "optimized/targets.h"

namespace attest {
namespace {

// Violations of one output of one call that are told one by one.
constexpr Index kMostExamples = 4;

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.byte_size() == b.byte_size() &&
         (a.byte_size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0);
}

// The first element whose bits differ, or -1. Any NaN equals any other.
Index FirstDifference(const Tensor& a, const Tensor& b) {
  if (SameBytes(a, b)) return -1;
  const std::size_t size = SizeOf(a.dtype());
  for (Index i = 0; i < a.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(a.bytes() + at, b.bytes() + at, size) == 0) continue;
    if (!(std::isnan(a.At(i)) && std::isnan(b.At(i)))) return i;
  }
  return -1;
}

// Judges the outputs of the kernels on one case; results that have the same bits are judged once.
class CaseJudge {
 public:
  CaseJudge(const Case& problem, const Expectation& expected, ValidationTally* tally)
      : problem_(problem), expected_(expected), tally_(tally) {}

  void JudgeCall(const KernelAndTarget& key, const Outcome& outcome) {
    KernelTally& tally = tally_->kernels[key];
    if (outcome.kind == Outcome::Kind::kUnsupported) {
      tally.unsupported = 1;
      tally.unsupported_reason = outcome.message;
      return;
    }
    tally.cases = 1;
    if (outcome.kind != Outcome::Kind::kOk) return Violate(key, outcome.message);
    for (const std::string& tensor : problem_.contract.outputs) {
      const auto found = outcome.outputs.find(tensor);
      if (found == outcome.outputs.end()) {
        Violate(key, "the output " + tensor + " is missing");
        continue;
      }
      const TensorVerdict& verdict = VerdictOf(tensor, found->second);
      const DType dtype = found->second.dtype();
      const bool narrowed = SizeOf(dtype) < SizeOf(problem_.contract.wide_dtype());
      const std::string output = OutputClass(tensor, dtype, narrowed);
      tally.elements[output] += verdict.elements - verdict.not_judged;
      tally.not_judged += verdict.not_judged;
      LargestRatio& largest = tally.largest[output];
      if (verdict.max_bound_ratio > largest.ratio) {
        largest = {verdict.max_bound_ratio, problem_.name, verdict.worst.index};
      }
      if (verdict.violations > 0) TellViolations(key, tensor, found->second, verdict.violations);
    }
  }

  // Of two calls that must give the same bits.
  void CompareBits(const KernelAndTarget& key, const std::string& other_name, const Outcome& got,
                   const Outcome& other, BitsTally* bits) {
    if (got.kind == Outcome::Kind::kUnsupported && other.kind == got.kind) return;
    if (got.kind != other.kind) {
      return Violate(key, fmt::format("{} took the case otherwise", other_name));
    }
    for (const auto& [name, tensor] : got.outputs) {
      const auto found = other.outputs.find(name);
      if (found == other.outputs.end()) continue;  // a violation by itself
      const Tensor& expected = found->second;
      bits->compared += tensor.size();
      const Index at = FirstDifference(tensor, expected);
      if (at < 0) continue;
      ++bits->different;
      ++tally_->kernels[key].violations;
      tally_->violations.push_back(
          {key.first, key.second, problem_.name, "bits differ from " + other_name, name,
           Unflatten(at, tensor.shape()), tensor.At(at), expected.At(at), 0.0});
    }
  }

 private:
  const TensorVerdict& VerdictOf(const std::string& tensor, const Tensor& got) {
    std::vector<std::pair<const Tensor*, TensorVerdict>>& judged = judged_[tensor];
    for (const auto& [other, verdict] : judged) {
      if (SameBytes(*other, got)) return verdict;
    }
    judged.emplace_back(&got, Judge(expected_, tensor, got));
    return judged.back().second;
  }

  void Violate(const KernelAndTarget& key, const std::string& what) {
    ++tally_->kernels[key].violations;
    KernelViolation violation;
    violation.kernel = key.first;
    violation.target = key.second;
    violation.case_name = problem_.name;
    violation.what = what;
    tally_->violations.push_back(std::move(violation));
  }

  void TellViolations(const KernelAndTarget& key, const std::string& tensor, const Tensor& got,
                      Index count) {
    tally_->kernels[key].violations += count;
    Index told = 0;
    for (Index i = 0; i < got.size() && told < kMostExamples; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (Conforms(expected_, tensor, at, got.At(i))) continue;
      ++told;
      tally_->violations.push_back({key.first, key.second, problem_.name, "above its bound", tensor,
                                    Unflatten(i, got.shape()), got.At(i),
                                    expected_.certified.outputs.at(tensor).values[at].hi,
                                    BoundOf(expected_, tensor, at)});
    }
  }

  const Case& problem_;
  const Expectation& expected_;
  ValidationTally* tally_;
  std::map<std::string, std::vector<std::pair<const Tensor*, TensorVerdict>>> judged_;
};

}  // namespace

StatusOr<std::unique_ptr<KernelRunner>> KernelRunner::Make(const std::vector<std::string>& kernels,
                                                           Tamper tamper) {
  auto runner = std::make_unique<KernelRunner>();
  runner->tamper_ = std::move(tamper);
  for (const std::string_view target : RunnableTargets()) runner->targets_.emplace_back(target);
  const auto one_thread = std::make_shared<Execution>(1);
  const auto three_threads = std::make_shared<Execution>(3);
  for (const std::string& name : kernels) {
    KernelOnTargets entry;
    for (const std::string& target : runner->targets_) {
      for (const bool three : {false, true}) {
        StatusOr<std::unique_ptr<Subject>> subject =
            MakeBuiltinSubject(name + "@" + target, three ? three_threads : one_thread);
        if (!subject.ok()) return subject.status();
        (three ? entry.on_three_threads : entry.subjects).push_back(*std::move(subject));
      }
    }
    entry.kernel = *FindKernel(name);
    runner->kernels_.push_back(std::move(entry));
  }
  return runner;
}

StatusOr<Expectation> KernelRunner::Certify(const Case& problem) {
  const std::shared_lock<std::shared_mutex> lock(target_);
  return Expect(problem);
}

KernelRunner::Results KernelRunner::RunKernel(const KernelOnTargets& kernel, const Case& problem,
                                              Index turn) {
  const CallOptions options{.junk = turn % 2 == 0 ? Junk::kNaN : Junk::kHuge};
  const auto third = static_cast<std::size_t>(turn) % targets_.size();
  Results results;
  for (const std::unique_ptr<Subject>& subject : kernel.subjects) {
    results.outcomes.push_back(subject->Run(problem, options));
  }
  results.on_three_threads = kernel.on_three_threads[third]->Run(problem, options);
  return results;
}

ValidationTally KernelRunner::Run(const Case& problem, const Expectation& expected, Index turn) {
  std::vector<Results> all;
  {
    const std::unique_lock<std::shared_mutex> alone(target_);
    for (const KernelOnTargets& kernel : kernels_) all.push_back(RunKernel(kernel, problem, turn));
  }
  ValidationTally tally;
  CaseJudge judge(problem, expected, &tally);
  const auto third = static_cast<std::size_t>(turn) % targets_.size();
  const std::vector<Outcome>* tiled_reproducible = nullptr;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    const KernelInfo& kernel = kernels_[k].kernel;
    std::vector<Outcome>& outcomes = all[k].outcomes;
    const auto key_of = [&](std::size_t t) {
      return KernelAndTarget(std::string(kernel.name), targets_[t]);
    };
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      if (tamper_) tamper_(key_of(t), problem, expected, &outcomes[t].outputs);
      judge.JudgeCall(key_of(t), outcomes[t]);
    }
    judge.CompareBits(key_of(third), "one thread", all[k].on_three_threads, outcomes[third],
                      &tally.across_threads);
    if (all[k].on_three_threads.kind != Outcome::Kind::kUnsupported) {
      ++tally.kernels[key_of(third)].threads_compared;
    }
    if (kernel.mode != Mode::kReproducible) continue;
    for (std::size_t t = 1; t < targets_.size(); ++t) {
      judge.CompareBits(key_of(t), targets_[0], outcomes[t], outcomes[0], &tally.across_targets);
    }
    if (kernel.algorithm == AttentionAlgorithm::kTiled) tiled_reproducible = &outcomes;
    if (kernel.algorithm != AttentionAlgorithm::kDecode || tiled_reproducible == nullptr) continue;
    for (std::size_t t = 0; t < targets_.size(); ++t) {
      // Gradients belong to the tiled kernel alone.
      if (outcomes[t].kind == Outcome::Kind::kUnsupported) continue;
      judge.CompareBits(key_of(t), "tiled-reproducible", outcomes[t], (*tiled_reproducible)[t],
                        &tally.decode_and_tiled);
    }
  }
  return tally;
}

}  // namespace attest
