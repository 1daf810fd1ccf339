// SPDX-License-Identifier: Apache-2.0
// ONNX models of a single node, as the bytes of their protobuf message.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace attest {

// Element types by the numbers of TensorProto.DataType.
enum class OnnxType : int {
  kFloat = 1,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBFloat16 = 16
};

struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  Shape shape;
};

struct OnnxNode {
  std::string operation;
  std::string domain;               // "": ai.onnx
  std::vector<std::string> inputs;  // "": an optional one that is left out
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, std::variant<std::int64_t, float>>> attributes;
};

// A model whose graph is the node; `opset` is the version of ai.onnx.
std::string OnnxModel(const OnnxNode& node, const std::vector<OnnxValue>& inputs,
                      const std::vector<OnnxValue>& outputs, int opset);

}  // namespace attest
