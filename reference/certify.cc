// SPDX-License-Identifier: Apache-2.0
#include "reference/certify.h"

#include "core/fp_environment.h"
#include "reference/ball.h"
#include "reference/forward_ladder.h"
#include "reference/gradient_ladder.h"

namespace attest {
namespace {

bool IsGradient(const std::string& output) { return output.starts_with("grad_"); }

// Room for what the contract asks for.
Certified MakeResult(const Case& problem, const CertifyOptions& options) {
  const Contract& contract = problem.contract;
  Certified result;
  for (const std::string& name : contract.outputs) {
    CertifiedTensor& tensor = result.outputs[name];
    tensor.dtype = OutputDType(problem, name);
    tensor.shape = OutputShape(problem, name);
    const auto size = static_cast<std::size_t>(ElementCount(tensor.shape));
    tensor.values.resize(size);
    if (options.digits > 0) tensor.digits.resize(size);
  }
  if (options.conditions) {
    const Dimensions& s = contract.shape;
    const auto size = static_cast<std::size_t>(s.batch * s.q_heads * s.q_len * s.kv_len);
    result.conditions.allowed.resize(size);
    result.conditions.weight.resize(size);
    result.conditions.log_weight.resize(size);
    result.conditions.score_condition.resize(size);
  }
  return result;
}

}  // namespace

std::array<Index, kRungs> Certified::RungCounts() const {
  std::array<Index, kRungs> counts{};
  for (const auto& [name, tensor] : outputs) {
    for (const CertifiedValue& value : tensor.values) {
      ++counts[static_cast<std::size_t>(value.rung)];
    }
  }
  return counts;
}

StatusOr<Certified> Certify(const Case& problem, const CertifyOptions& options) {
  if (Status s = CheckFloatingPointEnvironment(); !s.ok()) return s;
  const StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return data.status();
  Certified result = MakeResult(problem, options);
  bool forward = options.conditions;
  bool gradients = false;
  for (const auto& [name, tensor] : result.outputs) {
    (IsGradient(name) ? gradients : forward) = true;
  }
  const Dimensions& s = problem.contract.shape;
  const Index rows = s.batch * s.q_heads * s.q_len;
  const Index columns = s.batch * s.kv_heads * s.kv_len;
  WorkQueue work(options.threads, options.progress,
                 (forward ? rows : 0) + (gradients ? rows + columns : 0));
  const RowInputs inputs(*data, options.conditions);
  if (forward) CertifyForward(inputs, options, &work, &result);
  if (gradients && !work.cancelled()) CertifyGradients(inputs, options, &work, &result);
  if (work.cancelled()) return Internal("cancelled");
  return result;
}

std::map<std::string, std::string> ReferenceLibraries() { return Ball::Libraries(); }

}  // namespace attest
