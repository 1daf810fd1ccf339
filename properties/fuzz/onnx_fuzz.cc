// SPDX-License-Identifier: Apache-2.0
// Any bytes as a node test of ONNX: parts with their length in two bytes before each, the model
// first, then its tensors in order.
#include <algorithm>
#include <string>
#include <vector>

#include "audit/onnx_file.h"
#include "audit/onnx_suite.h"
#include "audit/onnx_tensor.h"
#include "properties/fuzz/fuzz_file.h"

namespace attest {
namespace {

std::vector<std::string> Parts(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> parts;
  while (size >= 2) {
    const std::size_t length = std::min<std::size_t>(data[0] + 256u * data[1], size - 2);
    parts.emplace_back(reinterpret_cast<const char*>(data) + 2, length);
    data += 2 + length;
    size -= 2 + length;
  }
  return parts;
}

template <class T>
bool IsOkOrOneLine(const StatusOr<T>& result) {
  if (!result.ok()) Require(result.status().message().find('\n') == std::string::npos);
  return result.ok();
}

}  // namespace
}  // namespace attest

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::vector<std::string> parts = Parts(data, size);
  if (parts.empty()) return 0;
  const StatusOr<OnnxModel> model = ParseOnnxModel(parts[0]);
  if (!IsOkOrOneLine(model)) return 0;
  OnnxDataSet set;
  std::size_t next = 1;
  const auto read = [&](const std::vector<std::string>& names, TensorMap* tensors) {
    for (const std::string& name : names) {
      if (name.empty() || next >= parts.size()) continue;
      const StatusOr<OnnxTensor> tensor = ParseOnnxTensor(parts[next++]);
      if (IsOkOrOneLine(tensor)) tensors->emplace(name, tensor->tensor);
    }
  };
  read(model->inputs, &set.inputs);
  read(model->outputs, &set.outputs);
  std::vector<OnnxDeclined> declined;
  if (model->op_type == "Attention") {
    IsOkOrOneLine(AttentionCases("fuzz", *model, set, &declined));
  } else if (model->op_type == "Softmax" || model->op_type == "LogSoftmax") {
    IsOkOrOneLine(SoftmaxCases("fuzz", *model, set));
  }
  return 0;
}
