// SPDX-License-Identifier: Apache-2.0
// Runs the attest command in a folder of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "audit/case_spec.h"
#include "core/case.h"

namespace attest {

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

  // `prefix`: a command that runs the command.
  CommandResult Run(const std::string& arguments, const std::string& prefix = "") const {
    const char* command = std::getenv("ATTEST_COMMAND");
    EXPECT_NE(command, nullptr) << "run by ctest, which names the command";
    const std::string errors = (directory_ / "stderr").string();
    const std::string line = "cd '" + directory_.string() + "' && " + prefix + " '" +
                             std::string(command) + "' " + arguments + " 2>'" + errors + "'";
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

}  // namespace attest
