// SPDX-License-Identifier: Apache-2.0
// One call of an ONNX operator with tensors, by ONNX Runtime.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "audit/peers/onnxruntime.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

class OnnxCall {
 public:
  OnnxCall(const std::string& operation, const std::string& domain);

  void Attribute(const std::string& name, std::int64_t value);
  void Attribute(const std::string& name, float value);

  // Inputs and outputs in the operator's order. An element type of no ONNX tensor is refused by
  // Run.
  void Input(const std::string& name, const Tensor& tensor);
  void IntegerInput(const std::string& name, const std::vector<std::int64_t>& values);
  void NoInputUpTo(std::size_t place);  // those before this place that are not there are left out
  void Output(const std::string& name, DType dtype, const Shape& shape);
  void NoOutput();

  // `opset`: the version of ai.onnx. Unsupported, with its message, where ONNX Runtime refuses.
  Status Run(const OnnxRuntime& runtime, int opset, int threads);

  // After Run.
  const Tensor& output(const std::string& name) const;

 private:
  struct Buffer {
    std::string name;
    Tensor tensor;
  };
  Tensor& Keep(const std::string& name, Tensor tensor);

  OnnxNode node_;
  std::vector<OnnxArgument> inputs_, outputs_;
  std::deque<Buffer> buffers_;  // addresses stay
  std::deque<std::vector<std::int64_t>> integers_;
};

// ONNX Runtime, loaded once in this process.
const StatusOr<std::shared_ptr<OnnxRuntime>>& SharedOnnxRuntime();

}  // namespace attest
