// SPDX-License-Identifier: Apache-2.0
// Tensors in files of ONNX's protocol buffers (TensorProto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

struct OnnxTensor {
  std::string name;
  std::int32_t type = 0;  // as ONNX numbers element types
  Tensor tensor;          // int64 becomes i32
};

// The element type that ONNX numbers so; nothing for those that no contract has. int64 counts as
// i32.
std::optional<DType> FromOnnxType(std::int32_t type);

// Reads the bytes of a file with one tensor. What is damaged, or has elements that are none of f64,
// f32, bf16, f16, bool, int32 and int64 with values of 32 bits, is refused in one line.
StatusOr<OnnxTensor> ParseOnnxTensor(const std::string& bytes);

// The same of a file of at most 64 MiB, which the line names.
StatusOr<OnnxTensor> ReadOnnxTensor(const std::filesystem::path& file);

}  // namespace attest
