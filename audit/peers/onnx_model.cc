// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/onnx_model.h"

#include <cstring>

namespace attest {
namespace {

// The wire format of protocol buffers: a key (field number and wire type), then the value.
class Message {
 public:
  Message& Integer(int field, std::int64_t value) {
    Varint(Key(field, 0));
    Varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& Float(int field, float value) {
    Varint(Key(field, 5));
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    bytes_.append(bytes, sizeof value);
    return *this;
  }
  Message& Text(int field, const std::string& value) {
    Varint(Key(field, 2));
    Varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& Nested(int field, const Message& value) { return Text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  static std::uint64_t Key(int field, int wire_type) {
    return static_cast<std::uint64_t>(field << 3 | wire_type);
  }
  void Varint(std::uint64_t value) {
    for (; value > 0x7f; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Field numbers below are those of onnx.proto.

Message ValueInfo(const OnnxValue& value) {
  Message shape;
  for (const Index extent : value.shape) shape.Nested(1, Message().Integer(1, extent));
  const Message tensor =
      Message().Integer(1, static_cast<std::int64_t>(value.type)).Nested(2, shape);
  return Message().Text(1, value.name).Nested(2, Message().Nested(1, tensor));
}

Message Attribute(const std::string& name, const std::variant<std::int64_t, float>& value) {
  constexpr int kFloatAttribute = 1;
  constexpr int kIntegerAttribute = 2;
  Message message;
  message.Text(1, name);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return message.Integer(3, *integer).Integer(20, kIntegerAttribute);
  }
  return message.Float(2, std::get<float>(value)).Integer(20, kFloatAttribute);
}

Message Opset(const std::string& domain, int version) {
  return Message().Text(1, domain).Integer(2, version);
}

}  // namespace

std::string OnnxModel(const OnnxNode& node, const std::vector<OnnxValue>& inputs,
                      const std::vector<OnnxValue>& outputs, int opset) {
  Message node_message;
  for (const std::string& input : node.inputs) node_message.Text(1, input);
  for (const std::string& output : node.outputs) node_message.Text(2, output);
  node_message.Text(3, "attention").Text(4, node.operation);
  for (const auto& [name, value] : node.attributes) {
    node_message.Nested(5, Attribute(name, value));
  }
  if (!node.domain.empty()) node_message.Text(7, node.domain);

  Message graph;
  graph.Nested(1, node_message).Text(2, "graph");
  for (const OnnxValue& input : inputs) graph.Nested(11, ValueInfo(input));
  for (const OnnxValue& output : outputs) graph.Nested(12, ValueInfo(output));

  constexpr int kIrVersion = 10;
  return Message()
      .Integer(1, kIrVersion)
      .Nested(7, graph)
      .Nested(8, Opset("", opset))
      .Nested(8, Opset("com.microsoft", 1))
      .bytes();
}

}  // namespace attest
