// SPDX-License-Identifier: Apache-2.0
#include "reference/certify.h"

#include <algorithm>
#include <cmath>

#include "core/fp_environment.h"
#include "reference/ball.h"
#include "reference/ball_settle.h"
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

// What conditions sum up over the keys of a row.
void SumConditions(const CaseData& data, Conditions* conditions) {
  const Dimensions& s = data.contract().shape;
  const double kept = 1.0 - data.dropout_rate();
  const Index rows = s.batch * s.q_heads * s.q_len;
  conditions->magnitude.assign(static_cast<std::size_t>(rows * s.v_dim), 0.0);
  conditions->logit_spread.assign(static_cast<std::size_t>(rows), 0.0);
  for (Index flat = 0; flat < rows; ++flat) {
    const RowId row = RowAt(s, flat);
    double* const magnitude = conditions->magnitude.data() + flat * s.v_dim;
    double smallest = HUGE_VAL;
    double largest = -HUGE_VAL;
    for (Index j = 0; j < s.kv_len; ++j) {
      const auto at = static_cast<std::size_t>(flat * s.kv_len + j);
      const double log_weight = conditions->log_weight[at];
      if (conditions->allowed[at] == 0 || !std::isfinite(log_weight)) continue;
      smallest = std::min(smallest, log_weight);
      largest = std::max(largest, log_weight);
      if (!data.Keeps(row, j)) continue;
      const std::span<const double> v = data.Value(row, j);
      for (std::size_t c = 0; c < v.size(); ++c) {
        magnitude[c] += conditions->weight[at] / kept * std::fabs(v[c]);
      }
    }
    if (smallest <= largest) {
      conditions->logit_spread[static_cast<std::size_t>(flat)] = largest - smallest;
    }
  }
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
  const BallCaches cleanup;  // of this thread: scale and slopes are balls, whatever climbs
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
  if (options.conditions && !work.cancelled()) SumConditions(*data, &result.conditions);
  if (gradients && !work.cancelled()) CertifyGradients(inputs, options, &work, &result);
  if (work.cancelled()) return Internal("cancelled");
  return result;
}

std::map<std::string, std::string> ReferenceLibraries() { return Ball::Libraries(); }

}  // namespace attest
