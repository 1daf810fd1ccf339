// SPDX-License-Identifier: Apache-2.0
// Cases and their files: round trips, and the one line for every mismatch with the contract.
#include "core/case.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "core/npy.h"
#include "core/safetensors.h"

namespace attest {
namespace {

const char* const kContract =
    R"({"shape":{"batch":2,"q_heads":4,"kv_heads":2,"q_len":3,"kv_len":5,"qk_dim":8,"v_dim":6},)"
    R"("dtype":"f32"})";

class CaseTest : public ::testing::Test {
 protected:
  CaseTest() {
    directory_ =
        std::filesystem::temp_directory_path() / ("attest_case_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  ~CaseTest() override { std::filesystem::remove_all(directory_); }

  static Case Valid() {
    Case problem;
    problem.contract = *ParseContract(kContract);
    problem.tensors["q"] = Tensor(DType::kF32, {2, 4, 3, 8});
    problem.tensors["k"] = Tensor(DType::kF32, {2, 2, 5, 8});
    problem.tensors["v"] = Tensor(DType::kF32, {2, 2, 5, 6});
    Tensor& q = problem.tensors["q"];
    for (Index i = 0; i < q.size(); ++i) q.Set(i, 0.25 * static_cast<double>(i));
    return problem;
  }

  std::filesystem::path directory_;
};

TEST_F(CaseTest, RoundTripsThroughAFile) {
  Case problem = Valid();
  problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 3, 5});
  ASSERT_TRUE(FinishCase(&problem).ok());
  const std::filesystem::path file = directory_ / "one.safetensors";
  ASSERT_TRUE(WriteCase(file, problem).ok());
  const StatusOr<Case> read = ReadCase(file);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->name, "one");
  EXPECT_EQ(ContractToJson(read->contract), ContractToJson(problem.contract));
  ASSERT_EQ(read->tensors.size(), 4u);
  EXPECT_EQ(read->tensors.at("q").At(95), 0.25 * 95);
}

TEST_F(CaseTest, ReadsNpzWithAContractBeside) {
  ASSERT_TRUE(WriteNpz(directory_ / "one.npz", Valid().tensors).ok());
  std::ofstream(directory_ / "contract.json") << kContract;
  const StatusOr<Case> read = ReadCase(directory_ / "one.npz", directory_ / "contract.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->contract.outputs, std::vector<std::string>{"out"});
  const StatusOr<Case> without = ReadCase(directory_ / "one.npz");
  ASSERT_FALSE(without.ok());
  EXPECT_NE(without.status().message().find("no contract"), std::string::npos);
}

TEST_F(CaseTest, ReadsAnNpyAsOutAloneAndNotAsACase) {
  Case problem = Valid();
  ASSERT_TRUE(FinishCase(&problem).ok());
  const std::filesystem::path file = directory_ / "one.npy";
  ASSERT_TRUE(WriteNpy(file, Tensor(DType::kF32, {2, 4, 3, 6})).ok());
  const StatusOr<TensorMap> outputs = ReadResult(file, problem);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  EXPECT_TRUE(outputs->contains("out"));
  const StatusOr<Case> read = ReadCase(file);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("one tensor is no case"), std::string::npos);
}

TEST_F(CaseTest, NamesFileAndFieldOfABadContract) {
  const std::filesystem::path file = directory_ / "bad.safetensors";
  ASSERT_TRUE(WriteSafetensors(file, {Valid().tensors, {{"attest", R"({"dtype":"f99"})"}}}).ok());
  const StatusOr<Case> read = ReadCase(file);
  ASSERT_FALSE(read.ok());
  EXPECT_TRUE(read.status().message().starts_with(file.string() + ": ")) << read.status().message();
}

struct Mismatch {
  const char* what;
  std::function<void(Case*)> spoil;
  const char* message;
};

TEST_F(CaseTest, RefusesWhatContradictsTheContract) {
  const std::vector<Mismatch> mismatches{
      {"missing", [](Case* c) { c->tensors.erase("k"); }, "tensor 'k': missing"},
      {"unknown", [](Case* c) { c->tensors["extra"] = Tensor(DType::kF32, {1}); },
       "tensor 'extra': the contract knows no such tensor"},
      {"type", [](Case* c) { c->tensors["v"] = Tensor(DType::kF16, {2, 2, 5, 6}); },
       "tensor 'v': expected type f32, found f16"},
      {"shape", [](Case* c) { c->tensors["v"] = Tensor(DType::kF32, {2, 2, 5, 7}); },
       "tensor 'v': expected shape [2, 2, 5, 6], found [2, 2, 5, 7]"},
      {"rank", [](Case* c) { c->tensors["mask"] = Tensor(DType::kBool, {3, 5}); },
       "tensor 'mask': expected shape [2, 4, 3, 5] (or 1 on an axis), found [3, 5]"},
      {"mask type", [](Case* c) { c->tensors["mask"] = Tensor(DType::kF32, {1, 1, 3, 5}); },
       "tensor 'mask': expected type bool, found f32"},
      {"length",
       [](Case* c) {
         c->tensors["kv_lengths"] = Tensor(DType::kI32, {2});
         c->tensors["kv_lengths"].Set(1, 6);
       },
       "tensor 'kv_lengths': element 1 is 6, expected 0 to 5"},
      {"documents", [](Case* c) { c->tensors["q_documents"] = Tensor(DType::kI32, {2, 3}); },
       "tensor 'q_documents' and 'kv_documents': only one"},
      {"local", [](Case* c) { c->contract.local = LocalWindow{2.0, false}; },
       "local: the tensor 'local_center' is missing"},
      {"alibi", [](Case* c) { c->contract.alibi = Alibi::kTensor; },
       "mask.alibi: 'tensor', but the tensor 'alibi_slopes' is missing"},
      {"gradient", [](Case* c) { c->contract.outputs = {"grad_q"}; },
       "outputs: 'grad_q' needs a tensor 'grad_out'"},
      {"general", [](Case* c) { c->contract.score = ScoreKind::kGeneral; }, "tensor 'w': missing"},
      {"unused", [](Case* c) { c->tensors["w"] = Tensor(DType::kF32, {8, 8}); },
       "tensor 'w': not used by this score kind"},
  };
  for (const Mismatch& mismatch : mismatches) {
    Case problem = Valid();
    mismatch.spoil(&problem);
    const Status status = FinishCase(&problem);
    EXPECT_FALSE(status.ok()) << mismatch.what;
    EXPECT_TRUE(status.message().starts_with(mismatch.message)) << status.message();
  }
}

TEST_F(CaseTest, DefaultOutputsFollowGradOut) {
  Case problem = Valid();
  problem.tensors["grad_out"] = Tensor(DType::kF32, {2, 4, 3, 6});
  ASSERT_TRUE(FinishCase(&problem).ok());
  EXPECT_EQ(problem.contract.outputs,
            (std::vector<std::string>{"out", "grad_q", "grad_k", "grad_v"}));
}

TEST_F(CaseTest, ResultsMayBePartialButNotWrong) {
  Case problem = Valid();
  problem.contract.outputs = {"out", "lse"};
  ASSERT_TRUE(FinishCase(&problem).ok());
  const std::filesystem::path file = directory_ / "result.safetensors";
  TensorFile result;
  result.tensors["out"] = Tensor(DType::kF32, {2, 4, 3, 6});
  result.tensors["more"] = Tensor(DType::kF32, {1});
  ASSERT_TRUE(WriteSafetensors(file, result).ok());
  const StatusOr<TensorMap> outputs = ReadResult(file, problem);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  EXPECT_EQ(outputs->size(), 1u);

  result.tensors["lse"] = Tensor(DType::kF32, {2, 4, 4});
  ASSERT_TRUE(WriteSafetensors(file, result).ok());
  const StatusOr<TensorMap> wrong = ReadResult(file, problem);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(
      wrong.status().message().find("tensor 'lse': expected f32 [2, 4, 3], found f32 [2, 4, 4]"),
      std::string::npos)
      << wrong.status().message();
}

// What is asked for can be replaced by anything that the case has the tensors for.
TEST_F(CaseTest, SelectsOutputsThatItAllows) {
  Case problem = Valid();
  ASSERT_TRUE(FinishCase(&problem).ok());
  using Names = std::vector<std::string>;
  EXPECT_EQ(AllowedOutputs(problem), (Names{"out", "lse", "weights"}));
  ASSERT_TRUE(SelectOutputs({"lse", "out"}, &problem).ok());
  EXPECT_EQ(problem.contract.outputs, (Names{"lse", "out"}));
  const auto refused = [&](const Names& names, const std::string& message) {
    EXPECT_EQ(SelectOutputs(names, &problem).message(), message);
    EXPECT_EQ(problem.contract.outputs, (Names{"lse", "out"}));
  };
  refused({}, "no output is named");
  refused({"out", "lse", "out"}, "'out' appears twice");
  refused({"grad_k"}, "'grad_k' needs a tensor 'grad_out' or 'grad_lse'");
  problem.tensors["grad_lse"] = Tensor(DType::kF32, {2, 4, 3});
  refused({"grad_sinks"}, "'grad_sinks', but there is no tensor 'sinks'");
  EXPECT_TRUE(SelectOutputs({"grad_k"}, &problem).ok());
  problem.tensors["sinks"] = Tensor(DType::kF32, {4});
  problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, 1});  // has no gradient
  EXPECT_EQ(AllowedOutputs(problem),
            (Names{"out", "lse", "weights", "grad_q", "grad_k", "grad_v", "grad_sinks"}));
  const Status unknown = SelectOutputs({"grad_mask"}, &problem);
  EXPECT_TRUE(unknown.message().starts_with("unknown output 'grad_mask' (known: out, lse,"));
}

// The gradient of a tensor has that tensor's shape and type, also where they are not the
// contract's.
TEST_F(CaseTest, OutputsHaveTheirOwnShapesAndTypes) {
  Case problem = Valid();
  problem.contract.out_dtype = DType::kBF16;
  problem.contract.outputs = {"out", "lse", "weights", "grad_k", "grad_bias"};
  problem.tensors["bias"] = Tensor(DType::kF32, {1, 4, 1, 5});
  problem.tensors["grad_out"] = Tensor(DType::kF32, {2, 4, 3, 6});
  ASSERT_TRUE(FinishCase(&problem).ok());
  EXPECT_EQ(OutputShape(problem, "out"), (Shape{2, 4, 3, 6}));
  EXPECT_EQ(OutputShape(problem, "lse"), (Shape{2, 4, 3}));
  EXPECT_EQ(OutputShape(problem, "weights"), (Shape{2, 4, 3, 5}));
  EXPECT_EQ(OutputShape(problem, "grad_k"), (Shape{2, 2, 5, 8}));
  EXPECT_EQ(OutputShape(problem, "grad_bias"), (Shape{1, 4, 1, 5}));
  EXPECT_EQ(OutputDType(problem, "out"), DType::kBF16);
  EXPECT_EQ(OutputDType(problem, "weights"), DType::kBF16);
  EXPECT_EQ(OutputDType(problem, "lse"), DType::kF32);
  EXPECT_EQ(OutputDType(problem, "grad_k"), DType::kF32);
  for (const char* name : {"grad_sinks", "grad_out", "output", ""}) {
    EXPECT_EQ(OutputShape(problem, name), Shape{0}) << name;
  }

  const std::filesystem::path file = directory_ / "result.safetensors";
  TensorFile result;
  result.tensors["grad_bias"] = Tensor(DType::kF32, {1, 4, 1, 5});
  ASSERT_TRUE(WriteSafetensors(file, result).ok());
  EXPECT_TRUE(ReadResult(file, problem).ok());
  result.tensors["grad_k"] = Tensor(DType::kF32, {2, 4, 3, 6});  // the shape of out
  ASSERT_TRUE(WriteSafetensors(file, result).ok());
  const StatusOr<TensorMap> wrong = ReadResult(file, problem);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("tensor 'grad_k': expected f32 [2, 2, 5, 8]"),
            std::string::npos)
      << wrong.status().message();
}

}  // namespace
}  // namespace attest
