// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime: models of one attention node.
#include "audit/peers/onnxruntime.h"

#include <array>
#include <utility>

#include "bench/peers/peer.h"

namespace attest {
namespace {

// A session with copies of what it needs in another order.
class SessionCall final : public AttentionCall {
 public:
  SessionCall(const OnnxRuntime& runtime, const AttentionShape& shape, bool heads_last)
      : session_(runtime), shape_(shape), heads_last_(heads_last) {}

  // Copies live as long as the call.
  float* Keep(std::vector<float> elements) {
    kept_.push_back(std::move(elements));
    return kept_.back().data();
  }
  std::int32_t* KeepInteger(Index value) {
    integers_[integer_count_] = static_cast<std::int32_t>(value);
    return &integers_[integer_count_++];
  }

  // The first output is the result of attention.
  Status Prepare(const OnnxNode& node, int opset, const std::vector<OnnxArgument>& inputs,
                 const std::vector<OnnxArgument>& outputs) {
    result_ = static_cast<const float*>(outputs.front().data);
    return session_.Prepare(node, opset, inputs, outputs, 1);
  }

  Status Run() override { return session_.Run(); }

  std::vector<float> Output() const override {
    if (heads_last_) return HeadsFirst(result_, shape_.heads, shape_.queries, shape_.dim);
    return {result_, result_ + shape_.heads * shape_.queries * shape_.dim};
  }

 private:
  OnnxSession session_;
  AttentionShape shape_;
  bool heads_last_;  // the result is [queries, heads, dim]
  std::vector<std::vector<float>> kept_;
  std::array<std::int32_t, 2> integers_{};
  std::size_t integer_count_ = 0;
  const float* result_ = nullptr;
};

OnnxArgument Floats(const std::string& name, Shape shape, const float* data) {
  const auto bytes = static_cast<std::size_t>(ElementCount(shape)) * sizeof(float);
  // Inputs are not written to.
  return {{name, OnnxType::kFloat, std::move(shape)}, const_cast<float*>(data), bytes};
}

OnnxArgument Integer(const std::string& name, std::int32_t* data) {
  return {{name, OnnxType::kInt32, {1}}, data, sizeof *data};
}

std::vector<float> Zeros(Index count) {
  return std::vector<float>(static_cast<std::size_t>(count), 0.0f);
}

using Prepared = StatusOr<std::unique_ptr<AttentionCall>>;

Prepared Finish(std::unique_ptr<SessionCall> call, const Status& status) {
  if (!status.ok()) return status;
  return std::unique_ptr<AttentionCall>(std::move(call));
}

// Attention of opset 23: [1, heads, length, dim]; is_causal counts from the first key.
Prepared PrepareAttention(const OnnxRuntime& runtime, const AttentionProblem& p) {
  const AttentionShape& s = p.shape;
  if (s.causal && s.queries != s.keys) return Unsupported("its causal rule is top-left");
  auto call = std::make_unique<SessionCall>(runtime, s, false);
  const OnnxNode node{.operation = "Attention",
                      .domain = "",
                      .inputs = {"q", "k", "v"},
                      .outputs = {"y"},
                      .attributes = {{"scale", ScaleOf(s)}, {"is_causal", Index{s.causal}}}};
  const std::vector<OnnxArgument> inputs{Floats("q", p.q.shape(), p.q.data<float>()),
                                         Floats("k", p.k.shape(), p.k.data<float>()),
                                         Floats("v", p.v.shape(), p.v.data<float>())};
  const std::vector<OnnxArgument> outputs{Floats("y", p.q.shape(), call->Keep(Zeros(p.q.size())))};
  const Status status = call->Prepare(node, 23, inputs, outputs);
  return Finish(std::move(call), status);
}

// com.microsoft MultiHeadAttention: [1, length, heads * dim].
Prepared PrepareMultiHead(const OnnxRuntime& runtime, const AttentionProblem& p) {
  const AttentionShape& s = p.shape;
  auto call = std::make_unique<SessionCall>(runtime, s, true);
  const Index width = s.heads * s.dim;
  const OnnxNode node{
      .operation = "MultiHeadAttention",
      .domain = "com.microsoft",
      .inputs = {"q", "k", "v"},
      .outputs = {"y"},
      .attributes = {
          {"num_heads", s.heads}, {"scale", ScaleOf(s)}, {"unidirectional", Index{s.causal}}}};
  const auto rows = [&](const char* name, const Tensor& tensor, Index length) {
    return Floats(name, {1, length, width},
                  call->Keep(HeadsLast(tensor.data<float>(), s.heads, length, s.dim)));
  };
  const std::vector<OnnxArgument> inputs{rows("q", p.q, s.queries), rows("k", p.k, s.keys),
                                         rows("v", p.v, s.keys)};
  const std::vector<OnnxArgument> outputs{
      Floats("y", {1, s.queries, width}, call->Keep(Zeros(s.queries * width)))};
  const Status status = call->Prepare(node, 17, inputs, outputs);
  return Finish(std::move(call), status);
}

// com.microsoft GroupQueryAttention, always causal: the last `queries` keys are new, those before
// them lie in the cache, which the node extends in place.
Prepared PrepareGroupQuery(const OnnxRuntime& runtime, const AttentionProblem& p) {
  const AttentionShape& s = p.shape;
  if (!s.causal && s.queries != 1) return Unsupported("it is always causal");
  auto call = std::make_unique<SessionCall>(runtime, s, true);
  const Index width = s.heads * s.dim;
  const Index past = s.keys - s.queries;
  OnnxNode node{
      .operation = "GroupQueryAttention",
      .domain = "com.microsoft",
      .inputs = {"q", "k", "v", "", "", "last", "total"},
      .outputs = {"y", "present_k", "present_v"},
      .attributes = {{"num_heads", s.heads}, {"kv_num_heads", s.heads}, {"scale", ScaleOf(s)}}};
  const auto added = [&](const char* name, const Tensor& tensor) {
    std::vector<float> rows;
    for (Index head = 0; head < s.heads; ++head) {
      const float* first = tensor.data<float>() + (head * s.keys + past) * s.dim;
      rows.insert(rows.end(), first, first + s.queries * s.dim);
    }
    return Floats(name, {1, s.queries, width},
                  call->Keep(HeadsLast(rows.data(), s.heads, s.queries, s.dim)));
  };
  std::vector<OnnxArgument> inputs{
      Floats("q", {1, s.queries, width},
             call->Keep(HeadsLast(p.q.data<float>(), s.heads, s.queries, s.dim))),
      added("k", p.k), added("v", p.v)};
  float* cache_k = call->Keep({p.k.data<float>(), p.k.data<float>() + p.k.size()});
  float* cache_v = call->Keep({p.v.data<float>(), p.v.data<float>() + p.v.size()});
  if (past > 0) {
    node.inputs[3] = "past_k";
    node.inputs[4] = "past_v";
    inputs.push_back(Floats("past_k", p.k.shape(), cache_k));
    inputs.push_back(Floats("past_v", p.v.shape(), cache_v));
  }
  inputs.push_back(Integer("last", call->KeepInteger(s.keys - 1)));
  inputs.push_back(Integer("total", call->KeepInteger(s.keys)));
  const std::vector<OnnxArgument> outputs{
      Floats("y", {1, s.queries, width}, call->Keep(Zeros(s.queries * width))),
      Floats("present_k", p.k.shape(), cache_k), Floats("present_v", p.v.shape(), cache_v)};
  const Status status = call->Prepare(node, 17, inputs, outputs);
  return Finish(std::move(call), status);
}

}  // namespace

PeerLibrary LoadOnnxRuntime() {
  PeerLibrary peer{.name = "ONNX Runtime", .licence = "MIT"};
  const StatusOr<std::shared_ptr<OnnxRuntime>> loaded = OnnxRuntime::Load();
  if (!loaded.ok()) {
    peer.missing = loaded.status().message();
    return peer;
  }
  const std::shared_ptr<OnnxRuntime> runtime = *loaded;
  peer.version = runtime->version();
  peer.changed_fp_state = runtime->changed_fp_state();
  const auto add = [&](const char* name, auto* prepare) {
    peer.peers.push_back({name, [runtime, prepare](const AttentionProblem& problem) {
                            return prepare(*runtime, problem);
                          }});
  };
  add("ort MultiHeadAttention", PrepareMultiHead);
  add("ort GroupQueryAttention", PrepareGroupQuery);
  add("ort Attention-23", PrepareAttention);
  return peer;
}

}  // namespace attest
