// SPDX-License-Identifier: Apache-2.0
// Files of ONNX's node tests: every element type, what is refused and how, and damage of any kind.
#include "audit/onnx_file.h"

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "audit/onnx_suite.h"
#include "audit/onnx_tensor.h"
#include "reference/certify.h"

namespace attest {
namespace {

namespace fs = std::filesystem;
using onnx::TensorProto;

std::string ReadBytes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void WriteBytes(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

class OnnxFiles : public ::testing::Test {
 protected:
  OnnxFiles() : root_(fs::temp_directory_path() / ("attest_onnx_" + std::to_string(getpid()))) {}
  ~OnnxFiles() override { fs::remove_all(root_); }

  StatusOr<OnnxTensor> Read(const TensorProto& proto) const {
    WriteBytes(root_ / "tensor.pb", proto.SerializeAsString());
    return ReadOnnxTensor(root_ / "tensor.pb");
  }

  // Writes a test of one node.
  void WriteTest(const onnx::ModelProto& model, const std::vector<TensorProto>& inputs,
                 const std::vector<TensorProto>& outputs, int set = 0) const {
    WriteBytes(root_ / "test/model.onnx", model.SerializeAsString());
    const fs::path folder = root_ / "test" / ("test_data_set_" + std::to_string(set));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      WriteBytes(folder / ("input_" + std::to_string(k) + ".pb"), inputs[k].SerializeAsString());
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      WriteBytes(folder / ("output_" + std::to_string(k) + ".pb"), outputs[k].SerializeAsString());
    }
  }

  fs::path root_;
};

TensorProto Floats(const std::string& name, const std::vector<std::int64_t>& shape,
                   const std::vector<float>& values) {
  TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(TensorProto::FLOAT);
  for (const std::int64_t extent : shape) proto.add_dims(extent);
  for (const float value : values) proto.add_float_data(value);
  return proto;
}

// y = op(x) of a version, with an axis where one is given.
onnx::ModelProto Model(const std::string& op, std::int64_t opset, const std::int64_t* axis) {
  onnx::ModelProto model;
  onnx::OperatorSetIdProto* set = model.add_opset_import();
  set->set_version(opset);
  onnx::NodeProto* node = model.mutable_graph()->add_node();
  node->set_op_type(op);
  node->add_input("x");
  node->add_output("y");
  model.mutable_graph()->add_input()->set_name("x");
  model.mutable_graph()->add_output()->set_name("y");
  if (axis == nullptr) return model;
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name("axis");
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(*axis);
  return model;
}

TEST_F(OnnxFiles, ReadsEveryTypeRawAndInFields) {
  struct Row {
    TensorProto::DataType type;
    DType dtype;
    std::string raw;  // of the elements 1 and 0
    std::function<void(TensorProto*)> add_fields;
  };
  const auto int32s = [](std::int32_t one) {
    return [one](TensorProto* proto) {
      proto->add_int32_data(one);
      proto->add_int32_data(0);
    };
  };
  const std::vector<Row> rows{
      {TensorProto::FLOAT, DType::kF32, std::string("\0\0\x80\x3f\0\0\0\0", 8),
       [](TensorProto* proto) {
         proto->add_float_data(1.0f);
         proto->add_float_data(0.0f);
       }},
      {TensorProto::DOUBLE, DType::kF64, std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\0", 16),
       [](TensorProto* proto) {
         proto->add_double_data(1.0);
         proto->add_double_data(0.0);
       }},
      {TensorProto::FLOAT16, DType::kF16, std::string("\0\x3c\0\0", 4), int32s(0x3c00)},
      {TensorProto::BFLOAT16, DType::kBF16, std::string("\x80\x3f\0\0", 4), int32s(0x3f80)},
      {TensorProto::BOOL, DType::kBool, std::string("\1\0", 2), int32s(1)},
      {TensorProto::INT32, DType::kI32, std::string("\1\0\0\0\0\0\0\0", 8), int32s(1)},
      {TensorProto::INT64, DType::kI32, std::string("\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16),
       [](TensorProto* proto) {
         proto->add_int64_data(1);
         proto->add_int64_data(0);
       }},
  };
  for (const Row& row : rows) {
    for (const bool raw : {true, false}) {
      TensorProto proto;
      proto.set_data_type(row.type);
      proto.add_dims(2);
      proto.add_dims(1);
      if (raw) {
        proto.set_raw_data(row.raw);
      } else {
        row.add_fields(&proto);
      }
      const StatusOr<OnnxTensor> read = Read(proto);
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(read->tensor.dtype(), row.dtype);
      EXPECT_EQ(read->tensor.shape(), (Shape{2, 1}));
      EXPECT_EQ(read->tensor.At(0), 1.0) << NameOf(row.dtype) << raw;
      EXPECT_EQ(read->tensor.At(1), 0.0) << NameOf(row.dtype) << raw;
    }
  }
}

TEST_F(OnnxFiles, RefusesTensorsInOneLine) {
  using Change = std::function<void(TensorProto*)>;
  const std::vector<std::pair<Change, std::string>> rows{
      {[](TensorProto* t) { t->set_dims(0, 3); }, "too few for the shape [3]"},
      {[](TensorProto* t) { t->set_dims(0, 1); }, "expected 1 for the shape [1]"},
      {[](TensorProto* t) { t->set_dims(0, -2); }, "the shape [-2]"},
      {[](TensorProto* t) { t->set_dims(0, std::int64_t{1} << 62); }, "too few for the shape"},
      {[](TensorProto* t) {
         t->add_dims(std::int64_t{1} << 40);
         t->add_dims(std::int64_t{1} << 40);
       },
       "too few for the shape"},
      {[](TensorProto* t) {
         for (int i = 0; i < 40; ++i) t->add_dims(1);
       },
       "41 axes"},
      {[](TensorProto* t) { t->set_data_type(TensorProto::STRING); }, "element type 8"},
      {[](TensorProto* t) { t->set_data_type(99); }, "element type 99"},
      {[](TensorProto* t) { t->clear_data_type(); }, "element type 0"},
      {[](TensorProto* t) { t->set_data_type(TensorProto::DOUBLE); }, "0 of them in the type's"},
      {[](TensorProto* t) { t->set_raw_data("\0\0\0\0\0\0\0\0", 8); }, "both as raw data"},
      {[](TensorProto* t) { t->set_data_location(TensorProto::EXTERNAL); }, "another file"},
      {[](TensorProto* t) {
         t->clear_float_data();
         t->set_raw_data("123456789");
       },
       "9 bytes of data, expected 8"},
      {[](TensorProto* t) {
         t->clear_float_data();
         t->set_data_type(TensorProto::BOOL);
         t->set_raw_data("\1\2", 2);
       },
       "boolean element 1 is byte 2"},
      {[](TensorProto* t) {
         t->clear_float_data();
         t->set_data_type(TensorProto::FLOAT16);
         t->add_int32_data(0);
         t->add_int32_data(65536);
       },
       "element 1 is 65536"},
      {[](TensorProto* t) {
         t->clear_float_data();
         t->set_data_type(TensorProto::INT64);
         t->add_int64_data(std::int64_t{1} << 40);
         t->add_int64_data(0);
       },
       "an integer of 32 bits"},
  };
  for (const auto& [change, message] : rows) {
    TensorProto proto = Floats("x", {2}, {1.0f, 2.0f});
    ASSERT_TRUE(Read(proto).ok());
    change(&proto);
    const Status status = Read(proto).status();
    EXPECT_NE(status.message().find(message), std::string::npos)
        << message << ": " << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

// softmax([0, 0; ln 3, 0]) along the axis of a version and attribute.
TEST_F(OnnxFiles, ReadsTheAxisOfEachVersion) {
  const float ln3 = 1.0986122886681098f;
  struct Row {
    std::int64_t opset;
    const std::int64_t* axis;
    std::vector<float> y;
  };
  const std::int64_t zero = 0;
  const std::int64_t last = -1;
  const std::vector<float> along_last{0.5f, 0.5f, 0.75f, 0.25f};
  const std::vector<float> along_first{0.25f, 0.5f, 0.75f, 0.5f};
  const std::vector<float> over_all{1 / 6.0f, 1 / 6.0f, 0.5f, 1 / 6.0f};
  for (const Row& row : std::vector<Row>{{13, nullptr, along_last},
                                         {13, &last, along_last},
                                         {13, &zero, along_first},
                                         {11, nullptr, along_last},
                                         {11, &zero, over_all},
                                         {1, &zero, over_all}}) {
    for (const bool logarithm : {false, true}) {
      std::vector<float> y = row.y;
      for (float& value : y) value = logarithm ? std::log(value) : value;
      WriteTest(Model(logarithm ? "LogSoftmax" : "Softmax", row.opset, row.axis),
                {Floats("x", {2, 2}, {0, 0, ln3, 0})}, {Floats("y", {2, 2}, y)});
      const StatusOr<OnnxSuite> suite = MakeOnnxSuite(root_);
      ASSERT_TRUE(suite.ok()) << suite.status().message();
      const OnnxCase& item = suite->cases.at(0);
      const std::string output = logarithm ? "lse" : "weights";
      const StatusOr<Certified> certified = Certify(item.item.problem);
      ASSERT_TRUE(certified.ok());
      const std::vector<CertifiedValue>& values = certified->outputs.at(output).values;
      ASSERT_EQ(values.size(), 4u);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(values[i].nearest, item.stored.at(output).At(static_cast<Index>(i)), 1e-6);
      }
    }
  }
}

TEST_F(OnnxFiles, RefusesTestsThatContradictTheirModel) {
  const TensorProto x = Floats("x", {2}, {1.0f, 2.0f});
  const TensorProto y = Floats("y", {2}, {0.25f, 0.75f});
  const std::int64_t axis = 0;
  const std::int64_t far = 1;
  const onnx::ModelProto model = Model("Softmax", 13, &axis);
  const auto expect = [&](const onnx::ModelProto& m, const std::vector<TensorProto>& inputs,
                          const std::vector<TensorProto>& outputs, const std::string& message) {
    fs::remove_all(root_);
    WriteTest(m, inputs, outputs);
    const Status status = MakeOnnxSuite(root_).status();
    EXPECT_NE(status.message().find(message), std::string::npos)
        << message << ": " << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  };
  expect(model, {y}, {y}, "holds the tensor \"y\", expected \"x\"");
  expect(model, {x, x}, {y}, "input_1.pb: the model has 1 inputs only");
  expect(model, {x}, {}, "output_0.pb");
  expect(model, {}, {}, "test_data_set_0");
  expect(model, {x}, {Floats("y", {1}, {1.0f})}, "expected an output like the input");
  expect(Model("Softmax", 13, &far), {x}, {y}, "attribute 'axis' is 1, expected -1 to 0");
  expect(Model("Softmax", 0, &axis), {x}, {y}, "names no version");
  expect(Model("Relu", 13, nullptr), {x}, {y}, "another operator");
  onnx::ModelProto changed = model;
  changed.mutable_graph()->mutable_input(0)->set_name("z");
  expect(changed, {x}, {y}, "not those of its node");
  changed = model;
  changed.mutable_graph()->add_node()->set_op_type("Relu");
  expect(changed, {x}, {y}, "a graph of several nodes");
  changed = model;
  changed.mutable_graph()->mutable_node(0)->set_domain("com.example");
  changed.mutable_opset_import(0)->set_domain("com.example");
  expect(changed, {x}, {y}, "another operator");
  changed = model;
  changed.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      TensorProto::DOUBLE);
  expect(changed, {x}, {y}, "the model declares 11");
  changed = model;
  changed.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->add_dim()
      ->set_dim_value(3);
  expect(changed, {x}, {y}, "shape [2], the model declares [3]");
}

TEST_F(OnnxFiles, ReadsEveryDataSet) {
  const std::int64_t axis = 0;
  const onnx::ModelProto model = Model("Softmax", 13, &axis);
  for (int set = 0; set < 3; ++set) {
    WriteTest(model, {Floats("x", {1}, {1.0f})}, {Floats("y", {1}, {1.0f})}, set);
  }
  const StatusOr<OnnxSuite> suite = MakeOnnxSuite(root_ / "test");
  ASSERT_TRUE(suite.ok()) << suite.status().message();
  ASSERT_EQ(suite->cases.size(), 3u);
  EXPECT_EQ(suite->cases[2].item.problem.name, "test.2");
  // The stored results are looked up by name.
  fs::copy(root_ / "test", root_ / "test.2", fs::copy_options::recursive);
  EXPECT_NE(MakeOnnxSuite(root_).status().message().find("two cases are named \"test.2\""),
            std::string::npos);
}

// Every part and every bit flip of `whole`; `read` says whether the damage was refused.
void Damage(const std::string& whole, const std::function<Status(const std::string&)>& read,
            Index* refused, Index* accepted) {
  const auto try_it = [&](const std::string& bytes) {
    const Status status = read(bytes);
    ++*(status.ok() ? accepted : refused);
    ASSERT_EQ(status.ok(), status.message().empty());
    ASSERT_EQ(status.message().find('\n'), std::string::npos);
  };
  for (std::size_t length = 0; length < whole.size(); ++length) try_it(whole.substr(0, length));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    try_it(bytes);
  }
}

// Models and tensors cut off anywhere, and with any bit changed: a Status of one line, or cases,
// and nothing printed.
TEST_F(OnnxFiles, SurvivesEveryTruncationAndBitFlip) {
  testing::internal::CaptureStderr();
  Index refused = 0;
  Index accepted = 0;
  for (const char* name : {"test_attention_24_qk_matmul_output_mode3_softmax_precision",
                           "test_attention_4d_causal_nonpad_negative_offset_structural_empty"}) {
    const fs::path test = fs::path(ATTEST_SOURCE_DIR) / "cases/onnx" / name;
    const StatusOr<OnnxModel> model = ReadOnnxModel(test);
    ASSERT_TRUE(model.ok());
    const StatusOr<std::vector<OnnxDataSet>> sets = ReadOnnxDataSets(test, *model);
    ASSERT_TRUE(sets.ok());
    std::vector<OnnxDeclined> declined;
    Damage(
        ReadBytes(test / "model.onnx"),
        [&](const std::string& bytes) {
          const StatusOr<OnnxModel> damaged = ParseOnnxModel(bytes);
          if (!damaged.ok()) return damaged.status();
          return AttentionCases("damaged", *damaged, sets->at(0), &declined).status();
        },
        &refused, &accepted);
    for (std::size_t k = 0; k < model->graph_inputs.size(); ++k) {
      const std::string file = "test_data_set_0/input_" + std::to_string(k) + ".pb";
      Damage(
          ReadBytes(test / file),
          [&](const std::string& bytes) {
            const StatusOr<OnnxTensor> damaged = ParseOnnxTensor(bytes);
            if (!damaged.ok()) return damaged.status();
            OnnxDataSet data = sets->at(0);
            data.inputs.at(model->graph_inputs[k].name) = damaged->tensor;
            return AttentionCases("damaged", *model, data, &declined).status();
          },
          &refused, &accepted);
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  std::printf("  %lld damaged files refused, %lld accepted\n", static_cast<long long>(refused),
              static_cast<long long>(accepted));
  EXPECT_GT(refused, 0);
  EXPECT_GT(accepted, 0);  // most bits are those of elements
}

// A damaged file of a test is named; none is left out in silence.
TEST_F(OnnxFiles, NamesTheDamagedFile) {
  const fs::path source = fs::path(ATTEST_SOURCE_DIR) / "cases/onnx";
  fs::create_directories(root_);
  fs::copy(source, root_, fs::copy_options::recursive);
  const fs::path test = root_ / "test_attention_4d_with_qk_matmul";
  for (const char* file :
       {"model.onnx", "test_data_set_0/input_1.pb", "test_data_set_0/output_1.pb"}) {
    const std::string whole = ReadBytes(test / file);
    for (const std::size_t length : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
      WriteBytes(test / file, whole.substr(0, length));
      const Status status = MakeOnnxSuite(root_).status();
      EXPECT_TRUE(status.message().starts_with((test / file).string() + ": ")) << status.message();
    }
    WriteBytes(test / file, whole);
  }
  EXPECT_TRUE(MakeOnnxSuite(root_).ok());
}

}  // namespace
}  // namespace attest
