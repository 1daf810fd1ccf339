// SPDX-License-Identifier: Apache-2.0
// The attest command: exit statuses, one line for every error, results on real and generated cases.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "audit/case_spec.h"
#include "core/case.h"
#include "core/safetensors.h"

namespace attest {
namespace {

struct CommandResult {
  int status = -1;
  std::string out;
  std::string err;
};

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    directory_ = std::filesystem::temp_directory_path() /
                 ("attest_command_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
  }
  ~CommandTest() override { std::filesystem::remove_all(directory_); }

  CommandResult Run(const std::string& arguments) const {
    const char* command = std::getenv("ATTEST_COMMAND");
    EXPECT_NE(command, nullptr) << "run by ctest, which names the command";
    const std::string errors = (directory_ / "stderr").string();
    const std::string line = "cd '" + directory_.string() + "' && '" + std::string(command) + "' " +
                             arguments + " 2>'" + errors + "'";
    CommandResult result;
    FILE* pipe = popen(line.c_str(), "r");
    char buffer[4096];
    for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
      result.out.append(buffer, n);
    }
    result.status = WEXITSTATUS(pclose(pipe));
    std::ifstream stream(errors);
    result.err.assign(std::istreambuf_iterator<char>(stream), {});
    return result;
  }

  // Bad usage or input: exit 2, nothing on standard output, one line that contains `message`.
  void ExpectRefused(const std::string& arguments, const std::string& message) const {
    const CommandResult result = Run(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.err.starts_with("attest: ")) << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }

  std::string WriteSmallCase() const {
    const Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 5);
    const std::filesystem::path file = directory_ / "cases" / "small.safetensors";
    std::filesystem::create_directories(file.parent_path());
    EXPECT_TRUE(WriteCase(file, problem).ok());
    return file.string();
  }

  std::filesystem::path directory_;
};

TEST_F(CommandTest, RefusesBadUsageInOneLine) {
  ExpectRefused("", "subcommand");
  ExpectRefused("audit --nonsense", "--nonsense");
  ExpectRefused("list nonsense", "nonsense");
  ExpectRefused("audit", "exactly one of --kernel and --results");
  ExpectRefused("audit --kernel nonsense", "no kernel 'nonsense'");
  ExpectRefused("audit --kernel tiled@PDP11", "PDP11");
  ExpectRefused("audit --kernel tiled --suite nonsense", "no suite 'nonsense'");
  ExpectRefused("audit --kernel tiled --cases missing", "missing");
  ExpectRefused("audit --results missing --cases missing", "missing");
  ExpectRefused("audit --kernel fault:nonsense", "no fault 'nonsense'");
  ExpectRefused("experiment nonsense", "no experiment 'nonsense'");
  ExpectRefused("reference missing.safetensors", "missing.safetensors");
  ExpectRefused("nonsense", "unknown command 'nonsense'");
  ExpectRefused("list kernels --seed -1", "expected a number from 0 to 2^64 - 1");
  ExpectRefused("list kernels --seed 18446744073709551616", "expected a number from 0");
  ExpectRefused("list kernels --threads 0", "--threads");
  ExpectRefused("audit --kernel tiled --suite quick --contract c.json", "--contract is for");
}

// Before the work starts, not after it.
TEST_F(CommandTest, RefusesOutputsThatCannotBeWritten) {
  std::ofstream(directory_ / "file") << "x";
  ExpectRefused("report --out file", "file: cannot be written");
  ExpectRefused("experiment saturation --out file/below", "file/below: cannot be written");
  ExpectRefused("audit --kernel tiled --out file", "file: cannot be written");
  ExpectRefused("list kernels >/dev/full", "standard output: cannot be written");
  const std::string file = WriteSmallCase();
  ExpectRefused("reference '" + file + "' --out '" + file + "'", "--out would overwrite it");
}

TEST_F(CommandTest, RefusesDamagedResults) {
  WriteSmallCase();
  std::filesystem::create_directories(directory_ / "results");
  std::ofstream(directory_ / "results" / "small.safetensors") << "damaged";
  ExpectRefused("audit --results results --cases cases", "small.safetensors: ");
}

TEST_F(CommandTest, RefusesBadCasesInOneLine) {
  const std::string file = (directory_ / "bad.safetensors").string();
  std::ofstream(file) << "nonsense";
  ExpectRefused("reference bad.safetensors", "bad.safetensors: ");

  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 5);
  const std::string contract = ContractToJson(problem.contract);
  const auto write = [&](const TensorMap& tensors, const std::string& text) {
    ASSERT_TRUE(WriteSafetensors(file, {tensors, {{"attest", text}}}).ok());
  };
  TensorMap mismatched = problem.tensors;
  mismatched["v"] = Tensor(DType::kF32, {1, 1, 4, 2});
  write(mismatched, contract);
  ExpectRefused("reference bad.safetensors", "tensor 'v': expected shape [1, 1, 3, 2]");

  std::string contradictory = contract;
  contradictory.replace(contradictory.find("\"q_heads\":1"), 11, "\"q_heads\":3,\"x\":1");
  write(problem.tensors, contradictory);
  ExpectRefused("reference bad.safetensors", "shape.x: unknown field");
  contradictory = contract;
  contradictory.replace(contradictory.find("\"kv_heads\":1"), 12, "\"kv_heads\":2");
  write(problem.tensors, contradictory);
  ExpectRefused("reference bad.safetensors", "shape.kv_heads: 2 does not divide q_heads = 1");
  ExpectRefused("audit --kernel tiled --cases .", "shape.kv_heads: 2 does not divide");
}

TEST_F(CommandTest, ReferencePrintsDigitsAndWritesAResult) {
  const std::string file = WriteSmallCase();
  const CommandResult digits = Run("reference '" + file + "' --digits 30");
  EXPECT_EQ(digits.status, 0) << digits.err;
  EXPECT_NE(digits.out.find("weights f32 [1, 1, 2, 3]"), std::string::npos) << digits.out;

  const CommandResult json = Run("reference '" + file + "' --json --out result.safetensors");
  EXPECT_EQ(json.status, 0) << json.err;
  const nlohmann::json parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed["undecided"], 0);
  const StatusOr<Case> problem = ReadCase(file);
  ASSERT_TRUE(problem.ok());
  const StatusOr<TensorMap> result = ReadResult(directory_ / "result.safetensors", *problem);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->at("out").At(3),
            parsed["outputs"]["out"]["values"][3]["nearest"].get<double>());
}

TEST_F(CommandTest, AuditsFilesAndResults) {
  WriteSmallCase();
  const CommandResult conforms = Run("audit --kernel tiled --cases cases --json --out audit");
  EXPECT_EQ(conforms.status, 0) << conforms.err;
  const nlohmann::json record = nlohmann::json::parse(conforms.out);
  EXPECT_EQ(record["attest_result"], 1);
  EXPECT_EQ(record["verdict"], "conforms");
  EXPECT_EQ(record["cases"]["run"], 1);
  EXPECT_TRUE(record["manifest"].contains("inputs_sha256"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "audit" / "audit.json"));

  // The reference's own result conforms; the same with one element spoilt does not.
  ASSERT_EQ(Run("reference cases/small.safetensors --out results.safetensors").status, 0);
  std::filesystem::create_directories(directory_ / "results");
  StatusOr<TensorFile> result = ReadSafetensors(directory_ / "results.safetensors");
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(WriteSafetensors(directory_ / "results" / "small.safetensors", *result).ok());
  EXPECT_EQ(Run("audit --results results --cases cases").status, 0);
  Tensor& out = result->tensors.at("out");
  out.Set(0, out.At(0) * (1.0 + 1e-3));
  ASSERT_TRUE(WriteSafetensors(directory_ / "results" / "small.safetensors", *result).ok());
  const CommandResult findings = Run("audit --results results --cases cases --json");
  EXPECT_EQ(findings.status, 1);
  const nlohmann::json found = nlohmann::json::parse(findings.out);
  EXPECT_EQ(found["verdict"], "findings");
  EXPECT_EQ(found["findings"][0]["code"], "above-bound");
  EXPECT_EQ(found["findings"][0]["worst"]["index"], (std::vector<int>{0, 0, 0, 0}));
}

// The other engine's outputs on the shipped activations: unpadded and padded English sentences.
TEST_F(CommandTest, AuditsTheShippedActivations) {
  const char* cases = std::getenv("ATTEST_CASES");
  ASSERT_NE(cases, nullptr);
  const std::string folder = std::string(cases) + "/use_lite";
  const CommandResult engine =
      Run("audit --results '" + folder + "/tfjs' --cases '" + folder + "'");
  EXPECT_EQ(engine.status, 0) << engine.out << engine.err;
  const CommandResult kernel = Run("audit --kernel tiled --suite real");
  EXPECT_EQ(kernel.status, 0) << kernel.out << kernel.err;
}

TEST_F(CommandTest, SeededFaultsExitWithFindings) {
  EXPECT_EQ(Run("audit --kernel fault:none --suite quick").status, 0);
  const CommandResult result = Run("audit --kernel fault:causal-sees-next --suite quick");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("finding above-bound"), std::string::npos) << result.out;
}

// A case that no subject of ours takes: never a green verdict.
TEST_F(CommandTest, NothingAuditedIsNoVerdict) {
  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}, .dtype = DType::kF64}, 5);
  std::filesystem::create_directories(directory_ / "wide");
  ASSERT_TRUE(WriteCase(directory_ / "wide" / "wide.safetensors", problem).ok());
  const CommandResult result = Run("audit --kernel tiled --cases wide");
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.err.find("nothing was audited"), std::string::npos) << result.err;
}

TEST_F(CommandTest, SameSeedGivesTheSameBytes) {
  const std::string arguments = "audit --kernel tiled --suite quick --json";
  const CommandResult one = Run(arguments + " --threads 1");
  const CommandResult two = Run(arguments + " --threads 2");
  nlohmann::json a = nlohmann::json::parse(one.out);
  nlohmann::json b = nlohmann::json::parse(two.out);
  a["manifest"].erase("command");
  b["manifest"].erase("command");
  a.erase("findings");
  b.erase("findings");
  EXPECT_EQ(a, b);
  const nlohmann::json other = nlohmann::json::parse(Run(arguments + " --seed 1").out);
  EXPECT_NE(a["manifest"]["inputs_sha256"], other["manifest"]["inputs_sha256"]);
}

TEST_F(CommandTest, ListsEverything) {
  for (const char* what : {"kernels", "suites", "experiments", "faults", "profiles"}) {
    const CommandResult result = Run(std::string("list ") + what + " --json");
    EXPECT_EQ(result.status, 0);
    EXPECT_GE(nlohmann::json::parse(result.out).size(), 3u) << what;
  }
}

}  // namespace
}  // namespace attest
