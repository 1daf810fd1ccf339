// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "audit/law.h"
#include "core/digest.h"
#include "core/fp_environment.h"
#include "core/run_record.h"
#include "optimized/targets.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// A law that so many cases break is broken; it is not checked on further ones.
constexpr Index kMostViolations = 10;

// An audit ends early after so many calls that ended the implementation's process, each of which
// costs a start or a time limit.
constexpr Index kMostCrashes = 50;
constexpr Index kMostTimeouts = 3;
constexpr Index kMostFailedStarts = 3;

// Different reasons for unsupported cases that are remarks of their own.
constexpr std::size_t kMostReasons = 20;

std::string_view NameOf(EmptyRow policy) {
  switch (policy) {
    case EmptyRow::kZero:
      return "zero";
    case EmptyRow::kNan:
      return "nan";
    case EmptyRow::kUniform:
      return "uniform";
  }
  return "";
}

// The case as a subject is asked it, here and by the laws: for the outputs that it declares to
// give, by its declared policy for empty rows and in its declared arithmetic. Nothing where it is
// asked as it is.
std::optional<Case> AskedOf(const SubjectInfo& info, const Case& problem) {
  std::vector<std::string> outputs;
  for (const std::string& output : problem.contract.outputs) {
    if (info.outputs.empty() || info.outputs.contains(output)) outputs.push_back(output);
  }
  Contract contract = problem.contract;
  contract.outputs = std::move(outputs);
  contract.empty_row = info.empty_row.value_or(contract.empty_row);
  for (const Arithmetic& declared : info.arithmetic) {
    if (!declared.profile.empty() && !HasProfile(contract.dtype, declared.profile)) continue;
    const std::string profile = contract.arithmetic.profile;
    contract.arithmetic = declared;
    if (declared.profile.empty()) contract.arithmetic.profile = profile;
    break;
  }
  if (contract == problem.contract) return std::nullopt;
  Case asked = problem;
  asked.contract = std::move(contract);
  return asked;
}

struct LawCount {
  Index draws = 0;
  Index violations = 0;
};

// The audit of one subject while it runs.
class Session {
 public:
  Session(const Subject& subject, ExpectationCache& expectations, const AuditOptions& options)
      : subject_(subject), expectations_(expectations), options_(options) {}

  Status RunCase(const SuiteCase& item) {
    const std::optional<Case> asked = AskedOf(subject_.info(), item.problem);
    const Case& problem = asked ? *asked : item.problem;
    if (problem.contract.outputs.empty()) return DeclineCase(item);
    if (problem.contract.empty_row != item.problem.contract.empty_row) ++other_policy_;
    const StatusOr<const Expectation*> certified = expectations_.Of(problem);
    if (!certified.ok()) {
      return Status(certified.status().code(),
                    fmt::format("case '{}': {}", problem.name, certified.status().message()));
    }
    const Expectation& expected = **certified;
    ordered_json result{{"case", problem.name}, {"suite", item.suite}, {"family", item.family}};
    const Outcome outcome = subject_.Run(problem, {});
    std::string status = "passed";
    switch (outcome.kind) {
      case Outcome::Kind::kUnreadable:
        return InvalidArgument(outcome.message);
      case Outcome::Kind::kUnsupported:
        ++unsupported_;
        status = "unsupported";
        result["reason"] = outcome.message;
        if (subject_.info().recorded) {
          ++without_result_;
        } else {
          ++unsupported_reasons_[outcome.message];
        }
        break;
      case Outcome::Kind::kFailed:
        status = CountFailure(outcome.code) ? "crashed" : "failed";
        result["reason"] = outcome.code + ": " + outcome.message;
        if (outcome.at_start) ++failed_starts_;
        ++(status == "crashed" ? crashed_ : failed_);
        findings_.Add(outcome.code, "", problem.name, outcome.message, std::nullopt);
        break;
      case Outcome::Kind::kOk: {
        result["outputs"] = ordered_json::array();
        bool conforms = JudgeOutputs(problem, expected, outcome, &result["outputs"]);
        for (const Complaint& complaint : outcome.complaints) {
          findings_.Add(complaint.code, "", problem.name, complaint.message, std::nullopt);
          result["reason"] = complaint.code + ": " + complaint.message;
          conforms = false;
        }
        ordered_json broken = ordered_json::array();
        const bool lawful = RunLaws(problem, &broken);
        if (!lawful) result["broken_laws"] = broken;
        if (conforms && lawful && subject_.info().recorded && result["outputs"].empty()) {
          ++unsupported_;
          ++without_result_;
          status = "unsupported";
        } else if (conforms && lawful && case_elements_ > 0 && case_judged_ == 0) {
          ++unsupported_;
          status = "not judged";
        } else if (conforms && lawful) {
          ++passed_;
        } else {
          ++failed_;
          status = "failed";
        }
        outputs_digest_ += Sha256(outcome.outputs);
        break;
      }
    }
    result["status"] = status;
    result["logit_spread"] = NumberToJson(expected.logit_spread);
    result["min_entropy"] = NumberToJson(expected.min_entropy);
    case_results_.push_back(std::move(result));
    return Status();
  }

  bool failed() const { return !findings_.empty(); }

  // Whether the rest of the cases would cost more than it says; they are counted as not run.
  bool IsHopeless() const {
    return ended_ >= kMostCrashes || timeouts_ >= kMostTimeouts ||
           failed_starts_ >= kMostFailedStarts;
  }
  void Leave(std::size_t cases) { not_run_ = static_cast<Index>(cases); }

  ordered_json ToJson(const std::vector<SuiteCase>& cases, std::uint64_t seed,
                      const std::string& command) const {
    const SubjectInfo& info = subject_.info();
    const Index judged = passed_ + failed_ + crashed_;
    ordered_json record;
    record["attest_result"] = 1;
    record["verdict"] =
        judged == 0 ? "nothing audited" : (findings_.empty() ? "conforms" : "findings");
    record["implementation"] = {{"name", info.name},
                                {"version", info.version},
                                {"description", info.description},
                                {"target", info.target},
                                {"deterministic", info.deterministic},
                                {"batch_invariant", info.batch_invariant}};
    if (!info.declared.empty()) record["implementation"]["declared"] = info.declared;
    if (!info.assumptions.empty()) record["implementation"]["assumptions"] = info.assumptions;
    std::vector<std::string> suites;
    std::string inputs_digest;
    for (const SuiteCase& item : cases) {
      if (std::find(suites.begin(), suites.end(), item.suite) == suites.end()) {
        suites.push_back(item.suite);
      }
      inputs_digest += Sha256(item.problem.tensors);
    }
    record["suites"] = suites;
    record["cases"] = {{"run", judged},       {"passed", passed_},
                       {"failed", failed_},   {"unsupported", unsupported_},
                       {"crashed", crashed_}, {"not_run", not_run_}};
    record["elements"] = {{"compared", elements_},
                          {"not_judged", not_judged_},
                          {"not_correctly_rounded", not_correctly_rounded_}};
    record["findings"] = findings_.ToJson(command);
    record["laws"] = ordered_json::array();
    for (const Law& law : Laws()) {
      const auto count = laws_.find(law.name);
      if (count == laws_.end() || count->second.draws == 0) continue;
      record["laws"].push_back({{"law", law.name},
                                {"description", law.description},
                                {"draws", count->second.draws},
                                {"violations", count->second.violations}});
    }
    record["case_results"] = case_results_;
    std::vector<std::string> remarks = UnsupportedRemarks();
    AddPartialRemarks(judged + unsupported_ - declined_, &remarks);
    if (not_run_ > 0) {
      remarks.push_back(fmt::format(
          "the audit ended early, after {} calls that ended the process ({} by the time limit): {} "
          "cases were not run",
          ended_, timeouts_, not_run_));
    }
    if (not_judged_ > 0) {
      remarks.push_back(fmt::format(
          "{} of {} elements were not judged: they are out of the profile's range (intermediate "
          "results may overflow, or rounded scores may change the weights altogether)",
          not_judged_, elements_));
    }
    if (other_policy_ > 0) {
      remarks.push_back(
          fmt::format("judged by its declared empty-row policy '{}' in {} cases that state another",
                      NameOf(*info.empty_row), other_policy_));
    }
    record["remarks"] = remarks;
    Manifest manifest;
    manifest.command = command;
    manifest.simd_target = info.target;
    manifest.seed = seed;
    manifest.libraries = ReferenceLibraries();
    if (!info.target.empty()) manifest.libraries.merge(OptimizedLibraries());
    manifest.inputs_sha256 = Sha256(std::as_bytes(std::span(inputs_digest)));
    manifest.outputs_sha256 = Sha256(std::as_bytes(std::span(outputs_digest_)));
    record["manifest"] = attest::ToJson(manifest);
    return record;
  }

 private:
  bool JudgeOutputs(const Case& problem, const Expectation& expected, const Outcome& outcome,
                    ordered_json* results) {
    bool conforms = true;
    case_elements_ = case_judged_ = 0;
    for (const std::string& name : problem.contract.outputs) {
      const auto found = outcome.outputs.find(name);
      if (found == outcome.outputs.end()) {
        // Recorded results may be partial; everybody else was asked for the output.
        if (subject_.info().recorded && name != "out") {
          ++not_given_[name];
          continue;
        }
        findings_.Add("missing-output", name, problem.name, "the output was not given",
                      std::nullopt);
        conforms = false;
        continue;
      }
      const TensorVerdict verdict = Judge(expected, name, found->second);
      results->push_back({{"tensor", name},
                          {"elements", verdict.elements},
                          {"violations", verdict.violations},
                          {"not_judged", verdict.not_judged},
                          {"not_correctly_rounded", verdict.not_correctly_rounded},
                          {"max_ulp", NumberToJson(verdict.max_ulp)},
                          {"max_bound_ratio", NumberToJson(verdict.max_bound_ratio)}});
      if (verdict.max_scaled_error) {
        results->back()["max_scaled_error"] = NumberToJson(*verdict.max_scaled_error);
      }
      case_elements_ += verdict.elements;
      case_judged_ += verdict.elements - verdict.not_judged;
      elements_ += verdict.elements;
      not_judged_ += verdict.not_judged;
      not_correctly_rounded_ += verdict.not_correctly_rounded;
      if (verdict.violations == 0) continue;
      conforms = false;
      const std::string code = verdict.non_finite_mismatch ? "non-finite" : "above-bound";
      findings_.Add(
          code, name, problem.name,
          fmt::format("{} of {} elements; worst: got {}, correctly rounded {}", verdict.violations,
                      verdict.elements, verdict.worst.got, verdict.worst.expected),
          verdict.worst);
    }
    return conforms;
  }

  // The case asks for nothing that the subject declares to give.
  Status DeclineCase(const SuiteCase& item) {
    ++unsupported_;
    ++declined_;
    ++unsupported_reasons_["outputs: it gives none of those that the case asks for"];
    case_results_.push_back({{"case", item.problem.name},
                             {"suite", item.suite},
                             {"family", item.family},
                             {"status", "unsupported"}});
    return Status();
  }

  // Whether the implementation's process ended; counts it.
  bool CountFailure(const std::string& code) {
    if (code == "timeout") ++timeouts_;
    const bool ended = code == "crash" || code == "timeout" || code == "memory";
    if (ended) ++ended_;
    return ended;
  }

  // The reasons that most cases had, with their numbers.
  std::vector<std::string> UnsupportedRemarks() const {
    std::vector<std::pair<Index, std::string>> reasons;
    for (const auto& [reason, count] : unsupported_reasons_) reasons.emplace_back(-count, reason);
    std::sort(reasons.begin(), reasons.end());
    std::vector<std::string> remarks;
    Index rest = 0;
    for (const auto& [negative, reason] : reasons) {
      if (remarks.size() < kMostReasons) {
        remarks.push_back(fmt::format("unsupported: {} ({} case{})", reason, -negative,
                                      negative == -1 ? "" : "s"));
      } else {
        rest -= negative;
      }
    }
    if (rest > 0) remarks.push_back(fmt::format("unsupported for other reasons: {} cases", rest));
    return remarks;
  }

  // What recorded results lack of `cases`.
  void AddPartialRemarks(Index cases, std::vector<std::string>* remarks) const {
    if (without_result_ > 0) {
      remarks->push_back(fmt::format("partial results: {} of {} cases have a result",
                                     cases - without_result_, cases));
    }
    for (const auto& [name, count] : not_given_) {
      remarks->push_back(fmt::format(
          "partial results: '{}' was not given in {} cases that ask for it", name, count));
    }
  }

  bool RunLaws(const Case& problem, ordered_json* broken) {
    if (subject_.info().recorded) return true;
    const Dimensions& s = problem.contract.shape;
    const Index scores = s.batch * s.q_heads * s.q_len * s.kv_len;
    bool lawful = true;
    for (const Law& law : Laws()) {
      if (law.name == "within-bound") continue;  // JudgeOutputs has done it
      if (options_.only_law && law.name != *options_.only_law) continue;
      if (scores > law.largest_case || laws_[law.name].violations >= kMostViolations) continue;
      const LawResult result = law.check(subject_, problem, expectations_);
      if (!result.applied) continue;
      LawCount& count = laws_[law.name];
      ++count.draws;
      if (!result.violation) continue;
      ++count.violations;
      lawful = false;
      broken->push_back(law.name);
      const Violation& v = *result.violation;
      if (!result.failure.empty()) {
        CountFailure(result.failure);
        findings_.Add(result.failure, "", problem.name,
                      fmt::format("{} (while law {} was checked)", v.explanation, law.name),
                      std::nullopt);
        if (IsHopeless()) break;
        continue;
      }
      Witness witness;
      witness.index = v.index;
      witness.got = v.got;
      witness.expected = v.expected;
      findings_.Add("law-" + law.name, v.tensor, problem.name, v.explanation, witness);
    }
    return lawful;
  }

  const Subject& subject_;
  ExpectationCache& expectations_;
  const AuditOptions& options_;
  FindingList findings_;
  std::map<std::string, LawCount> laws_;
  std::map<std::string, Index> unsupported_reasons_;
  std::map<std::string, Index> not_given_;  // outputs that recorded results lack
  ordered_json case_results_ = ordered_json::array();
  std::string outputs_digest_;
  Index passed_ = 0;
  Index failed_ = 0;
  Index unsupported_ = 0;
  Index crashed_ = 0;
  Index not_run_ = 0;
  Index declined_ = 0;        // cases that ask for nothing that the subject gives
  Index without_result_ = 0;  // of recorded results
  Index ended_ = 0;           // calls that ended the process, those of laws included
  Index timeouts_ = 0;
  Index failed_starts_ = 0;
  Index elements_ = 0;
  Index not_judged_ = 0;
  Index not_correctly_rounded_ = 0;
  Index other_policy_ = 0;   // cases that state another than the subject declares
  Index case_elements_ = 0;  // of the case that is being judged
  Index case_judged_ = 0;
};

}  // namespace

Auditor::Auditor(std::vector<SuiteCase> cases, AuditOptions options)
    : cases_(std::move(cases)), options_(std::move(options)), expectations_(options_.threads) {}

StatusOr<ordered_json> Auditor::Audit(const Subject& subject, const std::string& command,
                                      AuditExtent extent) {
  if (Status s = CheckFloatingPointEnvironment(); !s.ok()) return s;
  Session session(subject, expectations_, options_);
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    if (Status s = session.RunCase(cases_[i]); !s.ok()) return s;
    if (options_.progress) options_.progress(subject.info().name, i + 1, cases_.size());
    if (extent == AuditExtent::kFirstFailure && session.failed()) break;
    if (session.IsHopeless()) {
      session.Leave(cases_.size() - i - 1);
      break;
    }
  }
  return session.ToJson(cases_, options_.seed, command);
}

}  // namespace attest
