// SPDX-License-Identifier: Apache-2.0
// attest report: parts by name, and going on after a kill without losing what was finished.
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "properties/command_fixture.h"

namespace attest {
namespace {

namespace fs = std::filesystem;

// Two experiments: one at once, one of some seconds.
constexpr char kOnly[] = "report --only worked-example --only 'experiment scaling' --out ";

class ReportCommandTest : public CommandTest {
 protected:
  // Contents of every table, by file name.
  std::map<std::string, std::string> Tables(const std::string& out) const {
    std::map<std::string, std::string> tables;
    for (const auto& file : fs::directory_iterator(directory_ / out / "csv")) {
      std::ifstream stream(file.path());
      tables[file.path().filename().string()].assign(std::istreambuf_iterator<char>(stream), {});
    }
    return tables;
  }

  fs::path Unfinished(const std::string& out) const { return directory_ / out / "unfinished"; }

  // The finished parts that a killed run left.
  std::vector<fs::path> Parts(const std::string& out) const {
    std::vector<fs::path> parts;
    std::error_code error;
    for (const auto& file : fs::directory_iterator(Unfinished(out), error)) {
      if (file.path().extension() == ".cbor") parts.push_back(file.path());
    }
    return parts;
  }

  // Starts a report and kills it as soon as its first part is finished.
  void KillAfterFirstPart(const std::string& arguments, const std::string& out) const {
    const pid_t child = fork();
    if (child == 0) {
      const std::string line = "cd '" + directory_.string() + "' && exec '" +
                               std::getenv("ATTEST_COMMAND") + "' " + arguments + " >/dev/null";
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    while (Parts(out).empty() && waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    ASSERT_EQ(Parts(out).size(), 1u) << "the run ended before it was killed";
    ASSERT_FALSE(fs::exists(directory_ / out / "report.html"));
  }
};

TEST_F(ReportCommandTest, OnlyMakesTheNamedParts) {
  const CommandResult result = Run("report --only worked-example --json --out page");
  ASSERT_EQ(result.status, 0) << result.err;
  const auto records = nlohmann::json::parse(result.out);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]["name"], "worked-example");
  EXPECT_FALSE(fs::exists(Unfinished("page")));
  ExpectRefused("report --only nonsense --out page", "--only nonsense: no part of the report");
}

TEST_F(ReportCommandTest, GoesOnAfterAKill) {
  ASSERT_EQ(Run(kOnly + std::string("whole")).status, 0);
  KillAfterFirstPart(kOnly + std::string("killed"), "killed");
  // Marked, so that it shows whether the finished part is taken or made again.
  const fs::path part = Parts("killed").front();
  std::ifstream stream(part, std::ios::binary);
  auto record =
      nlohmann::ordered_json::from_cbor(std::string(std::istreambuf_iterator<char>(stream), {}));
  record["summary"] = "kept";
  const std::vector<std::uint8_t> bytes = nlohmann::ordered_json::to_cbor(record);
  std::ofstream(part, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));

  const CommandResult result = Run(kOnly + std::string("killed --json"));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("goes on from 1 finished parts"), std::string::npos) << result.err;
  const auto records = nlohmann::json::parse(result.out);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["summary"], "kept");
  EXPECT_EQ(Tables("killed"), Tables("whole"));
  EXPECT_FALSE(fs::exists(Unfinished("killed")));
}

TEST_F(ReportCommandTest, TakesNothingThatIsNotItsOwn) {
  KillAfterFirstPart(kOnly + std::string("page"), "page");
  // Another seed is another run.
  CommandResult result = Run("report --only worked-example --out page --seed 5");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  // A part that was cut short is made again.
  KillAfterFirstPart(kOnly + std::string("cut"), "cut");
  fs::resize_file(Parts("cut").front(), 100);
  result = Run("report --only worked-example --out cut --json");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)[0]["name"], "worked-example");
}

// What a part of the run needs is removed, the rest stays for the run it belongs to.
TEST_F(ReportCommandTest, KeepsFinishedPartsOfALargerRun) {
  KillAfterFirstPart(kOnly + std::string("page"), "page");
  EXPECT_EQ(Run("report --only 'experiment masks' --out page").status, 0);
  EXPECT_EQ(Parts("page").size(), 1u);
  EXPECT_EQ(Run("report --only 'experiment masks' --restart --out page").status, 0);
  EXPECT_FALSE(fs::exists(Unfinished("page")));
}

}  // namespace
}  // namespace attest
