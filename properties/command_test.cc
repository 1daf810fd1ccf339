// SPDX-License-Identifier: Apache-2.0
// The attest command: exit statuses, one line for every error, results on real and generated cases.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "audit/case_spec.h"
#include "core/case.h"
#include "core/safetensors.h"
#include "properties/command_fixture.h"

namespace attest {
namespace {

TEST_F(CommandTest, RefusesBadUsageInOneLine) {
  ExpectRefused("", "subcommand");
  ExpectRefused("audit --nonsense", "--nonsense");
  ExpectRefused("list nonsense", "nonsense");
  ExpectRefused("audit", "exactly one of --kernel, --plugin, --exec and --results");
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
  ExpectRefused("reference '" + file + "' --out file/below", "file/below: ");
  ExpectRefused("reference missing --out nowhere/result", "nowhere/result: ");
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

TEST_F(CommandTest, ReferenceReplacesTheContractsOutputs) {
  const std::string reference = "reference '" + WriteSmallCase() + "'";
  // The contract of the case asks for out, lse and weights.
  const CommandResult one = Run(reference + " --what lse --json --out result.safetensors");
  ASSERT_EQ(one.status, 0) << one.err;
  const nlohmann::json lse = nlohmann::json::parse(one.out)["outputs"];
  EXPECT_EQ(lse.size(), 1u);
  ASSERT_EQ(lse["lse"]["values"].size(), 2u);
  const StatusOr<TensorFile> result = ReadSafetensors(directory_ / "result.safetensors");
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->tensors.size(), 1u);
  for (Index i = 0; i < 2; ++i) {
    EXPECT_EQ(result->tensors.at("lse").At(i),
              lse["lse"]["values"][static_cast<std::size_t>(i)]["nearest"].get<double>());
  }
  const CommandResult two = Run(reference + " --what weights,out --json");
  EXPECT_EQ(nlohmann::json::parse(two.out)["outputs"].size(), 2u) << two.err;
  const CommandResult all = Run(reference + " --what all --json");
  EXPECT_EQ(nlohmann::json::parse(all.out)["outputs"].size(), 3u) << all.err;
}

// With grad_out in the case, "all" and a result file hold the gradients as well.
TEST_F(CommandTest, ReferenceGivesGradients) {
  Case problem = MakeCase({.shape = {1, 2, 1, 3, 4, 2, 2, 5}}, 5);
  Tensor grad_out(DType::kF32, {1, 2, 3, 5});
  for (Index i = 0; i < grad_out.size(); ++i) grad_out.Set(i, 1.0 / static_cast<double>(i + 1));
  problem.tensors["grad_out"] = grad_out;
  ASSERT_TRUE(WriteCase(directory_ / "gradients.safetensors", problem).ok());
  const std::string reference = "reference gradients.safetensors --out result.safetensors --json";
  const CommandResult all = Run(reference + " --what all");
  ASSERT_EQ(all.status, 0) << all.err;
  const nlohmann::json outputs = nlohmann::json::parse(all.out)["outputs"];
  const StatusOr<TensorFile> result = ReadSafetensors(directory_ / "result.safetensors");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tensors.size(), 6u);
  for (const auto& [name, shape] : {std::pair{"grad_q", Shape{1, 2, 3, 2}},
                                    {"grad_k", Shape{1, 1, 4, 2}},
                                    {"grad_v", Shape{1, 1, 4, 5}}}) {
    ASSERT_TRUE(outputs.contains(name));
    EXPECT_EQ(result->tensors.at(name).shape(), shape);
    EXPECT_EQ(outputs[name]["shape"].get<Shape>(), shape);
    EXPECT_EQ(outputs[name]["values"].size(), static_cast<std::size_t>(ElementCount(shape)));
  }
  const CommandResult one = Run(reference + " --what grad_v");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(nlohmann::json::parse(one.out)["outputs"]["grad_v"], outputs["grad_v"]);
  EXPECT_EQ(nlohmann::json::parse(one.out)["outputs"].size(), 1u);
}

TEST_F(CommandTest, ReferenceRefusesOutputsThatTheCaseLacks) {
  const std::string reference = "reference '" + WriteSmallCase() + "' --out none.safetensors";
  const auto refused = [&](const std::string& what, const std::string& message) {
    ExpectRefused(reference + " --what " + what, "small.safetensors: --what: " + message);
    EXPECT_FALSE(std::filesystem::exists(directory_ / "none.safetensors"));
  };
  refused("nonsense", "unknown output 'nonsense' (known: out, lse, weights, grad_q");
  refused("out,", "unknown output ''");
  refused("out,all", "unknown output 'all'");
  refused("lse,out,lse", "'lse' appears twice");
  refused("grad_q", "'grad_q' needs a tensor 'grad_out' or 'grad_lse'");
  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}}, 5);
  problem.tensors["grad_out"] = Tensor(DType::kF32, {1, 1, 2, 2});
  ASSERT_TRUE(WriteCase(directory_ / "cases" / "small.safetensors", problem).ok());
  refused("out,grad_sinks", "'grad_sinks', but there is no tensor 'sinks'");
}

TEST_F(CommandTest, ReferenceSaysWhichRungSettledWhat) {
  const std::string reference = "reference '" + WriteSmallCase() + "'";
  const auto rungs = [&](const std::string& arguments) {
    const CommandResult result = Run(reference + arguments + " --json");
    const nlohmann::json json = nlohmann::json::parse(result.out);
    std::map<std::string, int> counts{
        {"rule", 0}, {"double", 0}, {"double-double", 0}, {"ball", 0}, {"exact", 0}};
    for (const auto& output : json["outputs"]) {
      for (const auto& value : output["values"]) ++counts.at(value["rung"]);
    }
    EXPECT_EQ(json["rungs"], nlohmann::json(counts)) << arguments;
    return counts;
  };
  EXPECT_EQ(rungs("").at("double"), 12);  // 4 of out, 2 of lse, 6 of weights
  EXPECT_EQ(rungs(" --digits 20").at("ball"), 12);

  const CommandResult table = Run(reference + " --what lse");
  EXPECT_NE(table.out.find("  double        exact in "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("2 elements by the rung that settled them: rule 0, double 2, "
                           "double-double 0, ball 0, exact 0; no ball was needed\n"),
            std::string::npos)
      << table.out;
  // A weight that the causal rule forbids.
  const Case causal = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}, .causal = Causal::kTopLeft}, 5);
  ASSERT_TRUE(WriteCase(directory_ / "causal.safetensors", causal).ok());
  const CommandResult weights = Run("reference causal.safetensors --what weights");
  EXPECT_NE(weights.out.find("  rule          exactly 0\n"), std::string::npos) << weights.out;
  EXPECT_NE(weights.out.find(": rule 3, double 3, "), std::string::npos) << weights.out;

  const CommandResult digits = Run(reference + " --what lse --digits 20");
  EXPECT_NE(digits.out.find("ball 2, exact 0; largest precision "), std::string::npos)
      << digits.out;
}

// Hours of work at this precision; the signal arrives in the middle of it.
TEST_F(CommandTest, ReferenceStopsAtCtrlC) {
  const Case problem = MakeCase({.shape = {1, 1, 1, 4096, 512, 64, 64, 64}}, 5);
  ASSERT_TRUE(WriteCase(directory_ / "long.safetensors", problem).ok());
  std::ofstream(directory_ / "result.safetensors") << "as before";
  CommandResult result;
  for (const char* delay : {"0.3", "1", "3", "10"}) {  // until the command has started
    const std::string timeout = std::string("timeout --preserve-status -k 20 -s INT ") + delay;
    result = Run("reference long.safetensors --digits 1000 --threads 2 --out result.safetensors",
                 timeout);
    if (result.err.find("interrupted") != std::string::npos) break;
  }
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.err.starts_with("attest: long.safetensors: interrupted after ")) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  std::ifstream file(directory_ / "result.safetensors");
  std::string content;
  std::getline(file, content);
  EXPECT_EQ(content, "as before");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.is_regular_file()) ++files;
  }
  EXPECT_EQ(files, 3u);  // the case, the result as it was, and what the command said
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

// A finding comes with the smallest case that shows it, and a command that shows it again.
TEST_F(CommandTest, FindingsAreShrunkAndReplayed) {
  const Case causal =
      MakeCase({.shape = {2, 2, 1, 9, 9, 4, 4, 4}, .causal = Causal::kTopLeft, .bias = true}, 5);
  std::filesystem::create_directories(directory_ / "cases");
  ASSERT_TRUE(WriteCase(directory_ / "cases" / "causal.safetensors", causal).ok());
  const std::string audit = "audit --kernel fault:causal-sees-next --cases cases --json";
  const CommandResult run = Run(audit + " --out audit");
  ASSERT_EQ(run.status, 1) << run.err;
  const nlohmann::json record = nlohmann::json::parse(run.out);
  const nlohmann::json finding = record["findings"][0];
  ASSERT_TRUE(finding.contains("minimal")) << finding.dump(2);
  const nlohmann::json& minimal = finding["minimal"];
  EXPECT_TRUE(minimal["description"].get<std::string>().starts_with("1 batch entry, "));
  const StatusOr<Case> file = ReadCase(directory_ / minimal["case"].get<std::string>());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_LE(file->contract.shape.kv_len, 2);

  const std::string replay = minimal["replay"];
  const std::string command = "attest ";
  ASSERT_TRUE(replay.starts_with(command));
  const CommandResult again = Run(replay.substr(command.size()) + " --json");
  EXPECT_EQ(again.status, 1) << again.err;
  const nlohmann::json replayed = nlohmann::json::parse(again.out);
  bool found = false;
  for (const nlohmann::json& other : replayed["findings"]) {
    found = found || (other["code"] == finding["code"] && other["tensor"] == finding["tensor"]);
  }
  EXPECT_TRUE(found) << again.out;

  // Without a directory there is no file, only the description; and none of it on request.
  const nlohmann::json bare = nlohmann::json::parse(Run(audit).out)["findings"][0]["minimal"];
  EXPECT_EQ(bare["description"], minimal["description"]);
  EXPECT_FALSE(bare.contains("replay"));
  const nlohmann::json plain = nlohmann::json::parse(Run(audit + " --no-shrink").out);
  EXPECT_FALSE(plain["findings"][0].contains("minimal"));
}

// A case that the subject does not take: never a green verdict.
TEST_F(CommandTest, NothingAuditedIsNoVerdict) {
  Case problem = MakeCase({.shape = {1, 1, 1, 2, 3, 2, 2, 2}, .gradients = true}, 5);
  std::filesystem::create_directories(directory_ / "gradients");
  ASSERT_TRUE(WriteCase(directory_ / "gradients" / "gradients.safetensors", problem).ok());
  const CommandResult result = Run("audit --kernel decode --cases gradients");
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

// Figures of a run this short mean nothing, but they are there and agree with each other.
TEST_F(CommandTest, BenchComparesTheReferenceWithPlainMpfr) {
  const CommandResult run = Run("bench reference --quick --json --seed 3 --out bench.json");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const nlohmann::json record = nlohmann::json::parse(run.out);
  std::ifstream file(directory_ / "bench.json");
  EXPECT_EQ(nlohmann::json::parse(file), record);
  EXPECT_EQ(record["attest_bench"], 1);
  EXPECT_EQ(record["manifest"]["seed"], 3);
  EXPECT_EQ(record["manifest"]["inputs_sha256"].get<std::string>().size(), 64u);
  EXPECT_GT(record["fma_peak_gflops"].get<double>(), 0.0);
  ASSERT_EQ(record["rows"].size(), 5u);
  for (const nlohmann::json& row : record["rows"]) {
    if (row.contains("unsupported")) continue;
    const nlohmann::json& certified = row["certified"];
    EXPECT_GT(certified["ns_per_element_min"].get<double>(), 0.0);
    EXPECT_LE(certified["ns_per_element_min"], certified["ns_per_element_median"]);
    Index elements = 0;
    for (const nlohmann::json& count : row["elements_by_rung"]) elements += count.get<Index>();
    EXPECT_EQ(row["elements"], elements);
    Index rows = 0;
    for (const nlohmann::json& count : row["rows_by_rung"]) rows += count.get<Index>();
    EXPECT_EQ(elements, rows * row["head_dim"].get<Index>());
    EXPECT_TRUE(row["goal"].is_null());  // goals are for whole lengths
    EXPECT_EQ(row.contains("ratio"), record["mpfr"].get<bool>());
    if (row.contains("ratio")) {
      EXPECT_DOUBLE_EQ(row["ratio"].get<double>() * certified["ns_per_element_min"].get<double>(),
                       row["mpfr"]["ns_per_element_min"].get<double>());
    }
  }
  EXPECT_EQ(record["rows"][0]["elements"], 128 * 64);
  EXPECT_EQ(record["rows"][3]["dtype"], "f64");
  const nlohmann::json other = nlohmann::json::parse(Run("bench reference --quick --json").out);
  EXPECT_NE(record["manifest"]["inputs_sha256"], other["manifest"]["inputs_sha256"]);
}

TEST_F(CommandTest, BenchSaysWhatThereIs) {
  const CommandResult list = Run("bench --list");
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_TRUE(list.out.starts_with("attention ")) << list.out;
  EXPECT_NE(list.out.find("\nreference "), std::string::npos) << list.out;
  EXPECT_NE(Run("bench --help").out.find("\nreference "), std::string::npos);
  for (const char* command : {"bench --list --json", "list benchmarks --json"}) {
    const nlohmann::json entries = nlohmann::json::parse(Run(command).out);
    ASSERT_EQ(entries.size(), 2u) << command;
    EXPECT_EQ(entries[0]["name"], "attention") << command;
    EXPECT_EQ(entries[1]["name"], "reference") << command;
  }
  const CommandResult table = Run("bench reference --quick");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("forward 128x128x64"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("Peak of double multiply-adds on "), std::string::npos) << table.out;
  ExpectRefused("bench nonsense", "no benchmark 'nonsense' (there are: attention, reference)");
  ExpectRefused("bench reference --rounds 0", "--rounds");
  ExpectRefused("bench reference --rounds 2 --quick", "--quick");
  ExpectRefused("bench reference --out nowhere/bench.json", "nowhere/bench.json: ");
  ExpectRefused("bench reference --shape 2x96x64", "its shapes are fixed");
  ExpectRefused("bench --shape 8x1024", "expected heads x length x size");
  ExpectRefused("bench --shape 8x1024x64x", "expected heads x length x size");
  ExpectRefused("bench --shape 8x0x64", "expected heads x length x size");
  ExpectRefused("bench --shape 1x9x8x64", "too many queries");
  ExpectRefused("bench --shape 1x8x63", "no multiple of 8");
  ExpectRefused("bench --shape 1x100000x64", "more than 2^28 elements");
}

// A shape so small that its figures mean nothing; all of them are there, with their floors.
TEST_F(CommandTest, BenchMeasuresAttentionAgainstFloorsAndPeers) {
  // Libraries of the system are found or not; those of npm are not.
  const std::string no_packages = "env ATTEST_PEERS=nowhere";
  const CommandResult run =
      Run("bench --quick --json --seed 3 --shape 2x96x64 --out bench.json", no_packages);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const nlohmann::json record = nlohmann::json::parse(run.out);
  std::ifstream file(directory_ / "bench.json");
  EXPECT_EQ(nlohmann::json::parse(file), record);
  EXPECT_EQ(record["attest_bench"], 1);
  EXPECT_EQ(record["name"], "attention");
  EXPECT_EQ(record["clock"], "processor time of one thread");
  EXPECT_EQ(record["manifest"]["seed"], 3);
  EXPECT_EQ(record["manifest"]["inputs_sha256"].get<std::string>().size(), 64u);
  for (const nlohmann::json& target : record["targets"]) {
    for (const char* rate : {"fma_f32_gflops", "fma_f64_gflops", "exp_gexps", "copy_256mb_gbps",
                             "copy_4096x4096_gbps", "read_256mb_gbps", "read_64mb_gbps"}) {
      const nlohmann::json& rates = record["floors"][target.get<std::string>()];
      EXPECT_GT(rates[rate].get<double>(), 0.0) << target << " " << rate;
      EXPECT_GE(rates[rate], rates[std::string(rate) + "_median"]) << target << " " << rate;
    }
  }
  std::map<std::string, std::size_t> rows;  // of the fast forward kernel, by shape
  for (const nlohmann::json& row : record["rows"]) {
    if (row["kernel"] == "attention_forward_f32") ++rows[row["shape"].get<std::string>()];
    EXPECT_GT(row["seconds_min"].get<double>(), 0.0);
    EXPECT_LE(row["seconds_min"], row["seconds_median"]);
    EXPECT_GT(row["gflops"].get<double>(), 0.0);
    EXPECT_GT(row["gbytes_per_second"].get<double>(), 0.0);
    EXPECT_FALSE(row["floor"].get<std::string>().empty());
    EXPECT_GT(row["floor_seconds"].get<double>(), 0.0);
    EXPECT_DOUBLE_EQ(row["share_of_floor"].get<double>() * row["seconds_min"].get<double>(),
                     row["floor_seconds"].get<double>());
  }
  const std::size_t targets = record["targets"].size();
  EXPECT_EQ(rows, (std::map<std::string, std::size_t>{{"2x96x64", targets},
                                                      {"2x96x64 causal", targets}}));

  // The first row is of the best target; Eigen is always there, and computes the same.
  const nlohmann::json& first = record["rows"][0];
  EXPECT_GT(first["vs"]["eigen"].get<double>(), 0.0);
  for (const auto& [peer, difference] : first["peer_differences"].items()) {
    EXPECT_TRUE(first["vs"].contains(peer));
    // Twice n + D roundings and as many of the score's size (below 16) on values below 6.
    EXPECT_LT(difference.get<double>(), 2 * 16 * (96 + 64) * 0x1p-24 * 6) << peer;
  }
  bool missing = false;
  for (const nlohmann::json& peer : record["peers"]) {
    if (peer["library"] == "ggml") missing = peer.contains("missing");
  }
  EXPECT_TRUE(missing);

  const CommandResult table = Run("bench --quick --shape 1x1x64x8", no_packages);
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("attention_decode_f32"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("missing: package onnxruntime-node not found"), std::string::npos);
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST_F(CommandTest, ListsEverything) {
  for (const char* what : {"kernels", "suites", "experiments", "faults", "profiles"}) {
    const CommandResult result = Run(std::string("list ") + what + " --json");
    EXPECT_EQ(result.status, 0);
    EXPECT_GE(nlohmann::json::parse(result.out).size(), 3u) << what;
  }
}

// Node tests of ONNX: the stored outputs, a kernel on the same cases, and what is refused.
TEST_F(CommandTest, JudgesNodeTestsOfOnnx) {
  const std::string cases = " --suite onnx --cases '" + std::string(std::getenv("ATTEST_CASES"));
  const CommandResult stored = Run("audit" + cases + "/onnx'");
  EXPECT_EQ(stored.status, 0) << stored.err;
  EXPECT_NE(stored.out.find("elements: 1592 compared, 0 of them not the correctly rounded value"),
            std::string::npos)
      << stored.out;
  EXPECT_NE(stored.out.find("remark: 2400 elements of present_key"), std::string::npos);
  const CommandResult kernel = Run("audit --kernel tiled" + cases + "/onnx' --json");
  EXPECT_EQ(kernel.status, 0) << kernel.err;
  const auto record = nlohmann::json::parse(kernel.out);
  EXPECT_EQ(record["cases"]["passed"], 10);
  EXPECT_EQ(record["implementation"]["name"], "tiled");
  EXPECT_EQ(record["elements"]["compared"], 1592);
  const CommandResult fault =
      Run("audit --kernel fault:causal-sees-next --no-shrink" + cases + "/onnx'");
  EXPECT_EQ(fault.status, 1) << fault.out;
  ExpectRefused("audit --suite onnx", "needs --cases DIR");
  ExpectRefused("audit --kernel tiled --suite onnx", "needs --cases DIR");
  ExpectRefused("audit" + cases + "/use_lite'", "no node test of ONNX");
  ExpectRefused("audit --kernel tiled --results ." + cases + "/onnx'", "exactly one of");
}

TEST_F(CommandTest, BaselineAcceptsFindings) {
  const std::string audit = "audit --kernel fault:causal-sees-next --suite quick --no-shrink ";
  EXPECT_EQ(Run(audit + "--write-baseline all.json").status, 1);
  const CommandResult accepted = Run(audit + "--baseline all.json --out page");
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  EXPECT_NE(accepted.out.find(" accepted)"), std::string::npos) << accepted.out;
  for (const char* name : {"audit.json", "report.md", "junit.xml", "findings.sarif"}) {
    EXPECT_TRUE(std::filesystem::exists(directory_ / "page" / name)) << name;
  }
  // One finding less in the file is one too many in the audit.
  std::ifstream stream(directory_ / "all.json");
  nlohmann::json baseline = nlohmann::json::parse(stream);
  baseline["accepted"].erase(0);
  std::ofstream(directory_ / "less.json") << baseline;
  EXPECT_EQ(Run(audit + "--baseline less.json").status, 1);
  ExpectRefused(audit + "--baseline missing.json", "missing.json");
  ExpectRefused(audit + "--write-baseline nowhere/b.json", "nowhere/b.json: ");
}

}  // namespace
}  // namespace attest
