// SPDX-License-Identifier: Apache-2.0
#include "experiments/tolerance_subjects.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "audit/judge.h"
#include "core/digest.h"
#include "properties/faults/fault_catalogue.h"

namespace attest {
namespace {

// The outputs of the case that the subject gives.
std::vector<std::string> AskedOutputs(const Subject& subject, const Case& problem) {
  std::vector<std::string> outputs;
  for (const std::string& name : problem.contract.outputs) {
    const std::set<std::string>& given = subject.info().outputs;
    if (given.empty() || given.contains(name)) outputs.push_back(name);
  }
  return outputs;
}

}  // namespace

std::vector<double> PlainHalfOut(const Case& problem, const Expectation& expected) {
  const Contract& contract = problem.contract;
  const Dimensions& s = contract.shape;
  const Conditions& conditions = expected.certified.conditions;
  const std::vector<CertifiedValue>& lse = expected.certified.outputs.at("lse").values;
  const std::vector<CertifiedValue>& exact = expected.certified.outputs.at("out").values;
  const DType half = contract.dtype;
  const auto keys = static_cast<std::size_t>(s.kv_len);
  const auto width = static_cast<std::size_t>(s.v_dim);
  const Tensor* const keep = problem.Find("keep");
  const Tensor* const sinks = problem.Find("sinks");
  const Tensor& v = problem.tensors.at("v");
  View<const std::uint8_t, 4> kept;
  if (keep != nullptr) {
    kept = BroadcastTo(keep->view<std::uint8_t, 4>(), {s.batch, s.q_heads, s.q_len, s.kv_len});
  }
  std::vector<double> out(exact.size());
  std::vector<double> weights(keys);
  for (std::size_t row = 0; row < lse.size(); ++row) {
    if (!std::isfinite(lse[row].hi)) {
      for (std::size_t c = row * width; c < (row + 1) * width; ++c) out[c] = exact[c].nearest;
      continue;
    }
    const auto r = static_cast<Index>(row);
    const Index i = r % s.q_len;
    const Index h = r / s.q_len % s.q_heads;
    const Index b = r / s.q_len / s.q_heads;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < keys; ++j) {
      const std::size_t at = row * keys + j;
      weights[j] = conditions.allowed[at] == 0
                       ? -std::numeric_limits<double>::infinity()
                       : RoundToDType(conditions.log_weight[at] + lse[row].hi, half);
      largest = std::max(largest, weights[j]);
    }
    float sum = sinks == nullptr ? 0.0F : static_cast<float>(std::exp(sinks->At(h) - largest));
    for (double& weight : weights) {
      const auto shifted = static_cast<float>(std::exp(weight - largest));
      sum += shifted;
      weight = static_cast<double>(shifted);
    }
    const Index group = h / (s.q_heads / s.kv_heads);
    for (std::size_t c = 0; c < width; ++c) {
      float total = 0.0F;
      for (std::size_t j = 0; j < keys; ++j) {
        if (weights[j] == 0.0) continue;
        const auto key = static_cast<Index>(j);
        double factor = 1.0;
        if (keep != nullptr) {
          factor = kept(b, h, i, key) == 0 ? 0.0 : 1.0 / (1.0 - contract.dropout_rate);
        }
        const double weight =
            RoundToDType(RoundToDType(weights[j] / static_cast<double>(sum), half) * factor, half);
        const Index value =
            ((b * s.kv_heads + group) * s.kv_len + key) * s.v_dim + static_cast<Index>(c);
        total += static_cast<float>(weight) * static_cast<float>(v.At(value));
      }
      out[row * width + c] = RoundToDType(static_cast<double>(total), contract.out_dtype);
    }
  }
  return out;
}

StatusOr<JudgedCase> JudgedCase::Make(Case problem, ExpectationCache* cache) {
  JudgedCase judged;
  judged.problem_ = std::move(problem);
  const Case& the_case = judged.problem_;
  const StatusOr<const Expectation*> expected = cache->Of(the_case);
  if (!expected.ok()) return expected.status();
  judged.expected_ = *expected;
  const StatusOr<std::unique_ptr<Subject>> plain = MakePlainSubject("none");
  if (!plain.ok()) return plain.status();
  Outcome outcome = (*plain)->Run(the_case, {});
  if (outcome.kind != Outcome::Kind::kOk) return Internal(outcome.message);
  judged.clean_ = std::move(outcome.outputs);
  const bool half = SizeOf(the_case.contract.dtype) == 2 && !the_case.contract.local;
  for (const std::string& name : the_case.contract.outputs) {
    Output& output = judged.outputs_[name];
    std::vector<double> values = half && name == "out" ? PlainHalfOut(the_case, *judged.expected_)
                                                       : ToDoubles(judged.clean_.at(name));
    const CertifiedTensor& certified = judged.expected_->certified.outputs.at(name);
    for (std::size_t at = 0; at < certified.values.size(); ++at) {
      if (!IsJudged(*judged.expected_, name, at)) continue;
      const double exact = certified.values[at].hi;
      if (!std::isfinite(exact)) {
        output.special.push_back(at);
        continue;
      }
      output.at.push_back(at);
      output.exact.push_back(exact);
      output.plain.push_back(std::isfinite(values[at]) ? values[at] : exact);
    }
  }
  judged.clean_rejections_ = judged.Rejections(the_case.contract.outputs, judged.clean_);
  return judged;
}

std::vector<bool> JudgedCase::Rejections(const std::vector<std::string>& outputs,
                                         const TensorMap& got) const {
  std::vector<bool> rejections(1 + PassRules().size(), false);
  std::vector<double> finite;
  std::vector<double> exact;
  std::vector<double> plain;
  for (const std::string& name : outputs) {
    const auto found = got.find(name);
    if (found == got.end()) {
      rejections.assign(rejections.size(), true);
      return rejections;
    }
    const Tensor& tensor = found->second;
    const Output& output = outputs_.at(name);
    if (Judge(*expected_, name, tensor).violations > 0) rejections[0] = true;
    bool mismatch = false;
    for (const std::size_t at : output.special) {
      mismatch = mismatch || !Conforms(*expected_, name, at, tensor.At(static_cast<Index>(at)));
    }
    finite.clear();
    exact.clear();
    plain.clear();
    for (std::size_t i = 0; i < output.at.size(); ++i) {
      const double value = tensor.At(static_cast<Index>(output.at[i]));
      if (!std::isfinite(value)) {
        mismatch = mismatch || !Conforms(*expected_, name, output.at[i], value);
        continue;
      }
      finite.push_back(value);
      exact.push_back(output.exact[i]);
      plain.push_back(output.plain[i]);
    }
    const RuleInput input{tensor.dtype(), problem_.contract.softcap > 0.0, exact, finite, plain};
    for (std::size_t rule = 0; rule < PassRules().size(); ++rule) {
      if (mismatch || !PassRules()[rule].accepts(input)) rejections[1 + rule] = true;
    }
  }
  return rejections;
}

Status JudgedCase::Count(const Subject& subject, RuleCounts* counts) const {
  const std::vector<std::string> asked = AskedOutputs(subject, problem_);
  if (asked.empty()) return Status();
  std::optional<Case> fewer;
  if (asked.size() != problem_.contract.outputs.size()) {
    fewer = problem_;
    fewer->contract.outputs = asked;
  }
  const Outcome outcome = subject.Run(fewer ? *fewer : problem_, {});
  if (outcome.kind == Outcome::Kind::kUnsupported) return Status();
  if (outcome.kind == Outcome::Kind::kUnreadable) return Internal(outcome.message);
  std::vector<bool> rejections(1 + PassRules().size(), true);
  if (outcome.kind == Outcome::Kind::kOk) {
    bool same = !fewer;
    for (const auto& [name, tensor] : clean_) {
      const auto found = outcome.outputs.find(name);
      same = same && found != outcome.outputs.end() &&
             std::equal(tensor.bytes(), tensor.bytes() + tensor.byte_size(), found->second.bytes());
    }
    rejections = same ? clean_rejections_ : Rejections(asked, outcome.outputs);
  }
  ++counts->cases;
  if (rejections[0]) ++counts->bound;
  counts->tells.resize(PassRules().size());
  counts->rejects.resize(PassRules().size());
  for (std::size_t rule = 0; rule < PassRules().size(); ++rule) {
    if (!rejections[1 + rule]) continue;
    ++counts->rejects[rule];
    if (!clean_rejections_[1 + rule]) ++counts->tells[rule];
  }
  return Status();
}

}  // namespace attest
