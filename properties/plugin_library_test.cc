// SPDX-License-Identifier: Apache-2.0
// A plug-in in this process: what it is given, and that whatever it does wrong is noticed.
#include "audit/plugin_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.h"
#include "audit/case_spec.h"
#include "core/fp_environment.h"

namespace attest {
namespace {

std::filesystem::path PluginPath(const std::string& what) {
  const char* const directory = std::getenv("ATTEST_MISBEHAVING");
  return std::filesystem::path(directory == nullptr ? "." : directory) /
         ("misbehaving_" + what + ".so");
}

Case Plain() {
  Case problem = MakeCase({.shape = {2, 4, 2, 3, 5, 4, 4, 6}}, 0);
  problem.contract.outputs = {"out"};
  return problem;
}

// Loads the plug-in, runs the case a number of times and lets go, so that standard output is the
// test's again before anything is expected.
std::vector<Outcome> RunPlugin(const std::string& what, int calls = 1,
                               const Case& problem = Plain(), const CallOptions& options = {}) {
  const auto plugin = PluginLibrary::Load(PluginPath(what));
  if (!plugin.ok()) return {Outcome::Failed("not loaded", plugin.status().message())};
  std::vector<Outcome> outcomes;
  for (int i = 0; i < calls; ++i) outcomes.push_back((*plugin)->Run(problem, options));
  return outcomes;
}

std::string WhyNotLoaded(const std::filesystem::path& library) {
  const auto plugin = PluginLibrary::Load(library);
  return plugin.ok() ? "loaded" : plugin.status().message();
}

TEST(PluginLibrary, GivesWhatTheContractAsksForInEveryLayout) {
  const Outcome dense = RunPlugin("right").front();
  ASSERT_EQ(dense.kind, Outcome::Kind::kOk) << dense.message;
  EXPECT_TRUE(dense.complaints.empty());
  for (const Layout layout : kLayouts) {
    for (const Junk junk : {Junk::kNaN, Junk::kHuge}) {
      const Outcome outcome =
          RunPlugin("right", 1, Plain(), {.junk = junk, .layout = layout}).front();
      ASSERT_EQ(outcome.kind, Outcome::Kind::kOk) << outcome.message;
      EXPECT_EQ(ToDoubles(outcome.outputs.at("out")), ToDoubles(dense.outputs.at("out")))
          << NameOf(layout);
    }
  }
}

TEST(PluginLibrary, ConformsWithEveryLawWhereItIsRight) {
  std::string verdict;
  std::string findings;
  {
    const auto plugin = PluginLibrary::Load(PluginPath("no_info"));
    ASSERT_TRUE(plugin.ok()) << plugin.status().message();
    const auto record = Auditor({{"test", "plain", Plain()}}, {}).Audit(**plugin, "test");
    if (record.ok()) verdict = record->at("verdict");
    if (record.ok()) findings = record->at("findings").dump(2);
  }
  EXPECT_EQ(verdict, "conforms") << findings;
}

TEST(PluginLibrary, ReadsTheInfo) {
  const auto plugin = PluginLibrary::Load(PluginPath("right"));
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  EXPECT_EQ((*plugin)->info().name, "attention_plugin");
  EXPECT_EQ((*plugin)->info().version, "1.0");
  EXPECT_TRUE((*plugin)->info().strided && (*plugin)->info().threaded);
  EXPECT_NE((*plugin)->info_text().find(R"("dtypes":["f32"])"), std::string::npos);
  const auto silent = PluginLibrary::Load(PluginPath("no_info"));
  ASSERT_TRUE(silent.ok()) << silent.status().message();
  EXPECT_EQ((*silent)->info().name, "misbehaving_no_info");
  EXPECT_EQ((*silent)->info_text(), "");
}

TEST(PluginLibrary, SaysInOneLineWhyItCannotLoad) {
  const std::string no_file = WhyNotLoaded("no_such_plugin.so");
  EXPECT_EQ(no_file, "no_such_plugin.so: no such file");
  const std::filesystem::path text =
      std::filesystem::path(PluginPath("right")).parent_path() / "cmake_install.cmake";
  for (const auto& [library, reason] :
       {std::pair(text, "cannot be loaded: "), std::pair(text.parent_path(), "cannot be loaded: "),
        std::pair(PluginPath("no_run"), "has no function attest_plugin_run"),
        std::pair(PluginPath("later_abi"),
                  "attest_plugin_info: abi: version 1 of the interface was expected, found 2"),
        std::pair(PluginPath("broken_info"), "attest_plugin_info: not valid JSON"),
        std::pair(PluginPath("list_info"),
                  "attest_plugin_info: expected an object, found array")}) {
    const std::string message = WhyNotLoaded(library);
    EXPECT_TRUE(message.starts_with(library.string() + ": " + reason)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(PluginLibrary, HandsOnResultsAndMessages) {
  Case causal = Plain();
  causal.contract.causal = Causal::kTopLeft;
  const Outcome declined = RunPlugin("right", 1, causal).front();
  EXPECT_EQ(declined.kind, Outcome::Kind::kUnsupported);
  EXPECT_EQ(declined.message, "only plain f32 attention");
  for (const auto& [what, message] :
       {std::pair("error", "out of\\x09luck"),
        std::pair("silent_error", "the plug-in failed and gave no message"),
        std::pair("unknown_result", "attest_plugin_run returned 7, 0 to 2 was expected: what now"),
        std::pair("throw", "threw: no attention\\x0atoday"),
        std::pair("throw_number", "threw something that is no std::exception")}) {
    const Outcome outcome = RunPlugin(what).front();
    EXPECT_EQ(outcome.kind, Outcome::Kind::kFailed) << what;
    EXPECT_EQ(outcome.code, "error") << what;
    EXPECT_EQ(outcome.message, message);
  }
}

TEST(PluginLibrary, NoticesTrespassing) {
  for (const auto& [what, message] :
       {std::pair("write_outside", "wrote outside the output 'out'"),
        std::pair("write_input", "wrote to or around the input 'q'")}) {
    const Outcome outcome = RunPlugin(what).front();
    EXPECT_EQ(outcome.code, "trespass");
    EXPECT_EQ(outcome.message, message);
  }
}

// Complaint by complaint, "code: message", of every call.
std::vector<std::string> Complaints(const std::string& what, int calls) {
  std::vector<std::string> list;
  for (const Outcome& outcome : RunPlugin(what, calls)) {
    EXPECT_EQ(outcome.kind, Outcome::Kind::kOk) << outcome.message;
    std::string text;
    for (const Complaint& complaint : outcome.complaints) {
      text += complaint.code + ": " + complaint.message;
    }
    list.push_back(text);
  }
  return list;
}

TEST(PluginLibrary, NoticesWhatIsPrinted) {
  using Texts = std::vector<std::string>;
  const std::string hello = R"(printed: wrote 5 bytes to standard output: "hello")";
  EXPECT_EQ(Complaints("print", 2), (Texts{hello, hello}));
  EXPECT_EQ(Complaints("print_by_cout", 1),
            (Texts{R"(printed: wrote 15 bytes to standard output: "hello from C++\x0a")"}));
  // Of more than fits, the beginning.
  const std::string much = Complaints("print_much", 1).front();
  EXPECT_TRUE(much.starts_with("printed: wrote 1048576 bytes")) << much;
  EXPECT_NE(much.find(R"("0123456789\x0a012)"), std::string::npos) << much;
  EXPECT_LT(much.size(), 250u);
}

TEST(PluginLibrary, NoticesAndRestoresTheFloatingPointState) {
  using Texts = std::vector<std::string>;
  const std::string begin = "fp-state: left the floating-point state changed: ";
  EXPECT_EQ(Complaints("rounding", 2), (Texts{begin + "rounding mode", begin + "rounding mode"}));
#if defined(__SSE__)
  EXPECT_EQ(Complaints("ftz", 1), (Texts{begin + "FTZ, DAZ"}));
  EXPECT_EQ(Complaints("traps", 1), (Texts{begin + "exception masks"}));
#endif
  const Status status = CheckFloatingPointEnvironment();
  EXPECT_TRUE(status.ok()) << status.message();
}

// A library is loaded once a process, so each of these tests has one of its own.
TEST(PluginLibrary, ComplainsOfPrintingAtLoadOnce) {
  const std::vector<std::string> complaints = Complaints("print_at_load", 2);
  EXPECT_EQ(complaints.front(),
            R"(printed: loading the library wrote 6 bytes to standard output: "hello\x0a")");
  EXPECT_EQ(complaints.back(), "");
}

#if defined(__SSE__)
TEST(PluginLibrary, ComplainsOfAStateChangedAtLoadWithTheFirstResult) {
  std::vector<Outcome> outcomes;
  {
    const auto plugin = PluginLibrary::Load(PluginPath("ftz_at_load"));
    ASSERT_TRUE(plugin.ok()) << plugin.status().message();
    EXPECT_TRUE(CheckFloatingPointEnvironment().ok());
    Case declined = Plain();
    declined.contract.softcap = 1.0;
    for (const Case& problem : {declined, Plain(), Plain()}) {
      outcomes.push_back((*plugin)->Run(problem, {}));
    }
  }
  EXPECT_EQ(outcomes[0].kind, Outcome::Kind::kUnsupported);
  EXPECT_TRUE(outcomes[0].complaints.empty());
  ASSERT_EQ(outcomes[1].complaints.size(), 1u);
  EXPECT_EQ(outcomes[1].complaints[0].code, "fp-state");
  EXPECT_EQ(outcomes[1].complaints[0].message,
            "loading the library left the floating-point state changed: FTZ, DAZ");
  EXPECT_TRUE(outcomes[2].complaints.empty());
}
#endif

}  // namespace
}  // namespace attest
