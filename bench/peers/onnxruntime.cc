// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime through its C interface: models of one attention node.
#include <array>
#include <cstddef>
#include <utility>

#include "bench/peers/onnx_model.h"
#include "bench/peers/peer.h"
#include "bench/peers/shared_library.h"

namespace attest {
namespace {

constexpr char kFile[] = "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1";
constexpr std::uint32_t kApiVersion = 20;

// Places of the functions used here in the table OrtApi, to which later versions only append.
enum class Function : std::size_t {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSessionFromArray = 8,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetGraphOptimizationLevel = 23,
  kSetIntraOpNumThreads = 24,
  kSetInterOpNumThreads = 25,
  kCreateTensorWithData = 49,
  kCreateCpuMemoryInfo = 69,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseSessionOptions = 100,
};

struct ApiBase {
  const void* const* (*get_api)(std::uint32_t version);
  const char* (*get_version)();
};

// The library with one environment. Objects of ONNX Runtime are only ever handled by pointer.
class Runtime {
 public:
  explicit Runtime(const void* const* api) : api_(api) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    if (memory_ != nullptr) Release(Function::kReleaseMemoryInfo, memory_);
    if (env_ != nullptr) Release(Function::kReleaseEnv, env_);
  }

  Status Start() {
    constexpr int kLogErrors = 3;
    constexpr int kDeviceAllocator = 0;
    constexpr int kDefaultMemory = 0;
    if (Status s = Call(Function::kCreateEnv, kLogErrors, "attest", &env_); !s.ok()) return s;
    return Call(Function::kCreateCpuMemoryInfo, kDeviceAllocator, kDefaultMemory, &memory_);
  }

  // Functions that return a status; the types of the arguments must be exactly the declared ones.
  template <class... Arguments>
  Status Call(Function function, Arguments... arguments) const {
    using Pointer = void* (*)(Arguments...);
    void* status = Get<Pointer>(function)(arguments...);
    if (status == nullptr) return Status();
    using GetMessage = const char* (*)(void*);
    const std::string message = Get<GetMessage>(Function::kGetErrorMessage)(status);
    Release(Function::kReleaseStatus, status);
    return Unsupported("ONNX Runtime: " + message);
  }

  void Release(Function function, void* object) const { Get<void (*)(void*)>(function)(object); }

  void* env() const { return env_; }
  void* memory() const { return memory_; }

 private:
  template <class Pointer>
  Pointer Get(Function function) const {
    return reinterpret_cast<Pointer>(const_cast<void*>(api_[static_cast<std::size_t>(function)]));
  }

  const void* const* api_;
  void* env_ = nullptr;
  void* memory_ = nullptr;
};

// One input or output of a model, with its elements.
struct Argument {
  OnnxValue value;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// A session, its arguments bound once, all buffers reused.
class SessionCall final : public AttentionCall {
 public:
  SessionCall(const Runtime& runtime, const AttentionShape& shape, bool heads_last)
      : runtime_(runtime), shape_(shape), heads_last_(heads_last) {}

  ~SessionCall() override {
    for (void* value : input_values_) runtime_.Release(Function::kReleaseValue, value);
    for (void* value : output_values_) runtime_.Release(Function::kReleaseValue, value);
    if (session_ != nullptr) runtime_.Release(Function::kReleaseSession, session_);
  }

  // Copies of what an argument needs in another order; they live as long as the call.
  float* Keep(std::vector<float> elements) {
    kept_.push_back(std::move(elements));
    return kept_.back().data();
  }
  std::int32_t* KeepInteger(Index value) {
    integers_[integer_count_] = static_cast<std::int32_t>(value);
    return &integers_[integer_count_++];
  }

  // The first output is the result of attention.
  Status Prepare(const OnnxNode& node, int opset, const std::vector<Argument>& inputs,
                 const std::vector<Argument>& outputs) {
    if (Status s = CreateSession(OnnxModel(node, ValuesOf(inputs), ValuesOf(outputs), opset));
        !s.ok()) {
      return s;
    }
    for (const Argument& input : inputs) {
      if (Status s = Bind(input, &input_names_, &input_values_); !s.ok()) return s;
    }
    for (const Argument& output : outputs) {
      if (Status s = Bind(output, &output_names_, &output_values_); !s.ok()) return s;
    }
    result_ = static_cast<const float*>(outputs.front().data);
    return Status();
  }

  Status Run() override {
    const std::vector<const char*> inputs = Pointers(input_names_);
    const std::vector<const char*> outputs = Pointers(output_names_);
    return runtime_.Call(Function::kRun, session_, static_cast<void*>(nullptr), inputs.data(),
                         input_values_.data(), inputs.size(), outputs.data(), outputs.size(),
                         output_values_.data());
  }

  std::vector<float> Output() const override {
    if (heads_last_) return HeadsFirst(result_, shape_.heads, shape_.queries, shape_.dim);
    return {result_, result_ + shape_.heads * shape_.queries * shape_.dim};
  }

 private:
  static std::vector<OnnxValue> ValuesOf(const std::vector<Argument>& arguments) {
    std::vector<OnnxValue> values;
    values.reserve(arguments.size());
    for (const Argument& argument : arguments) values.push_back(argument.value);
    return values;
  }

  static std::vector<const char*> Pointers(const std::vector<std::string>& names) {
    std::vector<const char*> pointers;
    pointers.reserve(names.size());
    for (const std::string& name : names) pointers.push_back(name.c_str());
    return pointers;
  }

  Status CreateSession(const std::string& model) {
    constexpr int kAllOptimizations = 99;
    void* options = nullptr;
    if (Status s = runtime_.Call(Function::kCreateSessionOptions, &options); !s.ok()) return s;
    Status status = runtime_.Call(Function::kSetGraphOptimizationLevel, options, kAllOptimizations);
    if (status.ok()) status = runtime_.Call(Function::kSetIntraOpNumThreads, options, 1);
    if (status.ok()) status = runtime_.Call(Function::kSetInterOpNumThreads, options, 1);
    if (status.ok()) {
      status =
          runtime_.Call(Function::kCreateSessionFromArray, runtime_.env(),
                        static_cast<const void*>(model.data()), model.size(), options, &session_);
    }
    runtime_.Release(Function::kReleaseSessionOptions, options);
    return status;
  }

  Status Bind(const Argument& argument, std::vector<std::string>* names,
              std::vector<void*>* values) {
    void* value = nullptr;
    const Shape& shape = argument.value.shape;
    if (Status s = runtime_.Call(Function::kCreateTensorWithData, runtime_.memory(), argument.data,
                                 argument.bytes, shape.data(), shape.size(),
                                 static_cast<int>(argument.value.type), &value);
        !s.ok()) {
      return s;
    }
    names->push_back(argument.value.name);
    values->push_back(value);
    return Status();
  }

  const Runtime& runtime_;
  AttentionShape shape_;
  bool heads_last_;  // the result is [queries, heads, dim]
  void* session_ = nullptr;
  std::vector<std::string> input_names_, output_names_;
  std::vector<void*> input_values_, output_values_;
  std::vector<std::vector<float>> kept_;
  std::array<std::int32_t, 2> integers_{};
  std::size_t integer_count_ = 0;
  const float* result_ = nullptr;
};

Argument Floats(const std::string& name, Shape shape, const float* data) {
  const auto bytes = static_cast<std::size_t>(ElementCount(shape)) * sizeof(float);
  // Inputs are not written to.
  return {{name, OnnxType::kFloat, std::move(shape)}, const_cast<float*>(data), bytes};
}

Argument Integer(const std::string& name, std::int32_t* data) {
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
Prepared PrepareAttention(const Runtime& runtime, const AttentionProblem& p) {
  const AttentionShape& s = p.shape;
  if (s.causal && s.queries != s.keys) return Unsupported("its causal rule is top-left");
  auto call = std::make_unique<SessionCall>(runtime, s, false);
  const OnnxNode node{.operation = "Attention",
                      .domain = "",
                      .inputs = {"q", "k", "v"},
                      .outputs = {"y"},
                      .attributes = {{"scale", ScaleOf(s)}, {"is_causal", Index{s.causal}}}};
  const std::vector<Argument> inputs{Floats("q", p.q.shape(), p.q.data<float>()),
                                     Floats("k", p.k.shape(), p.k.data<float>()),
                                     Floats("v", p.v.shape(), p.v.data<float>())};
  const std::vector<Argument> outputs{Floats("y", p.q.shape(), call->Keep(Zeros(p.q.size())))};
  const Status status = call->Prepare(node, 23, inputs, outputs);
  return Finish(std::move(call), status);
}

// com.microsoft MultiHeadAttention: [1, length, heads * dim].
Prepared PrepareMultiHead(const Runtime& runtime, const AttentionProblem& p) {
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
  const std::vector<Argument> inputs{rows("q", p.q, s.queries), rows("k", p.k, s.keys),
                                     rows("v", p.v, s.keys)};
  const std::vector<Argument> outputs{
      Floats("y", {1, s.queries, width}, call->Keep(Zeros(s.queries * width)))};
  const Status status = call->Prepare(node, 17, inputs, outputs);
  return Finish(std::move(call), status);
}

// com.microsoft GroupQueryAttention, always causal: the last `queries` keys are new, those before
// them lie in the cache, which the node extends in place.
Prepared PrepareGroupQuery(const Runtime& runtime, const AttentionProblem& p) {
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
  std::vector<Argument> inputs{
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
  const std::vector<Argument> outputs{
      Floats("y", {1, s.queries, width}, call->Keep(Zeros(s.queries * width))),
      Floats("present_k", p.k.shape(), cache_k), Floats("present_v", p.v.shape(), cache_v)};
  const Status status = call->Prepare(node, 17, inputs, outputs);
  return Finish(std::move(call), status);
}

}  // namespace

PeerLibrary LoadOnnxRuntime() {
  PeerLibrary peer{.name = "ONNX Runtime", .licence = "MIT"};
  const auto file = FindPeerFile(kFile);
  if (!file) {
    peer.missing = "package onnxruntime-node not found (make peers)";
    return peer;
  }
  const StatusOr<SharedLibrary> library = SharedLibrary::Open(file->string());
  if (!library.ok()) {
    peer.missing = library.status().message();
    return peer;
  }
  peer.changed_fp_state = library->changed_fp_state();
  const ApiBase* (*get_base)() = nullptr;
  if (!library->Find("OrtGetApiBase", &get_base)) {
    peer.missing = "no OrtGetApiBase in it";
    return peer;
  }
  peer.version = get_base()->get_version();
  const void* const* api = get_base()->get_api(kApiVersion);
  if (api == nullptr) {
    peer.missing = "its interface is older than the one used here";
    return peer;
  }
  const auto runtime = std::make_shared<Runtime>(api);
  if (Status s = runtime->Start(); !s.ok()) {
    peer.missing = s.message();
    return peer;
  }
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
