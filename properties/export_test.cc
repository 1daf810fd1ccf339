// SPDX-License-Identifier: Apache-2.0
// Cases as files: attest export, results computed by the Python adapters, and their audit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "audit/case_index.h"
#include "core/safetensors.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};

std::string TextOf(const fs::path& file) {
  std::ifstream stream(file);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

class ExportTest : public ::testing::Test {
 protected:
  // The suite `quick` is exported once, into directory/quick.
  static void SetUpTestSuite() {
    // In memory where the machine offers that: every file of an export is flushed to the disk.
    const bool in_memory = access("/dev/shm", W_OK) == 0;
    directory_ = (in_memory ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                 ("attest_export_test_" + std::to_string(getpid()));
    fs::create_directories(directory_);
    const Ran ran = Attest("export --suite quick --out quick --json");
    ASSERT_EQ(ran.status, 0) << ran.err;
    summary_ = nlohmann::json::parse(ran.out);
  }
  static void TearDownTestSuite() { fs::remove_all(directory_); }

  static Ran Shell(const std::string& line) {
    const fs::path errors = directory_ / "stderr";
    const std::string command =
        "cd '" + directory_.string() + "' && " + line + " 2>'" + errors.string() + "'";
    Ran ran;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
      ran.out.append(buffer, n);
    }
    ran.status = WEXITSTATUS(pclose(pipe));
    ran.err = TextOf(errors);
    return ran;
  }
  static Ran Attest(const std::string& arguments) {
    return Shell(std::string(std::getenv("ATTEST_COMMAND")) + " " + arguments);
  }
  static std::string Adapter(const std::string& name) {
    return std::string(std::getenv("ATTEST_PYTHON")) + " -B " + std::getenv("ATTEST_ADAPTERS") +
           "/" + name;
  }
  static nlohmann::json AuditJson(const std::string& arguments, int status) {
    const Ran ran = Attest("audit --json --no-shrink " + arguments);
    EXPECT_EQ(ran.status, status) << ran.err;
    return nlohmann::json::parse(ran.out);
  }
  static void ExpectRefused(const std::string& arguments, const std::string& message) {
    const Ran ran = Attest(arguments);
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_NE(ran.err.find(message), std::string::npos) << ran.err;
  }
  static bool HasRemark(const nlohmann::json& record, const std::string& remark) {
    const nlohmann::json& remarks = record["remarks"];
    return std::find(remarks.begin(), remarks.end(), nlohmann::json(remark)) != remarks.end();
  }

  // Every 16th case of the export, with the index, as directory/`name`.
  static std::size_t MakeSubset(const std::string& name) {
    const StatusOr<std::vector<CaseEntry>> entries = ReadCaseIndex(directory_ / "quick");
    EXPECT_TRUE(entries.ok());
    fs::remove_all(directory_ / name);
    fs::create_directories(directory_ / name);
    std::size_t count = 0;
    for (std::size_t i = 0; i < entries->size(); i += 16, ++count) {
      fs::copy(directory_ / "quick" / (*entries)[i].file, directory_ / name);
    }
    fs::copy(directory_ / "quick" / kCaseIndexFile, directory_ / name);
    return count;
  }

  static fs::path directory_;
  static nlohmann::json summary_;
};

fs::path ExportTest::directory_;
nlohmann::json ExportTest::summary_;

TEST_F(ExportTest, NamesArePortableAndUnique) {
  EXPECT_EQ(CaseFileName(7, "2x2.1x3x4x4.4 f32 normal mask=holes[b1qk] q@2=nan"),
            "0007-2x2.1x3x4x4.4-f32-normal-mask-holes-b1qk-q-2-nan.safetensors");
  EXPECT_EQ(CaseFileName(12345, "\xc3\xa4/../:"), "12345.safetensors");
  EXPECT_EQ(CaseFileName(1, ""), "0001.safetensors");
  EXPECT_EQ(CaseFileName(1, std::string(300, 'x')).size(), 100u);
  const StatusOr<std::vector<CaseEntry>> entries = ReadCaseIndex(directory_ / "quick");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  std::set<std::string> lower;  // file systems that fold letters
  std::size_t files = 0;
  for (const CaseEntry& entry : *entries) {
    std::string name = entry.file;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    EXPECT_TRUE(lower.insert(name).second) << name;
    EXPECT_LE(name.size(), 100u);
    files += fs::exists(directory_ / "quick" / entry.file) ? 1u : 0u;
  }
  EXPECT_EQ(files, entries->size());
  EXPECT_EQ(summary_["cases"], files);
}

// What is exported is what the suite runs, and the index says which is which.
TEST_F(ExportTest, CasesAreThoseOfTheSuite) {
  const StatusOr<std::vector<SuiteCase>> suite = MakeSuite("quick", 0);
  const StatusOr<std::vector<SuiteCase>> read = ReadCases(directory_ / "quick");
  const StatusOr<std::vector<CaseEntry>> entries = ReadCaseIndex(directory_ / "quick");
  ASSERT_TRUE(suite.ok() && read.ok() && entries.ok());
  ASSERT_EQ(read->size(), suite->size());
  const nlohmann::json index =
      nlohmann::json::parse(TextOf(directory_ / "quick" / kCaseIndexFile))["cases"];
  for (std::size_t i = 0; i < suite->size(); ++i) {
    const SuiteCase& expected = (*suite)[i];
    EXPECT_EQ((*read)[i].suite, "quick");
    EXPECT_EQ((*read)[i].family, expected.family);
    EXPECT_EQ((*entries)[i].name, expected.problem.name);
    EXPECT_EQ((*read)[i].problem.contract, expected.problem.contract);
    const StatusOr<Contract> contract = ParseContract(index[i]["contract"].dump());
    ASSERT_TRUE(contract.ok());
    EXPECT_EQ(*contract, expected.problem.contract);
    EXPECT_EQ(index[i]["outputs"], nlohmann::json(expected.problem.contract.outputs));
  }
  EXPECT_EQ(TextOf(directory_ / "quick" / "attest_adapter.py"),
            TextOf(fs::path(std::getenv("ATTEST_ADAPTERS")) / "attest_adapter.py"));
}

TEST_F(ExportTest, AnEarlierExportIsReplacedAndNothingElseIs) {
  ASSERT_EQ(Attest("export --suite real --out again").status, 0);
  const std::string index = TextOf(directory_ / "again" / kCaseIndexFile);
  nlohmann::json more = nlohmann::json::parse(index);
  more["cases"].push_back(more["cases"][0]);
  more["cases"].back()["file"] = "old.safetensors";
  std::ofstream(directory_ / "again" / kCaseIndexFile) << more;
  std::ofstream(directory_ / "again" / "old.safetensors") << "of the earlier export";
  std::ofstream(directory_ / "again" / "mine.txt") << "not of it";
  ASSERT_EQ(Attest("export --suite real --out again").status, 0);
  EXPECT_EQ(TextOf(directory_ / "again" / kCaseIndexFile), index);
  EXPECT_FALSE(fs::exists(directory_ / "again" / "old.safetensors"));
  EXPECT_TRUE(fs::exists(directory_ / "again" / "mine.txt"));

  fs::create_directories(directory_ / "foreign");
  std::ofstream(directory_ / "foreign" / "mine.txt") << "mine";
  ExpectRefused("export --suite real --out foreign", "neither empty nor an earlier export");
  ExpectRefused("export --suite nonsense --out x", "no suite 'nonsense'");
  ExpectRefused("export --suite real", "--out is required");
  ExpectRefused("export --out x", "--suite is required");
  ExpectRefused("export --suite real --out foreign/mine.txt", "cannot be written");
}

TEST_F(ExportTest, ADamagedIndexIsRefused) {
  ASSERT_EQ(Attest("export --suite real --out damaged").status, 0);
  const fs::path file = directory_ / "damaged" / kCaseIndexFile;
  const nlohmann::json good = nlohmann::json::parse(TextOf(file));
  const auto refused = [&](const std::string& text, const std::string& message) {
    std::ofstream(file) << text;
    ExpectRefused("audit --kernel tiled --cases damaged", "cases.json: " + message);
    ExpectRefused("export --suite real --out damaged", "cases.json: " + message);
  };
  refused("", "");
  refused(good.dump().substr(0, 1000), "");
  refused("[]", "");
  const auto changed = [&](const auto& change, const std::string& message) {
    nlohmann::json bad = good;
    change(bad);
    refused(bad.dump(), message);
  };
  changed([](auto& j) { j["attest_cases"] = 2; }, "attest_cases: expected 1, found 2");
  changed([](auto& j) { j["more"] = 2; }, "more: unknown field");
  changed([](auto& j) { j["cases"] = 2; }, "cases: expected a list");
  changed([](auto& j) { j["cases"][1].erase("suite"); }, "cases[1].suite: missing");
  changed([](auto& j) { j["cases"][0]["family"] = 1; }, "cases[0].family: ");
  changed([](auto& j) { j["cases"][0]["x"] = 1; }, "cases[0].x: unknown field");
  changed([](auto& j) { j["cases"][0]["file"] = "../up.safetensors"; }, "cases[0].file: expected");
  changed([](auto& j) { j["cases"][0]["file"] = "/x.safetensors"; }, "cases[0].file: expected");
  changed([](auto& j) { j["cases"][2]["file"] = j["cases"][0]["file"]; }, "cases[2].file: ");
}

TEST_F(ExportTest, ResultsOfTheNumpyAdapterConform) {
  const std::size_t cases = MakeSubset("cases");
  const Ran ran = Shell(Adapter("numpy_attention.py") + " --cases cases --results results");
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const nlohmann::json record = AuditJson("--cases cases --results results", 0);
  EXPECT_EQ(record["verdict"], "conforms");
  EXPECT_EQ(record["implementation"]["name"], "numpy attention");
  EXPECT_EQ(record["suites"], nlohmann::json({"quick"}));
  const auto run = record["cases"]["run"].get<std::size_t>();
  EXPECT_GE(run, cases - 3);

  // Fewer results are partial results, and a result with fewer outputs is one.
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory_ / "results")) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), run);
  for (int i = 0; i < 2; ++i) {
    fs::remove(files.back());
    files.pop_back();
  }
  StatusOr<TensorFile> first = ReadSafetensors(files.front());
  ASSERT_TRUE(first.ok() && first->tensors.contains("lse"));
  first->tensors.erase("lse");
  ASSERT_TRUE(WriteSafetensors(files.front(), *first).ok());
  const nlohmann::json partial = AuditJson("--cases cases --results results", 0);
  EXPECT_EQ(partial["cases"]["run"], run - 2);
  EXPECT_TRUE(HasRemark(partial, "partial results: " + std::to_string(run - 2) + " of " +
                                     std::to_string(run) + " cases have a result"))
      << partial["remarks"];
  EXPECT_TRUE(HasRemark(partial, "partial results: 'lse' was not given in 1 cases that ask for it"))
      << partial["remarks"];

  // One wrong element of one result.
  const fs::path file = files[files.size() / 2];
  StatusOr<TensorFile> wrong = ReadSafetensors(file);
  ASSERT_TRUE(wrong.ok());
  Tensor& out = wrong->tensors.at("out");
  out.Set(0, out.At(0) + 1.0);
  ASSERT_TRUE(WriteSafetensors(file, *wrong).ok());
  const nlohmann::json found = AuditJson("--cases cases --results results", 1);
  ASSERT_EQ(found["findings"].size(), 1u);
  EXPECT_EQ(found["findings"][0]["case"], file.stem().string());
  EXPECT_EQ(found["findings"][0]["tensor"], "out");

  std::ofstream(directory_ / "results" / "info.json")
      << R"({"name": "x", "supports": {"dtype": []}})";
  ExpectRefused("audit --cases cases --results results",
                "info.json: info: supports.dtype: unknown field");
  fs::create_directories(directory_ / "none");
  const Ran nothing = Attest("audit --cases cases --results none");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_NE(nothing.err.find("nothing was audited, no case has a result"), std::string::npos);
}

// The same results, judged by a declaration beside them.
TEST_F(ExportTest, ResultsAreJudgedByTheirInfo) {
  MakeSubset("declared");
  ASSERT_EQ(Shell(Adapter("numpy_attention.py") + " --cases declared --results by_info").status, 0);
  std::ofstream(directory_ / "by_info" / "info.json")
      << R"({"name": "x", "supports": {"outputs": ["out"], "empty_row": "nan"}})";
  const nlohmann::json record = AuditJson("--cases declared --results by_info", 1);
  EXPECT_EQ(record["implementation"]["declared"]["name"], "x");
  for (const nlohmann::json& finding : record["findings"]) {
    EXPECT_EQ(finding["code"], "non-finite");  // the rows that were computed as zeros
    EXPECT_EQ(finding["tensor"], "out");
  }
}

// The laws run as well, where the adapter is asked by the line protocol.
TEST_F(ExportTest, AdaptersConformByTheLineProtocol) {
  MakeSubset("asked");
  const nlohmann::json ten = AuditJson("--exec '" + Adapter("ten_lines.py") + "' --cases asked", 0);
  EXPECT_EQ(ten["implementation"]["name"], "ten lines");
  EXPECT_GE(ten["cases"]["run"], 5);
  EXPECT_FALSE(ten["laws"].empty());
  const nlohmann::json numpy =
      AuditJson("--exec '" + Adapter("numpy_attention.py") + "' --cases asked", 0);
  EXPECT_GE(numpy["cases"]["run"], 70);
}

TEST_F(ExportTest, AWrongAdapterIsFound) {
  MakeSubset("asked");
  std::string text = TextOf(fs::path(std::getenv("ATTEST_ADAPTERS")) / "ten_lines.py");
  const std::string right = "p.sum(-1, keepdims=True)";
  text.replace(text.find(right), right.size(), "(p.sum(-1, keepdims=True) + 1)");
  std::ofstream(directory_ / "wrong.py") << text;
  const std::string command = "PYTHONPATH=" + std::string(std::getenv("ATTEST_ADAPTERS")) + " " +
                              std::getenv("ATTEST_PYTHON") + " -B " +
                              (directory_ / "wrong.py").string();
  const nlohmann::json record = AuditJson("--exec '" + command + "' --cases asked", 1);
  EXPECT_EQ(record["findings"][0]["code"], "above-bound");
}

}  // namespace
}  // namespace attest
