// SPDX-License-Identifier: Apache-2.0
// Attention of ONNX as cases of the contract.
#include <fmt/format.h>

#include <utility>

#include "audit/onnx_attention.h"
#include "audit/onnx_layout.h"
#include "audit/onnx_suite.h"

namespace attest {
namespace {

// Elements of the query when it is repeated for every key.
constexpr Index kMostRepeated = Index{1} << 26;

Contract ContractOf(const OnnxAttention& call) {
  Contract contract;
  contract.shape = call.shape;
  contract.dtype = contract.out_dtype = call.dtype;
  contract.scale = call.scale;
  contract.softcap = call.softcap;
  contract.arithmetic.profile = DefaultProfile(call.dtype);
  return contract;
}

// Checks the contract as that of a file, then the tensors.
Status Finish(Case* problem) {
  if (StatusOr<Contract> c = ParseContract(ContractToJson(problem->contract)); !c.ok()) {
    return c.status();
  }
  return FinishCase(problem);
}

// Which keys the query may see, as booleans.
Tensor AllowedKeys(const OnnxAttention& call) {
  const Dimensions& s = call.shape;
  Tensor mask(DType::kBool, {s.batch, s.q_heads, s.q_len, s.kv_len});
  const auto allowed = mask.view<std::uint8_t, 4>();
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.q_heads; ++h) {
      for (Index i = 0; i < s.q_len; ++i) {
        for (Index j = 0; j < s.kv_len; ++j) allowed(b, h, i, j) = call.Allows(b, h, i, j);
      }
    }
  }
  return mask;
}

// Output and weights, as the operator states them.
StatusOr<OnnxCase> ResultCase(const std::string& name, const OnnxAttention& call) {
  OnnxCase result{.item = {"onnx", "Attention", {}}, .stored = {}};
  Case& problem = result.item.problem;
  problem.name = name;
  problem.contract = ContractOf(call);
  problem.tensors = {{"q", call.q}, {"k", call.k}, {"v", call.v}};
  if (call.lengths) problem.tensors["kv_lengths"] = *call.lengths;
  if (call.mask) problem.tensors[call.mask->dtype() == DType::kBool ? "mask" : "bias"] = *call.mask;
  const Dimensions& s = call.shape;
  if (call.causal && (call.lengths || s.kv_len - s.q_len == call.past)) {
    problem.contract.causal = Causal::kBottomRight;
  } else if (call.causal && call.past == 0) {
    problem.contract.causal = Causal::kTopLeft;
  } else if (call.causal) {
    // The diagonal ends in no corner.
    problem.tensors["mask"] = AllowedKeys(call);
  }
  problem.contract.outputs = {"out"};
  result.stored["out"] = call.y;
  if (call.scores && call.stage == ScoreStage::kWeights) {
    problem.contract.outputs.emplace_back("weights");
    result.stored["weights"] = *call.scores;
  }
  if (Status status = Finish(&problem); !status.ok()) return status;
  for (const auto& [output, stored, joined] :
       {std::tuple{"present_key", call.present_key, &call.k},
        std::tuple{"present_value", call.present_value, &call.v}}) {
    if (stored == nullptr) continue;
    result.copied += stored->size();
    if (SameBits(*stored, *joined)) continue;
    result.complaints.push_back(
        {"wrong-cache",
         fmt::format("{} is not the past followed by the new, bit for bit", output)});
  }
  return result;
}

// [B, H, T, Tk] or what broadcasts to it, as [B * Tk, H, T, 1]: each key an entry of the batch.
Tensor ByKey(const Tensor& scores, const Dimensions& s) {
  const Shape& has = scores.shape();
  const auto stride = [&](std::size_t axis) {
    Index step = has[axis] == 1 ? 0 : 1;
    for (std::size_t i = axis + 1; i < 4; ++i) step *= has[i];
    return step;
  };
  return Take(
      scores,
      {{s.batch, stride(0)}, {s.kv_len, stride(3)}, {s.q_heads, stride(1)}, {s.q_len, stride(2)}},
      {s.batch * s.kv_len, s.q_heads, s.q_len, 1});
}

// The matrix of scores: attention to one key alone has that key's score as its LSE, exactly.
StatusOr<OnnxCase> ScoreCase(const std::string& name, const OnnxAttention& call) {
  const Dimensions& s = call.shape;
  if (call.dtype != DType::kF32 && call.dtype != DType::kF64) {
    return Unsupported(fmt::format("scores in {}: the contract's LSE is f32", NameOf(call.dtype)));
  }
  if (call.q.size() > kMostRepeated / std::max<Index>(s.kv_len, 1)) {
    return Unsupported("a matrix of scores of too many keys");
  }
  OnnxCase result{.item = {"onnx", "Attention, scores", {}}, .stored = {}};
  Case& problem = result.item.problem;
  problem.name = name + ".scores";
  problem.contract = ContractOf(call);
  const Index entries = s.batch * s.kv_len;
  problem.contract.shape = {entries, s.q_heads, s.kv_heads, s.q_len, 1, s.qk_dim, s.qk_dim, 1};
  const Index entry = s.q_heads * s.q_len * s.qk_dim;
  problem.tensors["q"] = Take(call.q, {{s.batch, entry}, {s.kv_len, 0}, {entry, 1}},
                              {entries, s.q_heads, s.q_len, s.qk_dim});
  problem.tensors["k"] = Take(call.k,
                              {{s.batch, s.kv_heads * s.kv_len * s.qk_dim},
                               {s.kv_len, s.qk_dim},
                               {s.kv_heads, s.kv_len * s.qk_dim},
                               {s.qk_dim, 1}},
                              {entries, s.kv_heads, 1, s.qk_dim});
  problem.tensors["v"] = Tensor(call.dtype, {entries, s.kv_heads, 1, 1});
  if (call.stage == ScoreStage::kRaw) problem.contract.softcap = 0.0;
  if (call.stage == ScoreStage::kAfterMask) {
    if (call.mask && call.mask->dtype() != DType::kBool) {
      problem.tensors["bias"] = ByKey(*call.mask, s);
    }
    problem.tensors["mask"] = ByKey(AllowedKeys(call), s);
  }
  problem.contract.outputs = {"lse"};
  result.stored["lse"] = Reshaped(ByKey(*call.scores, s), {entries, s.q_heads, s.q_len});
  if (Status status = Finish(&problem); !status.ok()) return status;
  return result;
}

}  // namespace

StatusOr<std::vector<OnnxCase>> AttentionCases(const std::string& name, const OnnxModel& model,
                                               const OnnxDataSet& data,
                                               std::vector<OnnxDeclined>* declined) {
  const StatusOr<OnnxAttention> call = ReadOnnxAttention(model, data);
  if (!call.ok()) return call.status();
  StatusOr<OnnxCase> result = ResultCase(name, *call);
  if (!result.ok()) return result.status();
  std::vector<OnnxCase> cases{*std::move(result)};
  if (!call->scores || call->stage == ScoreStage::kWeights) return cases;
  StatusOr<OnnxCase> scores = ScoreCase(name, *call);
  if (scores.status().code() == StatusCode::kUnsupported) {
    declined->push_back({name, scores.status().message()});
  } else if (!scores.ok()) {
    return scores.status();
  } else {
    cases.push_back(*std::move(scores));
  }
  return cases;
}

}  // namespace attest
