// SPDX-License-Identifier: Apache-2.0
// Node tests of ONNX: a folder with model.onnx, one node, and test_data_set_N/{input,output}_K.pb.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// An integer, a float (widened), or what is neither.
using OnnxAttribute = std::variant<std::monostate, std::int64_t, double>;

// An input or output of a graph, as the model declares it.
struct OnnxValueInfo {
  std::string name;
  std::int32_t type = 0;                        // as ONNX numbers element types; 0: not declared
  std::optional<std::vector<Index>> extents{};  // -1: an axis of any length
};

struct OnnxModel {
  Index nodes = 0;  // of the graph; the rest is read where there is one
  std::string domain;
  std::string op_type;
  std::int64_t opset = 0;            // version of the domain's operators
  std::vector<std::string> inputs;   // of the node; "" for one that is left out
  std::vector<std::string> outputs;  // likewise
  std::map<std::string, OnnxAttribute> attributes;
  std::vector<OnnxValueInfo> graph_inputs;  // in the order of input_K.pb
  std::vector<OnnxValueInfo> graph_outputs;
};

// The tensors of one data set, by the names that the node gives them.
struct OnnxDataSet {
  TensorMap inputs;
  TensorMap outputs;
};

// Reads the bytes of a model. One line says what is damaged.
StatusOr<OnnxModel> ParseOnnxModel(const std::string& bytes);

// The same of directory/model.onnx, of at most 16 MiB, which the line names.
StatusOr<OnnxModel> ReadOnnxModel(const std::filesystem::path& directory);

// Reads every test_data_set_N of a test, from 0 on. Each input and output of the graph must have
// its file, with the name, element type and shape that the model declares, and no other file of
// that kind may be there.
StatusOr<std::vector<OnnxDataSet>> ReadOnnxDataSets(const std::filesystem::path& directory,
                                                    const OnnxModel& model);

}  // namespace attest
