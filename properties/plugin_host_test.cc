// SPDX-License-Identifier: Apache-2.0
// The plug-in host's side of the line protocol.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "audit/case_spec.h"
#include "audit/guarded_tensor.h"
#include "core/case.h"

namespace attest {
namespace {

using nlohmann::json;

class PluginHost : public ::testing::Test {
 protected:
  PluginHost() {
    directory_ = std::filesystem::temp_directory_path() /
                 ("attest_plugin_host_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    problem_ = MakeCase({.shape = {2, 4, 2, 3, 5, 4, 4, 6}}, 0);
    problem_.contract.outputs = {"out"};
    EXPECT_TRUE(WriteCase(directory_ / "in.safetensors", problem_).ok());
  }
  ~PluginHost() override { std::filesystem::remove_all(directory_); }

  json Request(const std::string& result) const {
    return {{"case", directory_ / "in.safetensors"}, {"result", directory_ / result}};
  }

  // The host's answers to these lines; `status_` is its exit status, -1 after a signal.
  std::vector<json> Ask(const std::string& plugin, const std::vector<std::string>& lines) {
    std::ofstream requests(directory_ / "requests");
    for (const std::string& line : lines) requests << line << '\n';
    requests.close();
    const std::string command = std::string(std::getenv("ATTEST_PLUGIN_HOST")) + " " + plugin +
                                " < " + (directory_ / "requests").string() + " > " +
                                (directory_ / "answers").string();
    const int status = std::system(("exec " + command).c_str());
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::vector<json> answers;
    std::ifstream file(directory_ / "answers");
    for (std::string line; std::getline(file, line);) answers.push_back(json::parse(line));
    return answers;
  }
  static std::string Plugin(const std::string& what) {
    return std::string(std::getenv("ATTEST_MISBEHAVING")) + "/misbehaving_" + what + ".so";
  }

  std::filesystem::path directory_;
  Case problem_;
  int status_ = 0;
};

TEST_F(PluginHost, AnswersInfoAndCases) {
  std::vector<std::string> lines{R"({"info":true})"};
  for (const Layout layout : kLayouts) {
    json request = Request(std::string(NameOf(layout)) + ".safetensors");
    request["layout"] = NameOf(layout);
    request["threads"] = 2;
    request["junk"] = layout == Layout::kDense ? "huge" : "nan";
    lines.push_back(request.dump());
  }
  const std::vector<json> answers = Ask(Plugin("right"), lines);
  ASSERT_EQ(answers.size(), lines.size());
  EXPECT_EQ(status_, 0);
  EXPECT_EQ(answers[0]["status"], "ok");
  EXPECT_EQ(answers[0]["info"]["name"], "attention_plugin");
  std::vector<std::vector<double>> results;
  for (std::size_t i = 1; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i], json({{"status", "ok"}}));
    const auto result =
        ReadResult(directory_ / (std::string(NameOf(kLayouts[i - 1])) + ".safetensors"), problem_);
    ASSERT_TRUE(result.ok()) << result.status().message();
    results.push_back(ToDoubles(result->at("out")));
    EXPECT_EQ(results.back(), results.front());
  }
}

TEST_F(PluginHost, CallsAsItIsAsked) {
  json second = Request("out.safetensors");
  second["threads"] = 3;
  second["layout"] = "transposed";
  second["junk"] = "huge";
  const std::vector<json> answers =
      Ask(Plugin("report"), {Request("out.safetensors").dump(), second.dump()});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["message"], "threads 1, stride 12, nan");
  EXPECT_EQ(answers[1]["message"], "threads 3, stride 4, huge");
}

TEST_F(PluginHost, KeepsItsInputFromThePlugin) {
  // More lines than the host reads at a time, so that the plug-in could find some.
  const std::vector<std::string> requests(60, Request("out.safetensors").dump());
  const json ok{{"status", "ok"}};
  EXPECT_EQ(Ask(Plugin("read"), requests), std::vector(60, ok));
}

TEST_F(PluginHost, SaysWhenThereIsNoInfo) {
  EXPECT_EQ(Ask(Plugin("no_info"), {R"({"info":true})"}),
            std::vector{json({{"status", "unsupported"}})});
  EXPECT_EQ(status_, 0);
}

TEST_F(PluginHost, EndsWithStatus2WhereThereIsNothingToAsk) {
  for (const std::string& plugin :
       {std::string("/no/such.so"), Plugin("no_run"), Plugin("later_abi"), Plugin("broken_info")}) {
    const std::vector<json> answers = Ask(plugin, {R"({"info":true})", R"({"info":true})"});
    ASSERT_EQ(answers.size(), 1u) << plugin;
    EXPECT_EQ(answers[0]["status"], "error");
    EXPECT_NE(answers[0]["message"].get<std::string>().find(plugin), std::string::npos);
    EXPECT_EQ(status_, 2);
  }
}

TEST_F(PluginHost, TellsEveryOutcomeApart) {
  const std::string request = Request("out.safetensors").dump();
  for (const auto& [what, status, message] :
       {std::tuple("error", "error", "out of\\x09luck"),
        std::tuple("throw", "error", "threw: no attention\\x0atoday"),
        std::tuple("write_outside", "trespass", "wrote outside the output 'out'")}) {
    const std::vector<json> answers = Ask(Plugin(what), {request});
    ASSERT_EQ(answers.size(), 1u) << what;
    EXPECT_EQ(answers[0], json({{"status", status}, {"message", message}})) << what;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "out.safetensors"));
  }
  problem_.contract.causal = Causal::kTopLeft;
  ASSERT_TRUE(WriteCase(directory_ / "in.safetensors", problem_).ok());
  EXPECT_EQ(Ask(Plugin("right"), {request}).at(0)["status"], "unsupported");
}

TEST_F(PluginHost, KeepsThePluginsOutputOutOfItsAnswers) {
  for (const char* what : {"print", "print_at_load", "print_much"}) {
    const std::vector<json> answers = Ask(Plugin(what), {Request("out.safetensors").dump()});
    ASSERT_EQ(answers.size(), 1u) << what;
    EXPECT_EQ(answers[0]["status"], "ok");
    EXPECT_EQ(answers[0]["complaints"][0]["code"], "printed") << what;
  }
  EXPECT_EQ(
      Ask(Plugin("rounding"), {Request("out.safetensors").dump()}).at(0)["complaints"][0]["code"],
      "fp-state");
}

TEST_F(PluginHost, AnswersMalformedLinesAndGoesOn) {
  json bad_layout = Request("out.safetensors");
  bad_layout["layout"] = "round";
  json bad_threads = Request("out.safetensors");
  bad_threads["threads"] = 0;
  json unknown = Request("out.safetensors");
  unknown["colour"] = "red";
  json no_case = Request("out.safetensors");
  no_case["case"] = directory_ / "none.safetensors";
  const std::vector<std::string> lines{"",
                                       "nonsense",
                                       "[]",
                                       "{}",
                                       bad_layout.dump(),
                                       bad_threads.dump(),
                                       unknown.dump(),
                                       no_case.dump()};
  std::vector<std::string> asked = lines;
  asked.push_back(Request("out.safetensors").dump());
  const std::vector<json> answers = Ask(Plugin("right"), asked);
  ASSERT_EQ(answers.size(), asked.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(answers[i]["status"], "error") << lines[i];
    EXPECT_NE(answers[i]["message"], "") << lines[i];
  }
  EXPECT_EQ(answers.back(), json({{"status", "ok"}}));
  EXPECT_EQ(status_, 0);
}

TEST_F(PluginHost, EndsWithThePlugin) {
  for (const char* what : {"crash", "abort", "exit", "crash_at_load"}) {
    EXPECT_TRUE(Ask(Plugin(what), {Request("out.safetensors").dump()}).empty()) << what;
  }
  // The cases before the one that it dies of are answered.
  const std::string request = Request("out.safetensors").dump();
  EXPECT_EQ(Ask(Plugin("crash_on_odd_lengths"), {R"({"info":true})", request, request}).size(), 1u);
}

}  // namespace
}  // namespace attest
