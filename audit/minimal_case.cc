// SPDX-License-Identifier: Apache-2.0
#include "audit/minimal_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "audit/audit.h"

namespace attest {
namespace {

constexpr Index kMostShownElements = 8;

std::string Counted(Index count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

void DescribeRules(const Contract& contract, std::vector<std::string>* parts) {
  if (contract.score == ScoreKind::kGeneral) parts->push_back("score general");
  if (contract.score == ScoreKind::kAdditive) parts->push_back("score additive");
  if (!contract.scale.rsqrt_dk) parts->push_back(fmt::format("scale {}", contract.scale.value));
  if (contract.softcap != 0.0) parts->push_back(fmt::format("soft cap {}", contract.softcap));
  if (contract.causal == Causal::kTopLeft) parts->push_back("causal top-left");
  if (contract.causal == Causal::kBottomRight) parts->push_back("causal bottom-right");
  if (contract.window.left >= 0 || contract.window.right >= 0) {
    parts->push_back(fmt::format("window [{}, {}]", contract.window.left, contract.window.right));
  }
  if (contract.alibi == Alibi::kNone) parts->push_back("ALiBi off");
  if (contract.alibi == Alibi::kDefault) parts->push_back("ALiBi default");
  if (contract.empty_row == EmptyRow::kNan) parts->push_back("empty rows NaN");
  if (contract.empty_row == EmptyRow::kUniform) parts->push_back("empty rows uniform");
  if (contract.dropout_rate != 0.0) {
    parts->push_back(fmt::format("dropout {}", contract.dropout_rate));
  }
  if (contract.local) {
    parts->push_back(fmt::format("local window {}{}", contract.local->half_width,
                                 contract.local->gaussian ? " with Gaussian" : ""));
  }
}

}  // namespace

bool HasFinding(const Subject& subject, const Case& problem, const std::string& code,
                const std::string& tensor) {
  const StatusOr<nlohmann::ordered_json> record =
      Auditor({{"shrinking", "shrinking", problem}}, {}).Audit(subject, "");
  if (!record.ok()) return false;
  for (const nlohmann::ordered_json& finding : (*record)["findings"]) {
    if (finding["code"] == code && finding["tensor"] == tensor) return true;
  }
  return false;
}

std::optional<Case> MinimalCase(const Subject& subject, const Case& failing,
                                const std::string& code, const std::string& tensor,
                                const ShrinkLimits& limits) {
  Case named = failing;
  named.name = tensor.empty() ? code : code + "-" + tensor;
  const auto still_fails = [&](const Case& candidate) {
    return HasFinding(subject, candidate, code, tensor);
  };
  if (!still_fails(named)) return std::nullopt;
  return Shrink(named, still_fails, limits);
}

std::string Describe(const Case& problem) {
  const Contract& contract = problem.contract;
  const Dimensions& s = contract.shape;
  std::vector<std::string> parts{Counted(s.batch, "batch entry", "batch entries"),
                                 Counted(s.q_heads, "query head", "query heads")};
  if (s.kv_heads != s.q_heads) parts.push_back(Counted(s.kv_heads, "key head", "key heads"));
  parts.push_back(Counted(s.q_len, "query", "queries"));
  parts.push_back(Counted(s.kv_len, "key", "keys"));
  if (s.k_dim != s.qk_dim) parts.push_back(fmt::format("D_q {}", s.qk_dim));
  parts.push_back(fmt::format("D_k {}", s.k_dim));
  parts.push_back(fmt::format("D_v {}", s.v_dim));
  parts.emplace_back(NameOf(contract.dtype));
  DescribeRules(contract, &parts);
  parts.push_back(fmt::format("asks for {}", fmt::join(contract.outputs, ", ")));
  std::vector<std::string> tensors;
  for (const auto& [name, tensor] : problem.tensors) {
    if (tensor.size() > kMostShownElements) {
      tensors.push_back(fmt::format("{} {}", name, ToString(tensor.shape())));
    } else {
      std::vector<std::string> elements;
      for (const double x : ToDoubles(tensor)) elements.push_back(fmt::format("{:.9g}", x));
      tensors.push_back(fmt::format("{} = [{}]", name, fmt::join(elements, ", ")));
    }
  }
  return fmt::format("{}; {}", fmt::join(parts, ", "), fmt::join(tensors, ", "));
}

}  // namespace attest
