// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/onnx_call.h"

#include <utility>

namespace attest {
namespace {

OnnxType OnnxTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return OnnxType::kDouble;
    case DType::kF32:
      return OnnxType::kFloat;
    case DType::kF16:
      return OnnxType::kFloat16;
    case DType::kBF16:
      return OnnxType::kBFloat16;
    case DType::kI32:
      return OnnxType::kInt32;
    case DType::kBool:
      return OnnxType::kBool;
  }
  return OnnxType::kFloat;
}

// Empty tensors have an address too.
void* AddressOf(void* data) {
  static std::byte nothing[16];
  return data != nullptr ? data : nothing;
}

}  // namespace

OnnxCall::OnnxCall(const std::string& operation, const std::string& domain) {
  node_.operation = operation;
  node_.domain = domain;
}

void OnnxCall::Attribute(const std::string& name, std::int64_t value) {
  node_.attributes.emplace_back(name, value);
}

void OnnxCall::Attribute(const std::string& name, float value) {
  node_.attributes.emplace_back(name, value);
}

Tensor& OnnxCall::Keep(const std::string& name, Tensor tensor) {
  return buffers_.emplace_back(Buffer{name, std::move(tensor)}).tensor;
}

void OnnxCall::Input(const std::string& name, const Tensor& tensor) {
  Tensor& kept = Keep(name, tensor);
  node_.inputs.push_back(name);
  inputs_.push_back(
      {{name, OnnxTypeOf(kept.dtype()), kept.shape()}, AddressOf(kept.bytes()), kept.byte_size()});
}

void OnnxCall::IntegerInput(const std::string& name, const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t>& kept = integers_.emplace_back(values);
  node_.inputs.push_back(name);
  inputs_.push_back({{name, OnnxType::kInt64, {static_cast<Index>(kept.size())}},
                     AddressOf(kept.data()),
                     kept.size() * sizeof(std::int64_t)});
}

void OnnxCall::NoInputUpTo(std::size_t place) {
  while (node_.inputs.size() < place) node_.inputs.emplace_back();
}

void OnnxCall::Output(const std::string& name, DType dtype, const Shape& shape) {
  Tensor& kept = Keep(name, Tensor(dtype, shape));
  node_.outputs.push_back(name);
  outputs_.push_back({{name, OnnxTypeOf(dtype), shape}, AddressOf(kept.bytes()), kept.byte_size()});
}

void OnnxCall::NoOutput() { node_.outputs.emplace_back(); }

Status OnnxCall::Run(const OnnxRuntime& runtime, int opset, int threads) {
  OnnxSession session(runtime);
  if (Status s = session.Prepare(node_, opset, inputs_, outputs_, threads); !s.ok()) return s;
  return session.Run();
}

const Tensor& OnnxCall::output(const std::string& name) const {
  for (const Buffer& buffer : buffers_) {
    if (buffer.name == name) return buffer.tensor;
  }
  static const Tensor none;
  return none;
}

const StatusOr<std::shared_ptr<OnnxRuntime>>& SharedOnnxRuntime() {
  static const StatusOr<std::shared_ptr<OnnxRuntime>> runtime = OnnxRuntime::Load();
  return runtime;
}

}  // namespace attest
