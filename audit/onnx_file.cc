// SPDX-License-Identifier: Apache-2.0
#include "audit/onnx_file.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>
#include <utility>

#include "audit/onnx_tensor.h"
#include "core/file_io.h"

namespace attest {
namespace {

// The library's objects take up to a hundred times a file's bytes.
constexpr std::uint64_t kModelSizeLimit = std::uint64_t{1} << 24;

// The default operators have two names.
std::string Domain(const std::string& name) { return name == "ai.onnx" ? "" : name; }

template <class Values>
std::vector<OnnxValueInfo> ValueInfos(const Values& values) {
  std::vector<OnnxValueInfo> infos;
  for (const onnx::ValueInfoProto& value : values) {
    OnnxValueInfo info{.name = value.name()};
    if (value.type().has_tensor_type()) {
      const onnx::TypeProto::Tensor& type = value.type().tensor_type();
      info.type = type.elem_type();
      if (type.has_shape()) {
        info.extents.emplace();
        for (const onnx::TensorShapeProto::Dimension& axis : type.shape().dim()) {
          info.extents->push_back(axis.has_dim_value() ? axis.dim_value() : -1);
        }
      }
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

OnnxAttribute ValueOf(const onnx::AttributeProto& attribute) {
  if (attribute.type() == onnx::AttributeProto::INT) return attribute.i();
  if (attribute.type() == onnx::AttributeProto::FLOAT) return static_cast<double>(attribute.f());
  return std::monostate{};
}

// Whether each of the node's values is one of the graph's, and the graph has no others.
bool SameNames(const std::vector<std::string>& node, const std::vector<OnnxValueInfo>& graph) {
  std::set<std::string> of_node;
  for (const std::string& name : node) {
    if (!name.empty()) of_node.insert(name);
  }
  std::set<std::string> of_graph;
  for (const OnnxValueInfo& value : graph) of_graph.insert(value.name);
  return of_node == of_graph && of_graph.size() == graph.size();
}

StatusOr<OnnxModel> ModelFrom(const onnx::ModelProto& proto) {
  OnnxModel model;
  const onnx::GraphProto& graph = proto.graph();
  model.nodes = graph.node_size();
  if (model.nodes == 0) return InvalidArgument("the model has no node");
  if (model.nodes > 1) return model;
  const onnx::NodeProto& node = graph.node(0);
  if (node.op_type().empty()) return InvalidArgument("the node names no operator");
  model.op_type = node.op_type();
  model.domain = Domain(node.domain());
  for (const onnx::OperatorSetIdProto& opset : proto.opset_import()) {
    if (Domain(opset.domain()) == model.domain) model.opset = opset.version();
  }
  if (model.opset <= 0) {
    return InvalidArgument(fmt::format("the model names no version of the operators of {}",
                                       model.domain.empty() ? "ONNX" : Quoted(model.domain)));
  }
  model.inputs.assign(node.input().begin(), node.input().end());
  model.outputs.assign(node.output().begin(), node.output().end());
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (!model.attributes.emplace(attribute.name(), ValueOf(attribute)).second) {
      return InvalidArgument(
          fmt::format("the attribute {} appears twice", Quoted(attribute.name())));
    }
  }
  model.graph_inputs = ValueInfos(graph.input());
  model.graph_outputs = ValueInfos(graph.output());
  return model;
}

Status CheckDeclared(const OnnxTensor& found, const OnnxValueInfo& declared) {
  const Shape& shape = found.tensor.shape();
  if (!found.name.empty() && found.name != declared.name) {
    return InvalidArgument(
        fmt::format("holds the tensor {}, expected {}", Quoted(found.name), Quoted(declared.name)));
  }
  if (declared.type != 0 && found.type != declared.type) {
    return InvalidArgument(
        fmt::format("element type {} of ONNX, the model declares {}", found.type, declared.type));
  }
  if (!declared.extents) return Status();
  const bool fits =
      std::equal(shape.begin(), shape.end(), declared.extents->begin(), declared.extents->end(),
                 [](Index has, Index wants) { return wants < 0 || has == wants; });
  if (!fits) {
    return InvalidArgument(fmt::format("shape {}, the model declares {}", ToString(shape),
                                       ToString(*declared.extents)));
  }
  return Status();
}

// Reads `kind`_0.pb, `kind`_1.pb, ... of a data set.
StatusOr<TensorMap> ReadTensors(const std::filesystem::path& directory, const std::string& kind,
                                const std::vector<OnnxValueInfo>& declared) {
  const auto file = [&](std::size_t k) { return directory / fmt::format("{}_{}.pb", kind, k); };
  TensorMap tensors;
  for (std::size_t k = 0; k < declared.size(); ++k) {
    StatusOr<OnnxTensor> tensor = ReadOnnxTensor(file(k));
    if (!tensor.ok()) return tensor.status();
    if (Status s = CheckDeclared(*tensor, declared[k]); !s.ok()) {
      return InvalidArgument(Printable(file(k).native()) + ": " + s.message());
    }
    tensors.emplace(declared[k].name, std::move(tensor->tensor));
  }
  std::error_code error;
  if (std::filesystem::exists(file(declared.size()), error)) {
    return InvalidArgument(fmt::format("{}: the model has {} {}s only",
                                       Printable(file(declared.size()).native()), declared.size(),
                                       kind));
  }
  return tensors;
}

}  // namespace

StatusOr<OnnxModel> ParseOnnxModel(const std::string& bytes) {
  onnx::ModelProto proto;
  if (!proto.ParsePartialFromString(bytes)) {
    return InvalidArgument("no model of ONNX (damaged or cut off)");
  }
  return ModelFrom(proto);
}

StatusOr<OnnxModel> ReadOnnxModel(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "model.onnx";
  return WithoutExceptions(file, [&]() -> StatusOr<OnnxModel> {
    const StatusOr<std::string> bytes = ReadWholeFile(file, kModelSizeLimit);
    if (!bytes.ok()) return bytes.status();
    StatusOr<OnnxModel> model = ParseOnnxModel(*bytes);
    if (model.ok()) return model;
    return InvalidArgument(Printable(file.native()) + ": " + model.status().message());
  });
}

StatusOr<std::vector<OnnxDataSet>> ReadOnnxDataSets(const std::filesystem::path& directory,
                                                    const OnnxModel& model) {
  if (!SameNames(model.inputs, model.graph_inputs) ||
      !SameNames(model.outputs, model.graph_outputs)) {
    return InvalidArgument(
        fmt::format("{}: inputs and outputs of the graph are not those of its node",
                    Printable((directory / "model.onnx").native())));
  }
  std::vector<OnnxDataSet> sets;
  const auto folder = [&] { return directory / fmt::format("test_data_set_{}", sets.size()); };
  std::error_code error;
  while (std::filesystem::is_directory(folder(), error)) {
    StatusOr<TensorMap> inputs = ReadTensors(folder(), "input", model.graph_inputs);
    if (!inputs.ok()) return inputs.status();
    StatusOr<TensorMap> outputs = ReadTensors(folder(), "output", model.graph_outputs);
    if (!outputs.ok()) return outputs.status();
    sets.push_back({*std::move(inputs), *std::move(outputs)});
  }
  if (sets.empty()) {
    return NotFound(Printable(folder().native()) + ": no such folder of a node test's data");
  }
  return sets;
}

}  // namespace attest
