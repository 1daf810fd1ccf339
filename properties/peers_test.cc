// SPDX-License-Identifier: Apache-2.0
// Peers: what is there is listed, what is missing is said, and those that are installed compute
// attention where it is plain.
#include "audit/peer_subjects.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "audit/audit.h"
#include "audit/capabilities.h"
#include "audit/case_spec.h"
#include "audit/plugin_library.h"

namespace attest {
namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const PeerEntry& peer : Peers()) names.push_back(peer.name);
  return names;
}

// While it lives, no package of npm is found.
class NoPackages {
 public:
  NoPackages() {
    if (const char* given = std::getenv("ATTEST_PEERS"); given != nullptr) given_ = given;
    setenv("ATTEST_PEERS", "/nonexistent", 1);
  }
  NoPackages(const NoPackages&) = delete;
  NoPackages& operator=(const NoPackages&) = delete;
  ~NoPackages() {
    unsetenv("ATTEST_PEERS");
    if (given_) setenv("ATTEST_PEERS", given_->c_str(), 1);
  }

 private:
  std::optional<std::string> given_;
};

Dimensions Shaped(Index heads, Index q_len, Index kv_len) {
  return {.q_heads = heads,
          .kv_heads = heads,
          .q_len = q_len,
          .kv_len = kv_len,
          .qk_dim = 8,
          .k_dim = 8,
          .v_dim = 8};
}

// Four that every peer takes, and one for each feature that some have.
std::vector<SuiteCase> PlainCases() {
  std::vector<CaseSpec> specs{
      {.shape = Shaped(2, 7, 7), .causal = Causal::kBottomRight},
      {.shape = Shaped(2, 5, 9), .causal = Causal::kBottomRight},
      {.shape = Shaped(3, 1, 33)},
      {.shape = Shaped(2, 1, 17), .values = Values::kOutliers, .scale = {false, 0.3}},
      {.shape = Shaped(2, 5, 9), .mask = true},
      {.shape = Shaped(2, 5, 9), .causal = Causal::kTopLeft, .softcap = 1.5},
      {.shape = Shaped(2, 1, 9), .sinks = true},
      {.shape = Shaped(2, 5, 9), .dtype = DType::kF16},
      {.shape = Shaped(2, 5, 9), .dtype = DType::kBF16},
  };
  specs.push_back({.shape = Shaped(2, 1, 9)});
  specs.back().shape.batch = 3;
  specs.back().kv_length_list = {1, 4, 9};
  specs.push_back({.shape = Shaped(6, 1, 9)});
  specs.back().shape.kv_heads = 2;
  specs.push_back({.shape = Shaped(6, 4, 4)});
  specs.back().alibi = Alibi::kDefault;
  std::vector<SuiteCase> cases;
  for (const CaseSpec& spec : specs) {
    CaseSpec out_alone = spec;
    out_alone.outputs = {"out"};
    cases.push_back({"plain", "plain", MakeCase(out_alone, 0)});
  }
  return cases;
}

TEST(Peers, AreListedWithLicences) {
  for (const PeerEntry& peer : Peers()) {
    EXPECT_FALSE(peer.description.empty()) << peer.name;
    EXPECT_FALSE(peer.licence.empty()) << peer.name;
  }
  const StatusOr<std::unique_ptr<Subject>> unknown = MakePeerSubject("nobody", {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_NE(unknown.status().message().find("onnxruntime-gqa"), std::string::npos);
}

TEST(Peers, SayWhatIsMissing) {
  const NoPackages missing;
  const StatusOr<std::unique_ptr<Subject>> subject = MakePeerSubject("ggml", {});
  ASSERT_FALSE(subject.ok());
  EXPECT_EQ(subject.status().code(), StatusCode::kNotFound);
  EXPECT_NE(subject.status().message().find("make peers"), std::string::npos);
}

// A plug-in introduces itself and fails in one line where its library is not there.
TEST(Peers, PluginsNeedNoLibraryToBeAsked) {
  const NoPackages missing;
  for (const char* name : {"onnxruntime", "onnxruntime-mha", "onnxruntime-gqa", "ggml"}) {
    const auto file =
        std::filesystem::path(ATTEST_PEER_PLUGINS) / ("attest_peer_" + std::string(name) + ".so");
    const StatusOr<std::unique_ptr<PluginLibrary>> plugin = PluginLibrary::Load(file);
    ASSERT_TRUE(plugin.ok()) << plugin.status().message();
    const StatusOr<Capabilities> capabilities = ParseCapabilities((*plugin)->info_text());
    ASSERT_TRUE(capabilities.ok()) << capabilities.status().message();
    EXPECT_EQ(capabilities->version, "not installed");
    const Outcome outcome = (*plugin)->Run(PlainCases().front().problem, {});
    EXPECT_EQ(outcome.kind, Outcome::Kind::kFailed) << name;
    EXPECT_NE(outcome.message.find("make peers"), std::string::npos) << outcome.message;
  }
}

class InstalledPeer : public ::testing::TestWithParam<std::string> {};

TEST_P(InstalledPeer, ConformsWhereAttentionIsPlain) {
  const StatusOr<std::unique_ptr<Subject>> subject = MakePeerSubject(GetParam(), {});
  if (subject.status().message().find("(make peers)") != std::string::npos) {
    GTEST_SKIP() << subject.status().message();
  }
  ASSERT_TRUE(subject.ok()) << subject.status().message();
  EXPECT_FALSE((*subject)->info().version.empty());
  AuditOptions options;
  options.only_law = "";
  Auditor auditor(PlainCases(), options);
  const auto record = auditor.Audit(**subject, "");
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ((*record)["verdict"], "conforms") << (*record)["findings"].dump(2);
  EXPECT_GE((*record)["cases"]["run"].get<Index>(), 4) << (*record)["remarks"].dump(2);
}

INSTANTIATE_TEST_SUITE_P(Every, InstalledPeer, ::testing::ValuesIn(Names()),
                         [](const ::testing::TestParamInfo<std::string>& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace attest
