// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/onnxruntime.h"

#include "audit/peers/shared_library.h"

namespace attest {
namespace {

using Function = OnnxRuntime::Function;

constexpr std::uint32_t kApiVersion = 20;

struct ApiBase {
  const void* const* (*get_api)(std::uint32_t version);
  const char* (*get_version)();
};

std::vector<OnnxValue> ValuesOf(const std::vector<OnnxArgument>& arguments) {
  std::vector<OnnxValue> values;
  values.reserve(arguments.size());
  for (const OnnxArgument& argument : arguments) values.push_back(argument.value);
  return values;
}

std::vector<const char*> Pointers(const std::vector<std::string>& names) {
  std::vector<const char*> pointers;
  pointers.reserve(names.size());
  for (const std::string& name : names) pointers.push_back(name.c_str());
  return pointers;
}

}  // namespace

StatusOr<std::shared_ptr<OnnxRuntime>> OnnxRuntime::Load() {
  const auto file = FindPeerFile(kOnnxRuntimeFile);
  if (!file) return NotFound("package onnxruntime-node not found (make peers)");
  const StatusOr<SharedLibrary> library = SharedLibrary::Open(file->string());
  if (!library.ok()) return library.status();
  const ApiBase* (*get_base)() = nullptr;
  if (!library->Find("OrtGetApiBase", &get_base)) {
    return NotFound(file->string() + ": no OrtGetApiBase in it");
  }
  const std::shared_ptr<OnnxRuntime> runtime(new OnnxRuntime);
  runtime->changed_fp_state_ = library->changed_fp_state();
  runtime->version_ = get_base()->get_version();
  runtime->api_ = get_base()->get_api(kApiVersion);
  if (runtime->api_ == nullptr) {
    return NotFound(file->string() + ": its interface is older than the one used here");
  }
  constexpr int kLogNothing = 4;  // errors come back as statuses
  constexpr int kDeviceAllocator = 0;
  constexpr int kDefaultMemory = 0;
  if (Status s = runtime->Call(Function::kCreateEnv, kLogNothing, "attest", &runtime->env_);
      !s.ok()) {
    return s;
  }
  if (Status s = runtime->Call(Function::kCreateCpuMemoryInfo, kDeviceAllocator, kDefaultMemory,
                               &runtime->memory_);
      !s.ok()) {
    return s;
  }
  return runtime;
}

OnnxRuntime::~OnnxRuntime() {
  if (memory_ != nullptr) Release(Function::kReleaseMemoryInfo, memory_);
  if (env_ != nullptr) Release(Function::kReleaseEnv, env_);
}

Status OnnxRuntime::Checked(void* status) const {
  if (status == nullptr) return Status();
  using GetMessage = const char* (*)(void*);
  const std::string message = Get<GetMessage>(Function::kGetErrorMessage)(status);
  Release(Function::kReleaseStatus, status);
  return Unsupported("ONNX Runtime: " + message);
}

OnnxSession::~OnnxSession() {
  for (void* value : input_values_) runtime_.Release(Function::kReleaseValue, value);
  for (void* value : output_values_) runtime_.Release(Function::kReleaseValue, value);
  if (session_ != nullptr) runtime_.Release(Function::kReleaseSession, session_);
}

Status OnnxSession::Prepare(const OnnxNode& node, int opset,
                            const std::vector<OnnxArgument>& inputs,
                            const std::vector<OnnxArgument>& outputs, int threads) {
  const std::string model = OnnxModel(node, ValuesOf(inputs), ValuesOf(outputs), opset);
  if (Status s = CreateSession(model, threads); !s.ok()) return s;
  for (const OnnxArgument& input : inputs) {
    if (Status s = Bind(input, &input_names_, &input_values_); !s.ok()) return s;
  }
  for (const OnnxArgument& output : outputs) {
    if (Status s = Bind(output, &output_names_, &output_values_); !s.ok()) return s;
  }
  return Status();
}

Status OnnxSession::Run() {
  const std::vector<const char*> inputs = Pointers(input_names_);
  const std::vector<const char*> outputs = Pointers(output_names_);
  return runtime_.Call(Function::kRun, session_, static_cast<void*>(nullptr), inputs.data(),
                       input_values_.data(), inputs.size(), outputs.data(), outputs.size(),
                       output_values_.data());
}

Status OnnxSession::CreateSession(const std::string& model, int threads) {
  constexpr int kAllOptimizations = 99;
  void* options = nullptr;
  if (Status s = runtime_.Call(Function::kCreateSessionOptions, &options); !s.ok()) return s;
  Status status = runtime_.Call(Function::kSetGraphOptimizationLevel, options, kAllOptimizations);
  if (status.ok()) status = runtime_.Call(Function::kSetIntraOpNumThreads, options, threads);
  if (status.ok()) status = runtime_.Call(Function::kSetInterOpNumThreads, options, 1);
  if (status.ok()) {
    status =
        runtime_.Call(Function::kCreateSessionFromArray, runtime_.env(),
                      static_cast<const void*>(model.data()), model.size(), options, &session_);
  }
  runtime_.Release(Function::kReleaseSessionOptions, options);
  return status;
}

Status OnnxSession::Bind(const OnnxArgument& argument, std::vector<std::string>* names,
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

}  // namespace attest
